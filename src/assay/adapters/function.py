"""An agent that is a function of the program that uses Assay as a library, for quick tests."""

from collections.abc import Sequence
from typing import Any

from assay import functions
from assay.adapters.reading import EventReader, StepBuilder, add_events, read_turns
from assay.errors import InputError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep
from assay.records.recording import Recording
from assay.records.spec import FunctionCall, TrialSpec


class FunctionAdapter(Adapter):
    """Has the function called in a forked process, which prints {"answer": text} at its end."""

    linger_s = 0.0

    def __init__(self, argument: str) -> None:
        """argument is the key of the function."""
        self.key = argument
        self.name, self.content_hash = functions.split_key(argument)

    def command(self, ask: Ask) -> Command:
        function = FunctionCall(key=self.key, text=ask.text, history=ask.history)
        return Command(argv=(self.name,), function=function)

    def check_trials(self, specs: Sequence[TrialSpec]) -> None:
        """Refuse what a function cannot do."""
        functions.find(self.key)
        if any(spec.is_confined for spec in specs):
            msg = f"the agent {self.name} is a Python function, which no sandbox or container holds"
            raise InputError(msg, hint="leave out sandbox, container, memory and cpus")

    def watch(self) -> Watch:
        return _Turn()

    def read(self, recording: Recording) -> Reading:
        turns = read_turns(recording, _Turn)
        return Reading(
            steps=[step for turn in turns for step in turn.steps.steps],
            outputs=[turn.output() for turn in turns],
            events=add_events(turns),
            agent=AgentInfo(adapter=functions.PLUGIN, version=functions.split_key(self.key)[1]),
        )


class _Turn(EventReader):
    def __init__(self, number: int | None = None) -> None:
        super().__init__()
        self.steps = StepBuilder(number)
        self._answer = ""

    def output(self) -> str:
        return self._answer

    def _read(self, event: dict[str, Any], t_ms: int) -> Sequence[AnyStep]:
        if not isinstance(answer := event.get("answer"), str):
            self._unknown("other")
            return ()
        self._answer, self.ended = answer, True
        return [self.steps.message(answer, t_ms)] if answer else ()
