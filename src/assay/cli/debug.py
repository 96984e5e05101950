"""What --debug prints for the author of an adapter: command lines, lines, what became of them."""

import shlex
from collections.abc import Iterable, Sequence

import click

from assay.adapters.text import TextTurn
from assay.plugin import Watch
from assay.records.capture import AnyStep, Events, ToolCall
from assay.records.recording import RawLine, TurnEnd
from assay.records.spec import TrialSpec
from assay.records.text import visible_line

_LONGEST = 2000


class DebugTrace:
    """Prints the trace of trials to stderr, each line with the id of its prompt."""

    def __init__(self) -> None:
        self._seen: dict[str, _WatchState] = {}

    def started(
        self, spec: TrialSpec, argv: Sequence[str], cwd: str, env_names: Iterable[str]
    ) -> None:
        _say(spec, f"starts: {_shown(shlex.join(argv))}")
        confined = spec.surroundings.confined_in
        _say(spec, f"in: {cwd}{f', confined ({confined})' if confined else ''}")
        _say(spec, f"with the variables (names only): {' '.join(sorted(env_names))}")

    def took(self, spec: TrialSpec, watch: Watch, line: RawLine, steps: Sequence[AnyStep]) -> None:
        before = self._seen.get(spec.folder)
        if before is None or before.watch is not watch:
            before = _WatchState()
        now = self._seen[spec.folder] = _WatchState(watch)
        if line.text.strip():
            _say(spec, f"{line.t_ms} ms: {_shown(line.text.decode('utf-8', 'replace'))}")
            _say(spec, f"  -> {', '.join(_outcome_of(line, steps, before, now))}")

    def ended(
        self, spec: TrialSpec, watch: Watch, end: TurnEnd, answer: str, stderr: bytes
    ) -> None:
        self._seen.pop(spec.folder, None)
        for line in stderr.decode("utf-8", "replace").splitlines():
            _say(spec, f"stderr: {_shown(line)}")
        if watch.events is not None:
            unknown = ", ".join(
                f"{visible_line(kind)} x{n}" for kind, n in sorted(watch.events.unknown.items())
            )
            parts = [f"{watch.events.mapped} of {watch.events.total} lines were understood"]
            parts += [f"unmatched: {unknown}"] if unknown else []
            parts += [f"{watch.events.unparsed} not JSON"] if watch.events.unparsed else []
            _say(spec, "; ".join(parts))
        _say(spec, f"ended: {_end(end)}; answer: {_shown(answer) or 'none'}")


class _WatchState:
    """What a watch had found after a line; without a watch, before the first one."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch
        events = (watch.events if watch is not None else None) or Events()
        self.unknown = dict(events.unknown)
        self.unparsed, self.mapped = events.unparsed, events.mapped
        self.ended = watch is not None and watch.ended
        self.session_id = watch.session_id if watch is not None else None
        self.result = watch.result if watch is not None else None


def _outcome_of(
    line: RawLine, steps: Sequence[AnyStep], before: _WatchState, now: _WatchState
) -> list[str]:
    """Say what became of a line."""
    fate = [_step_text(step) for step in steps]
    if line.oversized:
        fate.append("too long to be read")
    if now.unparsed > before.unparsed:
        fate.append("not JSON: left out")
    fate += [
        f"UNMATCHED: no rule takes an event of type {visible_line(kind)}"
        for kind, n in now.unknown.items()
        if n > before.unknown.get(kind, 0)
    ]
    if now.session_id != before.session_id:
        fate.append(f"session id {visible_line(now.session_id or 'none')}")
    if now.result is not None and before.result is None:
        fate.append("the result")
    if now.ended and not before.ended:
        fate.append("the end of the turn")
    if not fate and isinstance(now.watch, TextTurn):
        return ["part of the answer"]
    if not fate:
        return ["known, and no step" if now.mapped > before.mapped else "left out"]
    return fate


def _step_text(step: AnyStep) -> str:
    if isinstance(step, ToolCall):
        return f"tool_call {visible_line(step.name)} ({visible_line(step.status)})"
    return str(step.__struct_config__.tag)


def _end(end: TurnEnd) -> str:
    reasons = {
        "timed out": end.timed_out,
        "stalled": end.stalled,
        "wrote more than it may": end.over_limit,
        "killed because it lived on after its result": end.lingered,
        f"signal {end.signal}": end.signal is not None,
    }
    why = [text for text, is_true in reasons.items() if is_true]
    code = "no exit code" if end.exit_code is None else f"exit code {end.exit_code}"
    return ", ".join([code, *why, f"after {end.end_ms - end.start_ms} ms"])


def _shown(text: str) -> str:
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text) - _LONGEST} more characters)"
    return visible_line(text)


def _say(spec: TrialSpec, text: str) -> None:
    name = spec.prompt.id if spec.number == 1 else f"{spec.prompt.id} #{spec.number}"
    click.echo(f"[{visible_line(name)}] {text}", err=True)
