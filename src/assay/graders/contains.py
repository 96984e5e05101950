"""Built-in `contains`: the answer has these texts in it."""

from dataclasses import dataclass, field
from typing import ClassVar

from assay.errors import InputError
from assay.graders.expected import expected_text, shown
from assay.graders.guard import PythonCode
from assay.records.grade import Grade
from assay.seams import Trial


@dataclass
class Contains(PythonCode):
    """Passes when all texts are there; the score is the share that is. None given: the hint."""

    name: ClassVar[str] = "contains"
    can_hang: ClassVar[bool] = False
    text: list[str] = field(default_factory=list)
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if "" in self.text:
            msg = "contains: an empty text is in every answer"
            raise InputError(msg, hint="for example: -g contains:Paris")

    def judge(self, trial: Trial) -> Grade:
        """Look for each text."""
        wanted = self.text or [expected_text(None, trial, "")]
        output = self._plain(trial.output)
        missing = [text for text in wanted if self._plain(text) not in output]
        said = f"missing {', '.join(map(shown, missing))}" if missing else "all found"
        return Grade(pass_=not missing, score=1 - len(missing) / len(wanted), reasoning=said)

    def _plain(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text
