"""An experiment that was started for somebody else, within a budget that the user set."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from assay.errors import AssayError, UsageError
from assay.library.ab import ExperimentVerdict, conduct_experiment, planned_experiment
from assay.library.worker import Progress, Reader, send_errors
from assay.records.text import counted_noun
from assay.report.text import money_text
from assay.run.background import Background

_NOT_STARTED = ("shell", "simple", "acp", "declared")
"""Agents that are any command line: whoever asks would choose what is run here."""


class StartedExperiment:
    """Runs one experiment after another, and counts what they have cost."""

    def __init__(self, budget_usd: float, root: Path, jobs: int) -> None:
        self._left_usd = budget_usd
        self._root, self._jobs = root, jobs
        self._name = ""
        self._reader: Reader | None = None
        self._background: Background | None = None
        self._reserved_usd = 0.0
        self._progress: Progress | None = None
        self._earlier_usd = 0.0
        self._is_priced = True
        self._ended = ""

    def start(
        self,
        prompts: str,
        *,
        agent: str | None,
        treatment: Mapping[str, str] | None,
        graders: Iterable[str],
        k: int | None,
        budget_usd: float | None,
    ) -> None:
        """Start an experiment; refuse a second one, and one for which nothing is left."""
        self._follow()
        if self._background is not None:
            msg = f"the experiment {self._name} is running"
            raise UsageError(msg, hint="ask for its verdict, and start another when it has ended")
        if self._left_usd <= 0:
            msg = "nothing is left of the budget"
            raise UsageError(msg, hint="the user sets it with `assay mcp --budget`")
        for one in (agent, (treatment or {}).get("agent")):
            if one and one.partition(":")[0].partition(",")[0] in _NOT_STARTED:
                msg = f"the agent {one!r} is a command line of its own"
                raise UsageError(msg, hint="put it into an experiment file, and give that")
        most_usd = min(budget_usd or self._left_usd, self._left_usd)
        experiment, options = planned_experiment(
            prompts, agent, treatment, list(graders), k, root=self._root, jobs=self._jobs
        )
        most_usd = min(most_usd, experiment.budget or most_usd)
        experiment = msgspec.structs.replace(experiment, budget=most_usd)
        self._name, self._reserved_usd, self._ended = experiment.name or "", most_usd, ""
        self._progress, self._earlier_usd, self._is_priced = None, 0.0, True
        self._reader = Reader("", self._note)
        work = partial(conduct_experiment, experiment, options)
        self._background = Background(partial(send_errors, work))

    def lines(self, name: str = "") -> Iterator[str]:
        """Say how far the experiment is, or how it ended; and what is left of the budget."""
        self._follow()
        if name and name != self._name:
            return
        if self._background is not None:
            done = self._progress
            yield (
                f"running: {self._name}: {done.n_done} of {counted_noun(done.n_total, 'trial')}, "
                f"{money_text(self._spent_usd)} so far"
                if done
                else f"running: {self._name}: it has just begun"
            )
        elif self._ended:
            yield f"ended: {self._name}: {self._ended}"
        if not name:
            held = self._reserved_usd if self._background is not None else 0.0
            left = money_text(max(0.0, self._left_usd - held))
            yield f"left of the budget for experiments: {left}"

    def close(self) -> None:
        """Stop what is running; what has finished is kept."""
        if self._background is not None:
            self._background.close()
            self._background = None

    def _note(self, progress: Progress) -> None:
        if self._progress is not None and progress.cost_usd < self._progress.cost_usd:
            self._earlier_usd += self._progress.cost_usd  # of a part that ran before this one
        self._progress = progress
        if progress.trial is not None and progress.trial.usage.cost_usd is None:
            self._is_priced = False

    def _follow(self) -> None:
        """Take what the experiment has told meanwhile."""
        reader, background = self._reader, self._background
        if reader is None or background is None:
            return
        try:
            while (message := background.receive_now()) is not None:
                reader.take(message, background)
                reader.rows.clear()
                if reader.is_over:
                    folder, verdict = reader.value
                    found = ExperimentVerdict(Path(folder), msgspec.json.decode(verdict))
                    self._end(found.sentence)
                    return
            if background.is_over:
                reader.take(None, background)
        except AssayError as error:
            self._end(f"{error.message}. {error.hint}".strip())

    def _end(self, words: str) -> None:
        self.close()
        self._ended = words
        # A trial of unknown cost may have cost all that it was allowed to.
        self._left_usd -= self._spent_usd if self._is_priced else self._reserved_usd

    @property
    def _spent_usd(self) -> float:
        return self._earlier_usd + (self._progress.cost_usd if self._progress else 0.0)
