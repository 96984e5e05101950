"""What assertions of other formats become here: a grader, a statement for a judge, or neither.

A sentence becomes a grader only if one of RULES fits all of it; anything else is left to a judge,
because a grader that misreads a sentence is worse than none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

type Options = dict[str, Any]


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """What one assertion became."""

    graders: tuple[str, ...] = ()
    """As -g takes them."""
    statements: tuple[str, ...] = ()
    """What a judge has to find true."""
    unmapped: str = ""
    """What nothing here can check, and why."""


def grader(name: str, **options: Any) -> Mapped:
    """Return an assertion that a built-in grader checks."""
    return Mapped(graders=(f"{name}:{msgspec.json.encode(options).decode()}",))


def statement(*texts: str) -> Mapped:
    """Return an assertion that is left to a judge."""
    return Mapped(statements=texts)


def unmapped(what: str, why: str) -> Mapped:
    """Return an assertion that nothing here can check."""
    return Mapped(unmapped=f"{what}: {why}")


_NAME = r"[\w][\w.-]*\.[A-Za-z]\w{0,7}"
_PATH = rf"(?:\./)?(?:[\w.-]+/)*{_NAME}"
_FILE = rf"""(?:`(?P<a>{_PATH})`|"(?P<b>{_PATH})"|'(?P<c>{_PATH})'|(?P<d>{_PATH}))"""
_TEXT = r"""(?:`([^`]+)`|"([^"]+)"|“([^”]+)”|'([^']+)')"""
_TEXTS = rf"(?P<texts>{_TEXT}(?:(?:,? and |, ){_TEXT})*)"
_KIND = (
    r"(?:the )?(?:exact )?(?:(?:text|string|word|phrase|term|name|line|heading|section|value"
    r"|number)s? )?"
)
_ANSWER = (
    r"(?:the )?(?:agent'?s? |assistant'?s? |model'?s? |final )*"
    r"(?:answer|reply|response|message)(?: text)?"
)
_MADE = r"(?:exists|(?:is|was|has been|gets) (?:created|written|generated|produced|saved|present))"
_MAKES = r"(?:creat|writ|produc|generat|sav)(?:es?|ed) |wrote (?:a )?|written |"
_HAS = r"(?:(?:must |should |will )?(?:contains?|includes?|has|have)) "
_SAYS = r"(?:(?:must |should |will )?(?:mentions?|says?|states?|names?)) "
_NEVER = (
    r"(?:does not|doesn't|do not|must not|should not|never) "
    r"(?:contain|include|mention|say|state|use)s? "
)
_SUCCEEDS = (
    r"(?:succeeds|passes|works|exits (?:successfully|cleanly)|"
    r"exits with (?:exit )?(?:code |status )?(?:0|zero)|returns (?:exit code )?0|"
    r"runs (?:successfully|cleanly|without (?:an )?errors?))"
)
_PLACE = r"(?: in (?:the )?(?:workspace|working (?:directory|folder)|project|repository|root))?"
_SHELL = re.compile(r"[|&;<>$*?~`\n]")


def _file_exists(found: re.Match[str]) -> Mapped:
    return grader("file", exists=[_path(found)])


def _file_contains(found: re.Match[str]) -> Mapped:
    texts = _texts(found)
    if len(texts) > 1:  # the grader has one text for each path
        return Mapped(graders=tuple(_grader_of_file(_path(found), text) for text in texts))
    return Mapped(graders=(_grader_of_file(_path(found), texts[0]),))


def _grader_of_file(path: str, text: str) -> str:
    return grader("file", contains={path: text}).graders[0]


def _command(found: re.Match[str]) -> Mapped:
    return command(found["command"])


def command(line: str) -> Mapped:
    """Return an assertion that a command line succeeds; one with signs of a shell needs a shell."""
    line = line.strip()
    return grader("command", sh=line) if _SHELL.search(line) else grader("command", run=line)


def _answer_contains(found: re.Match[str]) -> Mapped:
    return grader("contains", text=_texts(found))


def _answer_says(found: re.Match[str]) -> Mapped:
    return grader("contains", text=_texts(found), ignore_case=True)


def _answer_lacks(found: re.Match[str]) -> Mapped:
    return grader("regex", pattern=either(_texts(found)), negate=True)


def _answer_matches(found: re.Match[str]) -> Mapped:
    return regex(found["pattern"] or found["slashed"])


