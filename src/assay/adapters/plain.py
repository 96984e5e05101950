"""Read agents that print text and no events: each turn's lines are one message."""

from collections.abc import Sequence

from assay.adapters.steps import StepBuilder
from assay.records.capture import AgentInfo, Events
from assay.records.recording import RawLine, Recording
from assay.records.trajectory import AnyStep
from assay.seams import Reading, Watch


class _PlainWatch:
    def __init__(self) -> None:
        self.session_id: str | None = None
        self.ended = False
        self._lines: list[str] = []

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Keep the line; text has no steps of its own."""
        self._lines.append(line.text.decode("utf-8", "replace"))
        return ()

    def output(self) -> str:
        """All that was printed."""
        return "\n".join(self._lines).strip()


def watch_plain() -> Watch:
    """Follow a turn of plain text."""
    return _PlainWatch()


def read_plain(recording: Recording, name: str) -> Reading:
    """Make one message of each turn."""
    several = len(recording.turns) > 1
    steps: list[AnyStep] = []
    outputs: list[str] = []
    events = Events()
    for number, turn in enumerate(recording.turns, 1):
        lines = list(turn.lines())
        events.total += len(lines)
        events.mapped += len(lines)
        text = "\n".join(line.text.decode("utf-8", "replace") for line in lines).strip()
        outputs.append(text)
        if text:
            builder = StepBuilder(number if several else None)
            steps.append(builder.message(text, lines[0].t_ms))
    return Reading(
        steps=steps,
        outputs=outputs,
        events=events,
        agent=AgentInfo(adapter=name),
        terminal_required=False,
    )
