"""What agents and their models say to each other, without what differs from run to run.

Three rules are enough for the agents that we know: the working folder, HOME and dates have names;
ids and cache keys are numbered as they appear; and the results of tools are known by their place.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from assay.records.answers import data_of
from assay.run.secrets import Secrets

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_YEAR = r"(?:19|20)\d\d"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_DATE = re.compile(
    rf"(?<![\w.-]){_YEAR}([-/])\d\d\1\d\d(?:[T ]{_CLOCK}{_ZONE})?(?![\w])"
    rf"|(?<![\w./])\d\d?/\d\d?/{_YEAR}(?:,? {_CLOCK}(?: ?[AP]M)?)?(?!\w)"
    rf"|\b{_DAY}{_MONTH}\s+\d\d?(?:st|nd|rd|th)?,?\s+(?:{_CLOCK}\s+(?:[A-Z]+\s+)?)?{_YEAR}\b"
    rf"|\b{_DAY}\d\d?\s+{_MONTH},?\s+{_YEAR}(?:\s+{_CLOCK}(?:\s+[A-Z+0-9]+)?)?\b"
    rf"|\b{_MONTH}\s+{_YEAR}\b"
    rf"|(?<![\w:.])\d\d:\d\d:\d\d(?:\.\d+)?(?![\w:])"
)
_DIGIT = re.compile(r"\d")
_DATED = re.compile(rf"{_YEAR}|\d\d:\d\d:\d\d")
"""Stands in each date and time."""
_ID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{16,}\b"
    r"|\b(?:toolu|call|msg|resp|rs|fc|ctc|ses|prt|session|evt|chatcmpl|req|user|org|acct)"
    r"[_-](?=\w*\d)\w{8,}",
    re.IGNORECASE,
)
_ID_KEYS = frozenset({"id", "user", "safety_identifier", "prompt_cache_key", "user_prompt_id"})
_ID_ENDINGS = ("_id", "Id", "-id")
_KEY = re.compile(
    r"\bsk-[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bgithub_pat_\w{30,}|\bAIza[\w-]{30,}|\bxox[abprs]-[\w-]{10,}|\bglpat-[\w-]{16,}"
    r"|\bhf_[A-Za-z0-9]{30,}|\bya29\.[\w-]{20,}"
    # Of a token that begins again and again, no part is looked at twice.
    r"|\beyJ(?:(?!\beyJ)[\w-]){10,}+\.eyJ[\w-]{10,}\.[\w-]{10,}"
)
"""What looks like a key, whatever variable it may come from."""
_KEY_MARKS = (
    *("sk-", "AKIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "AIza", "xox"),
    *("glpat-", "hf_", "ya29.", "eyJ", "-----BEGIN"),
)
"""One of these stands in each key: most texts have none, and need no pattern."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
_SLICE = 65_536
"""Characters that are searched at once: nothing else runs in this process meanwhile."""
_BETWEEN = " \t\"',;<>(){}[]"
"""Where a long text may be cut in two if it has no lines: none of it stands in a key or an id."""
_COVERED = re.compile(r"\[redacte(?:d(?:\]\**)?)?|\bcovered\*+")
_SECRET = "<assay:secret>"
_ACCOUNT = re.compile(r"(?<=account_)[0-9a-f-]{30,}|(?<=user_)[0-9a-f]{32,}")
_FIRST = ("messages", "input", "contents")
"""Where the history is: ids are numbered there first, so that it is the same in later requests."""
_NOTICE = "<subagent_notification>"
"""Begins a message of Codex that a sub-agent has ended; it comes whenever that was."""
_BOOKKEEPING = frozenset({"metadata", "client_metadata"})
"""What a client tells about itself: ids and times, which no model reads."""
_SLUG = re.compile(r"[^A-Za-z0-9]")
_SHORT = 400
_BEFORE = 40
"""Characters of two texts that are shown before they part."""