def regex(pattern: str, **options: Any) -> Mapped:
    """Return an assertion that a pattern matches; one that Python does not know is not mapped."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return unmapped(f"regex {pattern!r}", f"not a regular expression of Python: {error}")
    return grader("regex", pattern=pattern, **options)


def either(texts: Sequence[str]) -> str:
    """Return a pattern that finds any of these texts."""
    return "|".join(map(re.escape, texts))


def _path(found: re.Match[str]) -> str:
    path = found["a"] or found["b"] or found["c"] or found["d"]
    return path.removeprefix("./")


def _texts(found: re.Match[str]) -> list[str]:
    return [next(filter(None, groups)) for groups in re.findall(_TEXT, found["texts"])]


RULES: Mapping[str, tuple[str, Callable[[re.Match[str]], Mapped]]] = {
    "file": (
        rf"(?:(?:a|an|the) )?(?:new |output )*(?:file )?(?:named |called )?{_FILE}(?: file)? "
        rf"{_MADE}{_PLACE}",
        _file_exists,
    ),
    "made": (
        rf"(?:(?:the )?(?:agent|assistant|skill|model) |it )?(?:{_MAKES[:-1]})(?:(?:a|an|the) )?"
        rf"(?:new )?(?:file )?(?:named |called |to |as )?{_FILE}{_PLACE}",
        _file_exists,
    ),
    "text in a file": (
        rf"(?:the )?(?:file )?{_FILE}(?: file)? (?:{_HAS}|{_SAYS}){_KIND}{_TEXTS}",
        _file_contains,
    ),
    "command": (
        rf"(?:running |the command |command )?`(?P<command>[^`]+)` {_SUCCEEDS}{_PLACE}",
        _command,
    ),
    "tests": (
        r"(?:all |the )*(?:unit )?(?:tests|checks) (?:pass|succeed)"
        r"(?: with| when running| under)? \(?`(?P<command>[^`]+)`\)?",
        _command,
    ),
    "text in the answer": (rf"{_ANSWER} {_HAS}{_KIND}{_TEXTS}", _answer_contains),
    "words in the answer": (rf"{_ANSWER} {_SAYS}{_KIND}{_TEXTS}", _answer_says),
    "no such text in the answer": (
        rf"{_ANSWER} {_NEVER}{_KIND}{_TEXTS}".replace("and |", "(?:and|or) |"),
        _answer_lacks,
    ),
    "pattern of the answer": (
        rf"{_ANSWER} match(?:es)? (?:the )?(?:regex |regular expression |pattern )?"
        r"(?:`(?P<pattern>[^`]+)`|/(?P<slashed>.+)/)",
        _answer_matches,
    ),
}
"""A sentence that fits one of these patterns as a whole is checked by a grader."""
_COMPILED = [(re.compile(pattern, re.IGNORECASE), made) for pattern, made in RULES.values()]
_PREFIX = re.compile(r"([a-z][a-z:_-]+?)(?:\(([\d.]+)\))?:\s*(.*)", re.DOTALL)


def map_sentence(text: str) -> Mapped:
    """Return what a sentence becomes; `contains: Paris` and the like mean what they say."""
    plain = " ".join(text.split()).rstrip(".!。")
    for pattern, made in _COMPILED:
        if found := pattern.fullmatch(plain):
            return made(found)
    prefixed = map_prefixed(text)
    return prefixed if prefixed is not None and not prefixed.unmapped else statement(text)


def map_prefixed(text: str) -> Mapped | None:
    """Return what TYPE: VALUE or TYPE(THRESHOLD): VALUE becomes; None for other texts."""
    plain = text.strip()
    if kind_of(plain) in (*_WITHOUT_VALUE, "is-json", "contains-json"):
        return map_typed(kind_of(plain), {})
    found = _PREFIX.fullmatch(plain)
    kind = kind_of(found[1]) if found else ""
    if not found or not (kind in _BY_VALUE or kind.removeprefix("not-") in _WHY):
        return None
    return map_typed(kind, {"value": found[3], "threshold": found[2]})


def map_assertion(given: Any) -> Mapped:
    """Return what an assertion of a case becomes: a sentence, or an object with a type."""
    if isinstance(given, str):
        return map_sentence(given) if given.strip() else unmapped("an empty assertion", "no text")
    if not isinstance(given, dict):
        return unmapped(f"{given!r:.60}", "neither a text nor an object")
    said = _first(given, "text", "assertion", "statement", "description", "check", "criterion",
                  "expectation", "name", "dimension")  # fmt: skip
    line = _first(given, "command", "cmd", "run", "script")
    if line:
        return _object_command(line, given)
    value = _first(given, "value", "pattern", "expected", "contains", "path", "file", "criteria")
    kind = kind_of(_first(given, "type", "kind", "method", "grader"))
    path = _first(given, "path", "file")
    if kind == "file-contains" and path and value not in (None, path):
        return Mapped(graders=(_grader_of_file(str(path), str(value)),))
    if kind in _WITHOUT_VALUE or kind.removeprefix("not-") in _WHY:
        return map_typed(kind, {**given, "value": value})
    if value is not None and kind in _BY_VALUE:
        return map_typed(kind, {**given, "value": value})
    told = said or value
    if isinstance(told, str) and told.strip():
        more = _first(given, "pass_if", "description", "criteria")
        return map_sentence(f"{told}: {more}" if isinstance(more, str) and more != told else told)
    return unmapped(f"{given!r:.80}", "no text, value or command")


def _first(given: Mapping[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) not in (None, "", [])), None)


def _object_command(line: Any, given: Mapping[str, Any]) -> Mapped:
    code = _first(given, "expect_exit", "exit_code", "expected_exit_code")
    options = {"exit_code": code} if isinstance(code, int) and code else {}
    if given.get("expect_substring") or given.get("expected_output"):
        return unmapped(f"command {line!r:.60}", "what it should print is not checked by a grader")
    if isinstance(line, list) and all(isinstance(word, str) for word in line):
        return grader("command", run=line, **options)
    if isinstance(line, str):
        key = "sh" if _SHELL.search(line) else "run"
        return grader("command", **{key: line}, **options)
    return unmapped(f"command {line!r:.60}", "neither a text nor a list of words")


_ALIASES = {
    **dict.fromkeys(("includes", "substring", "string-contains", "output-contains"), "contains"),
    **dict.fromkeys(("excludes", "not-includes", "output-not-contains"), "not-contains"),
    **dict.fromkeys(("matches", "pattern", "regex-match"), "regex"),
    **dict.fromkeys(("exact", "exact-match", "equal"), "equals"),
    **dict.fromkeys(("file", "exists", "file-created"), "file-exists"),
    **dict.fromkeys(("shell", "exit-code", "bash"), "command"),
    **dict.fromkeys(("tool-called", "tool-use", "trajectory:tool-used"), "tool-used"),
    **dict.fromkeys(("trajectory:tool-sequence",), "tool-sequence"),
    **dict.fromkeys(
        ("grade", "judge", "llm", "llm-judge", "semantic", "rubric", "model-graded-closedqa",
         "agent-rubric", "behavioral", "qualitative", "manual"),
        "llm-rubric",
    ),
    "fn": "javascript",
}  # fmt: skip


def kind_of(name: Any) -> str:
    """Return the name of a type of assertions as it is known here."""
    plain = str(name or "").strip().lower().replace("_", "-").replace(" ", "-")
    negated = plain.startswith("not-") and plain not in _ALIASES
    found = _ALIASES.get(plain.removeprefix("not-") if negated else plain)
    return (f"not-{found}" if negated else found) if found else plain


def listed(value: Any) -> list[str]:
    """Return the texts of a value: of a list, or of a text with commas."""
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    return [part.strip().strip('"') for part in _as_text(value).split(",") if part.strip()]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _equals(value: Any, _: Options) -> Mapped:
    if isinstance(value, str):
        return grader("exact", text=value)
    return grader("json-schema", schema={"const": value})


def _json(value: Any, _: Options) -> Mapped:
    return grader("json-schema", schema=value if value not in (None, "") else {})


def _word_count(value: Any, options: Options) -> Mapped:
    given = value if isinstance(value, dict) else {"min": value, "max": value}
    try:
        least = int(given.get("min", 0))
        most = int(given["max"]) if "max" in given else None
    except (TypeError, ValueError):
        return unmapped(f"word-count {value!r}", "neither a number nor min and max")
    if most is not None and (most == 0 or most < least):
        return unmapped(f"word-count {value!r}", "no answer has so many words")
    times = f"{max(0, least - 1)},{'' if most is None else most - 1}"
    return grader("regex", pattern=rf"\A\s*(?:\S+\s+){{{times}}}\S+\s*\Z")


def _threshold(option: str, scale: float) -> Callable[[Any, Options], Mapped]:
    def made(value: Any, options: Options) -> Mapped:
        most = options.get("threshold")
        most = value if most is None else most
        try:
            return grader("limits", **{option: float(most) * scale})
        except (TypeError, ValueError):
            return unmapped(option, "no threshold is given")

    return made


def _tools(option: str) -> Callable[[Any, Options], Mapped]:
    def made(value: Any, _: Options) -> Mapped:
        if isinstance(value, dict) and option == "in_order":
            value = value.get("steps")
        elif isinstance(value, dict) and not {"min", "max"} & value.keys():
            value = value.get("pattern") or value.get("name")
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return grader("tools", **{option: value})
        return unmapped(f"tools {value!r:.60}", "not names of tools")

    return made


def _skills(option: str) -> Callable[[Any, Options], Mapped]:
    def made(value: Any, _: Options) -> Mapped:
        if isinstance(value, str | list) and value:
            return grader("skill", **{option: [value] if isinstance(value, str) else value})
        return unmapped(f"skill {value!r:.60}", "not names of skills")

    return made


def _rubric(frame: str = "{}") -> Callable[[Any, Options], Mapped]:
    def made(value: Any, _: Options) -> Mapped:
        texts = value if isinstance(value, list) else [value]
        if texts and all(isinstance(text, str) and text.strip() for text in texts):
            return statement(*(frame.format(text.strip()) for text in texts))
        return unmapped(f"llm-rubric {value!r:.60}", "no criterion is given")

    return made


def _all_of(texts: Sequence[str]) -> str:
    return r"\A" + "".join(f"(?=.*{re.escape(text)})" for text in texts)


_BY_VALUE: dict[str, Callable[[Any, Options], Mapped]] = {
    "equals": _equals,
    "not-equals": lambda v, _: regex(rf"\A\s*{re.escape(_as_text(v))}\s*\Z", negate=True),
    "contains": lambda v, _: grader("contains", text=[_as_text(v)]),
    "icontains": lambda v, _: grader("contains", text=[_as_text(v)], ignore_case=True),
    "contains-all": lambda v, _: grader("contains", text=listed(v)),
    "icontains-all": lambda v, _: grader("contains", text=listed(v), ignore_case=True),
    "contains-any": lambda v, _: regex(either(listed(v))),
    "icontains-any": lambda v, _: regex(either(listed(v)), ignore_case=True),
    "not-contains": lambda v, _: regex(re.escape(_as_text(v)), negate=True),
    "not-icontains": lambda v, _: regex(re.escape(_as_text(v)), negate=True, ignore_case=True),
    "not-contains-any": lambda v, _: regex(either(listed(v)), negate=True),
    "not-icontains-any": lambda v, _: regex(either(listed(v)), negate=True, ignore_case=True),
    "not-contains-all": lambda v, _: regex(f"(?s){_all_of(listed(v))}", negate=True),
    "not-icontains-all": lambda v, _: regex(f"(?is){_all_of(listed(v))}", negate=True),
    "starts-with": lambda v, _: regex(rf"\A\s*{re.escape(_as_text(v))}"),
    "not-starts-with": lambda v, _: regex(rf"\A\s*{re.escape(_as_text(v))}", negate=True),
    "regex": lambda v, _: regex(_as_text(v)),
    "not-regex": lambda v, _: regex(_as_text(v), negate=True),
    "is-json": _json,
    "contains-json": _json,
    "word-count": _word_count,
    "cost": _threshold("cost_usd", 1),
    "latency": _threshold("seconds", 0.001),
    "file-exists": lambda v, _: grader("file", exists=[v] if isinstance(v, str) else v),
    "command": lambda v, _: command(v) if isinstance(v, str) else grader("command", run=v),
    "tool-used": _tools("used"),
    "not-tool-used": _tools("not_used"),
    "tool-sequence": _tools("in_order"),
    "skill-used": _skills("used"),
    "not-skill-used": _skills("not_used"),
    "llm-rubric": _rubric(),
    "not-llm-rubric": _rubric("This does not hold: {}"),
    "g-eval": _rubric(),
    "factuality": _rubric("The answer agrees in all facts with: {}"),
    "model-graded-factuality": _rubric("The answer agrees in all facts with: {}"),
}
_WITHOUT_VALUE: dict[str, Mapped] = {
    "answer-relevance": statement("The answer is relevant to what was asked."),
    "is-refusal": statement("The agent refuses to do what was asked."),
    "not-is-refusal": statement("The agent does not refuse to do what was asked."),
}
_WHY = {
    **dict.fromkeys(("similar", "classifier", "moderation", "guardrails", "pi"),
                    "it asks a model of another service"),
    **dict.fromkeys(("rouge-n", "bleu", "gleu", "meteor", "levenshtein", "perplexity",
                     "perplexity-score"), "Assay has no grader of text similarity"),
    **dict.fromkeys(("javascript", "python", "ruby"),
                    "code in a configuration is not run; put it into a file as a grader"),
    **dict.fromkeys(("select-best", "max-score"), "it compares answers with each other"),
    "webhook": "Assay calls no address that a prompt names",
}  # fmt: skip


def map_typed(kind: str, options: Mapping[str, Any]) -> Mapped:
    """Return what an assertion with a type becomes, as promptfoo and evals.json have them."""
    given = dict(options)
    value = given.get("value")
    if kind in _WITHOUT_VALUE:
        return _WITHOUT_VALUE[kind]
    if kind not in _BY_VALUE:
        shown = f"{kind} {value!r:.60}" if value not in (None, "") else kind or "an assertion"
        why = _WHY.get(kind.removeprefix("not-"), "there is no such grader in Assay")
        return unmapped(shown, why)
    if value in (None, "", []) and kind not in ("is-json", "contains-json", "cost", "latency"):
        return unmapped(kind, "it has no value")
    return _BY_VALUE[kind](value, given)
