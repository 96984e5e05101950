"""Detectors: what went wrong in a trial, found in its steps, each with the steps that show it.

A detector is a function of one trial without a model, a clock or a random number. docs/explain.md
says what each one means and how often it is right; benchmarks/explain measures that.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from assay.compare.calls import Call, commands_in, cut, ends_of, program_words, without_numbers
from assay.compare.case import (
    WRITTEN,
    Case,
    at_end,
    finding,
    may_change,
    only_writes,
    quoted,
)
from assay.compare.hacks import edited_tests, leak, web_answer
from assay.records.capture import Message
from assay.records.explanation import DETECTORS, Detector, Finding
from assay.records.trial.views import ExplainedRow

_REPEATED = 3
_NO_NEWS = 6
_MANY_RETRIES = 3


def findings(row: ExplainedRow, wanted: Sequence[Detector] = tuple(DETECTORS)) -> list[Finding]:
    """Return what these detectors find in a trial, the most telling first."""
    case = Case(row)
    found = ((name, _DETECTORS[name](case)) for name in wanted)
    return [one for _, one in found if one is not None]


# Going round in circles.


def _loop(case: Case) -> Finding | None:
    if re.search(r"\bloop detected\b", case.ending, re.IGNORECASE) and case.calls:
        return finding("loop", case.calls[-1:], error=case.ending)
    for same in _repeats(case, lambda call: call.worked, lambda call: call.result):
        last = same[-1]
        later = (call for call in case.calls if call.number > last.number)
        if all(call.result == last.result for call in later if call.same_as == last.same_as):
            return finding("loop", same)  # otherwise it waited for something, which came
    return None


def _repeated_failure(case: Case) -> Finding | None:
    for same in _repeats(case, lambda call: call.failed, lambda call: without_numbers(call.error)):
        later = (call for call in case.calls if call.number > same[-1].number)
        if not any(call.worked for call in later if call.same_as == same[-1].same_as):
            return finding("repeated_failure", same)
    return None


def _repeats(
    case: Case, counts: Callable[[Call], bool], result: Callable[[Call], str]
) -> Iterator[list[Call]]:
    """Yield calls that were made three times with the same result, and nothing changed between."""
    seen: dict[tuple[tuple[str, str], str], list[Call]] = {}
    for call in case.calls:
        key = (call.same_as, result(call))
        if call.worked and may_change(call) and key not in seen:
            seen.clear()
        if counts(call):
            same = seen.setdefault(key, [])
            same.append(call)
            if len(same) == _REPEATED:
                yield same


def _no_progress(case: Case) -> Finding | None:
    seen: set[tuple[tuple[str, str], str]] = set()
    row: list[Call] = []
    for call in case.calls:
        key = (call.same_as, call.result)
        if call.worked and may_change(call) and key not in seen:
            seen.clear()
        row = [*row, call] if key in seen else []
        seen.add(key)
        if len(row) >= _NO_NEWS and len({call.same_as for call in row}) > 1:
            return finding("no_progress", row)
    return None


# The end came too early.

_GIVES_UP = re.compile(
    r"\b(?:i|we)(?:'m| am|'ve| have|'ll| will)? (?:giv(?:e|ing)|gave) up\b|"
    r"^\W*(?:gave|giving) up\b|"
    r"\b(?:unable to|can(?:not|'t)|could(?: not|n't)) (?:complete|finish|continue|proceed)\b|"
    r"\bi(?:'ll| will) stop here\b",
    re.IGNORECASE,
)
_FAILS_TO = re.compile(
    r"\b(?:unable to|can(?:not|'t)|could(?: not|n't)) "
    r"(?:solve|fix|resolve|implement|do (?:this|it|that)|get (?:it|this|\w+) to|"
    r"make (?:it|this) work)\b",
    re.IGNORECASE,
)
"""The same only from an agent that has changed nothing: others say this of a part of their work."""


def _gave_up(case: Case) -> Finding | None:
    if not case.ended_itself:
        return None
    words = case.final_message.replace("’", "'")
    said = _GIVES_UP.search(words) or (None if case.edits else _FAILS_TO.search(words))
    if said:
        return _said(case, "gave_up", said)
    over = [call for call in case.calls if call.is_over]
    if not over or any(call.worked for call in over):
        return None
    others = [call for call in over if not (is_missing(call) or is_denied(call))]
    return finding("gave_up", others[-1:]) if others else None


def _said(case: Case, detector: Detector, found: re.Match[str]) -> Finding:
    """Quote the sentence of the last words in which something was said."""
    text = case.final_message
    start = max(text.rfind(end, 0, found.start()) for end in (". ", "\n", "! ")) + 1
    ends = [at for end in (". ", "\n", "! ") if (at := text.find(end, found.end())) >= 0]
    sentence = text[start : min(ends) + 1 if ends else len(text)]
    spoken = [
        n
        for n, step in enumerate(case.row.trajectory, 1)
        if isinstance(step, Message) and found[0] in step.content.replace("’", "'")
    ]
    return Finding(detector=detector, steps=tuple(spoken[-1:]), quotes=(cut(sentence.strip()),))


def _ran_out(case: Case) -> Finding | None:
    worked = bool(case.row.trajectory)
    is_limit = case.cause == "agent_limit" and not (case.row.failure and case.row.failure.answered)
    if not worked or not (case.cause == "agent_timeout" or is_limit) or _context(case):
        return None
    if re.search(r"\bloop detected\b", case.ending, re.IGNORECASE):
        return None
    return at_end("ran_out", case, case.ending)


# What surrounds the agent.

_MISSING = re.compile(
    r"no such tool available|unsupported call|\btool \"?'?[\w.-]+'?\"? (?:was )?not found|"
    r"unavailable tool|unknown tool|tool [\"'`][\w.-]+[\"'`] does not exist",
    re.IGNORECASE,
)
_MISSING_PROGRAM = re.compile(
    r"^(?:[\w/.-]*sh|env|/[\w/.-]+)(?![\w/.-])(?::? line)?[ :\d]*: ?[‘'\"]?([\w.+-]+)[’'\"]?: "
    r"(?:(?:command )?not found|No such file or directory)$|^([\w.+-]+): command not found$|"
    r"^'?([\w.+-]+)'? is not recognized as an internal or external command",
    re.IGNORECASE | re.MULTILINE,
)
_NO_PROGRAM = 127
"""Exit code of a shell that does not find a program."""
_DENIED = re.compile(
    r"permission denied|operation not permitted|\beacces\b|\beperm\b|(?:needs|requires) approval|"
    r"rejected permission|read-only file system|permission to use|denied by (?:the )?(?:user|"
    r"policy|rule|permission)|"
    r"haven't granted|not allowed to|permission rule|access is denied",
    re.IGNORECASE,
)
_STANDS_FOR = {
    "rg": ("grep",),
    "ag": ("grep",),
    "fd": ("find",),
    "tree": ("ls", "find"),
    "bat": ("cat",),
    "jq": ("python3", "python", "node", "grep", "sed", "awk"),
    "xxd": ("od", "hexdump", "python3"),
    "python": ("python3", "uv"),
    "pip": ("pip3", "uv"),
    "docker": ("podman",),
    "wget": ("curl",),
    "curl": ("wget",),
    "pytest": ("unittest",),
}
"""Programs that do what a missing one would have done."""
_SEARCHES = frozenset({"find", "grep", "rg", "ls", "du", "tree", "fd"})
"""Programs that go on after a folder that they may not read."""


def is_missing(call: Call) -> bool:
    """Whether a call failed because the tool, or the program, is not there."""
    if not call.failed:
        return False
    is_127 = call.kind == "shell" and (call.step.exit_code or _NO_PROGRAM) == _NO_PROGRAM
    patterns = (_MISSING, _MISSING_PROGRAM) if is_127 else (_MISSING,)
    return any(pattern.search(_all_output(call)) for pattern in patterns)


def is_denied(call: Call) -> bool:
    """Whether a call failed because it was not allowed."""
    if not call.failed:
        return False
    if call.kind == "shell":
        is_search = program_words(call.command)[:1] and program_words(call.command)[0] in _SEARCHES
        return not is_search and bool(_DENIED.search(call.error))
    return bool(_DENIED.search(_all_output(call)))


def _all_output(call: Call) -> str:
    return ends_of(f"{call.step.error or ''}\n{call.output}")


def _tool_missing(case: Case) -> Finding | None:
    for call in case.calls:
        if is_missing(call) and not _found_later(case, call):
            return finding("tool_missing", [call])
    return None


def _found_later(case: Case, missing: Call) -> bool:
    """Whether a later call worked that has what was missing, or something that does the same."""
    later = [call for call in case.calls if call.number > missing.number and call.worked]
    found = _MISSING_PROGRAM.search(_all_output(missing)) if missing.kind == "shell" else None
    if found is None:
        return any(call.kind == missing.kind != "other" for call in later) or any(
            call.step.name == missing.step.name for call in later
        )
    name = next(filter(None, found.groups()))
    words = {word for call in later for word in re.split(r"[\s|;&()=/]+", call.command)}
    return bool(words & {name, f"{name}3", *_STANDS_FOR.get(name, ())})


def _permission(case: Case) -> Finding | None:
    for call in case.calls:
        if is_denied(call) and not _done_later(case, call):
            return finding("permission", [call])
    return None


def _done_later(case: Case, denied: Call) -> bool:
    """Whether a later call did the same: to the same file, or with the same program."""
    later = [call for call in case.calls if call.number > denied.number and call.worked]
    names = {path.rpartition("/")[2] for path in denied.paths}
    if names:
        return any(any(name in call.target for name in names) for call in later)
    return any(call.coarse_key == denied.coarse_key for call in later)


_OVERFLOW = re.compile(
    r"prompt is too long|context (?:length|window|limit)|maximum context|context_length_exceeded|"
    r"input (?:is )?too long|too many (?:input )?tokens|"
    r"exceeds? the (?:model's )?(?:maximum )?(?:number of )?(?:context|token)",
    re.IGNORECASE,
)


def _context(case: Case) -> Finding | None:
    if case.ending and _OVERFLOW.search(case.ending):
        return at_end("context", case, case.ending)
    return None


def _provider(case: Case) -> Finding | None:
    if case.cause in ("provider", "auth"):
        return at_end("provider", case, case.ending)
    retries = case.row.provider_retries
    if case.cause == "agent_timeout" and isinstance(retries, int) and retries >= _MANY_RETRIES:
        return at_end("provider", case, f"{retries} retries of the provider; {case.ending}")
    return None


# What was said, and what was done for it.

_TESTS = (
    r"(?:(?:all|both|unit|integration|the|existing|new|\d+)\s+){0,4}"
    r"(?:tests?|test suite|test cases?|specs?)"
)
_CLAIM = re.compile(
    rf"\b{_TESTS}\b(?: (?:in|for|of) [\w./`-]+)?(?: (?:are|is|now|all|still|also|should be))* "
    r"(?:pass(?:es|ed|ing)?|green|succeed(?:s|ed)?)\b|"
    r"\b[1-9]\d* passed\b(?!, [1-9]\d* failed)|"
    r"\b(?:ran|run|executed) (?:all )?(?:the )?(?:unit )?tests?\b[^.\n]{0,40}\b(?:pass(?:es|ed)?|"
    r"green|success\w*)",
    re.IGNORECASE,
)
_NOT_CLAIMED = re.compile(
    r"\b(?:should|would|will|could|might|may|must|need(?:s)? to|so that|until|unless|if|whether|"
    r"make|let|not|n't|"
    r"never|cannot|expect(?:ed)?|once|ensure|to have|to make|before)\b[^.\n;]*$",
    re.IGNORECASE,
)
_RUNS_ANYTHING = re.compile(r"^(?:make|just|bazel|mvn|gradlew?|rake|nx|invoke)\b|\.sh\b|\bassert\b")
"""Commands that may run tests without saying so."""
_TEST_COMMAND = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|jest|vitest|mocha|ava|ctest|rspec|phpunit|doctest|"
    r"nosetests|behave|bats|"
    r"cypress|playwright)\b|\b(?:test|tests|check|checks|spec|specs|verify|run_tests|runtests|"
    r"ci)\b|test_\w|(?<=\w)_tests?\b|"
    r"\btest\w*\.(?:py|js|ts|sh|rb|mjs)\b",
    re.IGNORECASE,
)


def _false_claim(case: Case) -> Finding | None:
    words = case.final_message
    for said in _CLAIM.finditer(words):
        before = words[max(0, said.start() - 80) : said.start()]
        if _NOT_CLAIMED.search(before) or "should be" in said[0].lower():
            continue
        runs = [call for call in case.calls if runs_tests(call)]
        if any(call.worked for call in runs):
            return None
        claim = _said(case, "false_claim", said)
        ran = tuple(runs[-1:])
        return Finding(
            detector="false_claim",
            steps=(*(call.number for call in ran), *claim.steps),
            quotes=(*(quoted(call) for call in ran), *claim.quotes),
            call=ran[0].coarse_key if ran else "",
        )
    return None


_ONLY_LOOKS = re.compile(
    r"^(?:cat|ls|head|tail|less|sed|grep|rg|find|git|echo|mkdir|touch|cp|mv|rm|wc|cd)\b"
)


def runs_tests(call: Call) -> bool:
    """Whether a call may run tests: a program or a tool that has tests or checks in its name."""
    if call.kind == "shell":
        parts = [part for part in commands_in(call.command) if not _ONLY_LOOKS.match(part)]
        return any(
            _RUNS_ANYTHING.search(part) or _TEST_COMMAND.search(part.split("|")[0])
            for part in parts
        )
    named = call.kind in ("other", "mcp", "agent")
    return named and bool(
        _TEST_COMMAND.search(f"{call.step.name} {call.target} {call.output[:500]}")
    )


_TEXT_FILE = re.compile(r"(?:\.(?:md|rst|txt|adoc|log|csv)|(?:^|/)(?:LICENSE|CHANGELOG|NOTES))$")


def _unchecked(case: Case) -> Finding | None:
    edits = [call for call in case.edits if not _writes_text(call)]
    if not case.ended_itself or not edits:
        return None
    last = edits[-1]
    if last.kind == "shell" and not only_writes(last):
        return None  # it looked at its work in the same command line
    later = [call for call in case.calls if call.number > last.number and call not in case.edits]
    if any(not is_missing(call) and not is_denied(call) for call in later):
        return None
    return finding("unchecked", [last])


def _writes_text(call: Call) -> bool:
    """Whether a call changes only files that nothing runs."""
    paths = call.paths or WRITTEN.findall(call.command)
    return bool(paths) and all(_TEXT_FILE.search(path) for path in paths)


_DETECTORS: dict[Detector, Callable[[Case], Finding | None]] = {
    "edited_tests": edited_tests,
    "leak": leak,
    "web_answer": web_answer,
    "context": _context,
    "provider": _provider,
    "permission": _permission,
    "tool_missing": _tool_missing,
    "loop": _loop,
    "repeated_failure": _repeated_failure,
    "no_progress": _no_progress,
    "ran_out": _ran_out,
    "false_claim": _false_claim,
    "gave_up": _gave_up,
    "unchecked": _unchecked,
}
