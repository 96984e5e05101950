"""Built-in `exact`: the answer is this text and nothing else."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from assay.graders.expected import expected_text, shown
from assay.graders.guard import PythonCode
from assay.records.grade import Grade
from assay.seams import Trial


@dataclass
class Exact(PythonCode):
    """Compares with text, or else with the row's hint or reference."""

    name: ClassVar[str] = "exact"
    can_hang: ClassVar[bool] = False
    text: str | None = None
    against: Literal["", "hint", "reference"] = ""
    trim: bool = True
    ignore_case: bool = False

    def judge(self, trial: Trial) -> Grade:
        """Compare."""
        wanted = expected_text(self.text, trial, self.against)
        same = self._plain(trial.output) == self._plain(wanted)
        said = "equal" if same else f"expected {shown(wanted)}, got {shown(trial.output)}"
        return Grade(pass_=same, score=float(same), reasoning=said)

    def _plain(self, text: str) -> str:
        text = text.strip() if self.trim else text
        return text.casefold() if self.ignore_case else text