class Names:
    """The folders of a trial, and what stands on the tape in place of their paths."""

    def __init__(self, folder: str, home: str | None, scratch: str = "") -> None:
        home = home or os.environ.get("HOME") or ""
        places = {"folder": folder, "home": home, "scratch": scratch, "tmp": f"{home}/tmp"}
        self._places = {name: path for name, path in places.items() if len(path) > 1}
        found: dict[str, str] = {}
        for name, path in self._places.items():
            for each in dict.fromkeys((path, os.path.realpath(path))):
                found.setdefault(each, f"<assay:{name}>")
                if each.count("/") > 1:  # as Claude Code names the folder of a project
                    found.setdefault(_SLUG.sub("-", each), f"<assay:{name}-name>")
        system = os.uname().release
        found[system] = "<assay:system>"
        self._names = found
        longest = sorted(found, key=len, reverse=True)
        one_of = "|".join(map(re.escape, longest))
        self._pattern = re.compile(rf"(?<![\w.-])(?:{one_of})(?![\w-])")

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield where paths stand in a text, and the name of each."""
        for found in self._pattern.finditer(text):
            yield found.start(), found.end(), self._names[found[0]]

    def hide(self, text: str) -> str:
        """Replace paths by names."""
        if not any(path in text for path in self._names):  # much faster than the pattern
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def show(self, text: str) -> str:
        """Replace names, in JSON, by the paths of this trial."""
        if "<assay:" not in text:
            return text
        for name, path in self._places.items():
            text = text.replace(f"<assay:{name}>", msgspec.json.encode(path).decode()[1:-1])
            text = text.replace(f"<assay:{name}-name>", _SLUG.sub("-", path))
        return text


class RequestKey(NamedTuple):
    """A request without what differs from run to run."""

    request: Any
    results: list[Any]
    """What tools returned, in order."""
    calls: list[str]
    """The ids of the calls that they are the results of, as the agent has them."""
    ids: dict[str, str]
    """What stands on the tape in place of each id."""


def without_keys(text: str) -> str:
    """Cover what looks like a key; the text keeps its length."""
    if not any(mark in text for mark in _KEY_MARKS):
        return text
    return _PRIVATE_KEY.sub(_cover, _in_slices(text, lambda part: _KEY.sub(_cover, part)))


def _cover(found: re.Match[str]) -> str:
    return "covered".ljust(len(found[0]), "*")[: len(found[0])]


def _in_slices(text: str, rewrite: Callable[[str], str]) -> str:
    """Rewrite a text; a long one part by part, so that other threads have their turn."""
    if len(text) <= _SLICE:
        return rewrite(text)
    made, start = [], 0
    while start < len(text):
        end = start + _SLICE
        if end < len(text):
            cuts = (text.rfind(mark, start, end) for mark in _BETWEEN)
            end = text.rfind("\n", start, end) + 1 or max(cuts) + 1 or end
        made.append(rewrite(text[start:end]))
        start = end
    return "".join(made)


def asked(body: bytes, names: Names, secrets: Secrets) -> RequestKey:
    """Return what a request asks for, in any of the four formats."""
    masked = secrets.mask_file(body).decode("utf-8", "replace")
    try:
        value = msgspec.json.decode(masked) if masked else None
        reader = _Reader(names)
        return RequestKey(reader.read(value), reader.results, reader.calls, reader.ids)
    except (msgspec.DecodeError, RecursionError):  # no JSON, or nested too deeply
        return RequestKey(_Reader(names).read(masked), [], [], {})


def without_ids(text: str, names: Names) -> str:
    """Return a text with names for folders, dates and ids."""
    found: str = _Reader(names).read(text)
    return found


class _Reader:
    """Applies the three rules to one request."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.ids: dict[str, str] = {}
        self._ids_of_result: dict[str, str] | None = None
        """Of the result that is read: what it says differs from run to run, so that its ids must
        not move the numbers of others."""
        self.results: list[Any] = []
        self.calls: list[str] = []

    def read(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return self._value(value)
        first = [name for name in _FIRST if name in value]
        order = [*first, *(name for name in sorted(value) if name not in first)]
        kept = [name for name in order if name not in _BOOKKEEPING]
        return {
            name: [self._value(one) for one in value[name] if not _is_notice(one)]
            if name in _FIRST and isinstance(value[name], list)
            else self._field(name, value[name])
            for name in kept
        }

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, dict):
            return value
        result = _result_field(value)
        made = {}
        for name, one in value.items():
            if name == result:
                made[name] = f"<assay:result {len(self.results) + 1}>"
                self.calls.append(_call_id(value) or str(len(self.results) + 1))
                self._ids_of_result = {}
                self.results.append(self._value(one))
                self._ids_of_result = None
            elif result is None or name != "is_error":
                made[self._text(name)] = self._field(name, one)
        return made

    def _field(self, name: str, value: Any) -> Any:
        is_id = name in _ID_KEYS or name.endswith(_ID_ENDINGS)
        if is_id and isinstance(value, str) and value:
            return self._id(value)
        return self._value(value)

    def _id(self, value: str) -> str:
        own = self._ids_of_result
        if own is None:
            return self.ids.setdefault(value, f"<assay:id {len(self.ids) + 1}>")
        return self.ids.get(value) or own.setdefault(value, f"<assay:own id {len(own) + 1}>")

    def _text(self, text: str) -> str:
        if len(text) < 8:
            return text
        return _in_slices(without_keys(self._names.hide(text)), self._without_ids)

    def _without_ids(self, text: str) -> str:
        if "covered" in text or "[redacte" in text:
            text = _COVERED.sub(_SECRET, text)
        if not _DIGIT.search(text):  # dates and ids have digits
            return text
        if _DATED.search(text):
            text = _DATE.sub("<assay:date>", text)
        return _ID.sub(lambda found: self._id(found[0]), text)


def _is_notice(message: Any) -> bool:
    """Whether a message is there at another place in each run."""
    parts = message.get("content") if isinstance(message, dict) else None
    first = parts[0] if isinstance(parts, list) and parts else None
    text = first.get("text") if isinstance(first, dict) else None
    return isinstance(text, str) and text.lstrip().startswith(_NOTICE)


def _result_field(value: dict[str, Any]) -> str | None:
    """Return the field that holds what a tool returned, if this is such a part of a request."""
    kind = value.get("type")
    if kind == "tool_result" or value.get("role") == "tool":
        return "content" if "content" in value else None
    if isinstance(kind, str) and kind.endswith("_output") and "output" in value:
        return "output"
    # Of Gemini: {"functionResponse": {"name": …, "response": …}}.
    return "response" if "response" in value and "name" in value else None


def _call_id(result: dict[str, Any]) -> str:
    names = ("tool_use_id", "tool_call_id", "call_id", "id")
    return next((str(result[name]) for name in names if result.get(name)), "")


def history(request: Any) -> list[Any]:
    """Return the messages of a request."""
    fields = request if isinstance(request, dict) else {}
    return next((fields[name] for name in _FIRST if isinstance(fields.get(name), list)), [])


def first_difference(old: Any, new: Any, path: str = "") -> tuple[str, str, str] | None:
    """Return where two requests differ first, and what stands there."""
    if old == new:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            place = f"{path}.{name}" if path else str(name)
            if name not in old or name not in new:
                shown = [_shown(one[name]) if name in one else "nothing" for one in (old, new)]
                return place, shown[0], shown[1]
            if found := first_difference(old[name], new[name], place):
                return found
    if isinstance(old, list) and isinstance(new, list):
        for number, pair in enumerate(zip(old, new, strict=False)):
            if found := first_difference(*pair, f"{path}[{number}]"):
                return found
        longer = max(old, new, key=len)
        more = _shown(longer[min(len(old), len(new))])
        before, now = (more, "nothing") if longer is old else ("nothing", more)
        return f"{path}[{min(len(old), len(new))}]", before, now
    return (path or "the request", *_shown_apart(old, new))


def _shown_apart(old: Any, new: Any) -> tuple[str, str]:
    """Show two values; of two long texts, from shortly before they part."""
    if not (isinstance(old, str) and isinstance(new, str)):
        return _shown(old), _shown(new)
    pairs = enumerate(zip(old, new, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
    start = max(0, same - _BEFORE)
    return _shown(old[start:]), _shown(new[start:])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def similarity(old: Any, new: Any) -> float:
    """Return how much of two requests is alike, from 0 to 1."""
    if old == new:
        return 1.0
    if isinstance(old, dict) and isinstance(new, dict):
        names = {*old, *new}
        return float(sum(similarity(old.get(n), new.get(n)) for n in names) / len(names))
    if isinstance(old, list) and isinstance(new, list):
        alike = sum(a == b for a, b in zip(old, new, strict=False))
        return float(alike) / max(len(old), len(new), 1)
    return 0.0


class TimedPiece(NamedTuple):
    """A piece of an answer."""

    ms: int
    text: str


class Pieces:
    """Cuts an answer into the events of a stream, as it comes; what is no stream is one piece."""

    def __init__(self, content_type: str) -> None:
        self._is_stream = "event-stream" in content_type
        self.n_bytes = 0
        self._rest = bytearray()
        self._pieces: list[TimedPiece] = []

    def add(self, ms: int, block: bytes) -> None:
        """Take a block as it came."""
        # What was searched before has no end in it, except for one that the block completes.
        start, at = 0, max(0, len(self._rest) - 3)
        self._rest += block
        self.n_bytes += len(block)
        if not self._is_stream:
            return
        while found := _EVENT_END.search(self._rest, at):
            event = self._rest[start : found.end()]
            self._pieces.append(TimedPiece(ms, event.decode("utf-8", "replace")))
            start = at = found.end()
        del self._rest[:start]

    def close(self, ms: int) -> list[TimedPiece]:
        """Return all pieces."""
        if self._rest:
            self._pieces.append(TimedPiece(ms, self._rest.decode("utf-8", "replace")))
        return self._pieces


_EVENT_END = re.compile(rb"\n\n|\r\n\r\n")


def for_tape(
    pieces: Sequence[TimedPiece], names: Names, secrets: Secrets, ids: Mapping[str, str]
) -> list[tuple[int, str]]:
    """Return an answer without secrets and with names for folders, and for these ids."""
    known = re.compile("|".join(map(re.escape, ids))) if ids else None

    def found(text: str) -> tuple[str, Sequence[Span]]:
        masked = without_keys(secrets.mask_text(text))
        if len(masked) != len(text):  # of a secret that is not ASCII
            return text, [(0, len(text), names.hide(masked))]
        repeated = known.finditer(masked) if known is not None else ()
        return masked, [*names.spans(masked), *((*m.span(), ids[m[0]]) for m in repeated)]

    return replace_in_answer(pieces, found)


type Span = tuple[int, int, str]
"""Where something in a text begins and ends, and what takes its place."""


def replace_in_answer(
    answer: Sequence[tuple[int, str]], find: Callable[[str], tuple[str, Sequence[Span]]]
) -> list[tuple[int, str]]:
    """Return an answer with what find replaces in its texts.

    A model writes a path or a key piece by piece: texts that go on from event to event are looked
    at as a whole. find returns a text, which may be covered in its own length, and the spans.
    """
    pieces = [TimedPiece(*piece) for piece in answer]
    parsed = [data_of(piece.text) for piece in pieces]
    texts: dict[Any, list[tuple[Callable[[str], None], str]]] = {}
    for head, value, _ in parsed:
        if head is not None:
            for key, put, text in _strings(value):
                texts.setdefault(key, []).append((put, text))
    changed = False
    for each in texts.values():
        before = [text for _, text in each]
        after = _rewritten(before, find)
        for (put, text), new in zip(each, after, strict=True):
            if new != text:
                put(new)
                changed = True
    if not changed and all(head is not None for head, _, _ in parsed):
        return [(piece.ms, piece.text) for piece in pieces]
    made: list[tuple[int, str]] = []
    for piece, (head, value, tail) in zip(pieces, parsed, strict=True):
        if head is None:
            text = "".join(_rewritten([piece.text], find))
        else:
            text = f"{head}{msgspec.json.encode(value).decode()}{tail}" if changed else piece.text
        made.append((piece.ms, text))
    return made


def whole_texts(answer: Sequence[tuple[int, str]]) -> str:
    """Return all texts of an answer, those that came in pieces as one."""
    texts: dict[Any, str] = {}
    for _, event in answer:
        head, value, _ = data_of(event)
        for key, _, text in _strings(value) if head is not None else ():
            texts[key] = texts.get(key, "") + text
    return "\n".join(texts.values())


def last_text(messages: Sequence[Any]) -> str:
    """Return the longest text of the last message, as it stands in JSON."""
    texts = [text for _, _, text in _strings(messages[-1:])]
    return msgspec.json.encode(max(texts, key=len, default="")).decode()[1:-1]


_APART = ("type", "index", "output_index", "content_index", "item_id")


def _strings(value: Any) -> Iterator[tuple[Any, Callable[[str], None], str]]:
    """Yield the texts of an event: which text each goes on with, how to replace it, and itself."""
    about = tuple(str(value.get(name)) for name in _APART) if isinstance(value, dict) else ()
    yield from _strings_below(value, about)


def _strings_below(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, Any, str]]:
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for name, one in pairs:
        part = one.get("index", name) if isinstance(one, dict) else name
        if isinstance(one, str):
            yield (*path, part), _putter(value, name), one
        else:
            yield from _strings_below(one, (*path, part))


def _putter(holder: Any, name: Any) -> Callable[[str], None]:
    def put(text: str) -> None:
        holder[name] = text

    return put


def _rewritten(
    pieces: Sequence[str], find: Callable[[str], tuple[str, Sequence[Span]]]
) -> list[str]:
    """Rewrite a text that came in pieces; what is replaced stands where it begins."""
    whole = "".join(pieces)
    masked, spans = find(whole)
    if masked == whole and not spans:
        return list(pieces)
    made, at, n_passed = [], 0, 0
    for piece in pieces:
        end, text, start = at + len(piece), "", at
        while n_passed < len(spans) and (span := spans[n_passed])[0] < end:
            first, last, name = span
            text += masked[start : max(start, first)] + (name if first >= at else "")
            start = max(start, min(last, end))
            if last > end:  # it goes on in the next piece
                break
            n_passed += 1
        made.append(text + masked[start:end])
        at = end
    return made


def model_in(request: Any, path: str) -> str:
    """Return the model that a request asks for."""
    if isinstance(request, dict) and isinstance(request.get("model"), str):
        return str(request["model"])
    found = re.search(r"/models/([^/:?]+):", path)
    return found[1] if found else ""
