"""The grader of ARC trials: reads what the world derived from the game's own log."""

from dataclasses import dataclass
from typing import Any

from assay.errors import PluginError
from assay.records.grade import Grade
from assay.seams import Host, Trial


@dataclass(frozen=True)
class ArcGrader:
    """Passes when the game was won; the score is the official percentage as a share of 1."""

    name: str = "arc"
    version: str = "1"
    formula: str = "official"

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Give the verdict; a game without usable baselines is scored by levels, and says so."""
        evidence = (trial.row.get("metadata") or {}).get("evidence") or {}
        if evidence.get("benchmark") != "arc":
            msg = "this trial has no evidence of an ARC game"
            raise PluginError(msg, hint="grade what `assay arc run` wrote")
        result: dict[str, Any] = evidence["result"]
        score: dict[str, Any] = evidence["scores"][self.formula]
        done, total = result["levelsCompleted"], result["levelCount"]
        percent = score.get("scorePercent")
        outcome = {
            "levelsCompleted": done,
            "levels": total,
            "stopReason": result["stopReason"],
            "scorePercent": percent,
            "formula": self.formula,
        }
        said = f"{done} of {total} levels, {result['stopReason']}"
        if percent is None:
            said += f"; no {self.formula} score ({score.get('reason')}): scored by levels"
            percent = 100 * done / total
        return Grade(
            pass_=bool(result["won"]), score=percent / 100, reasoning=said, outcome=outcome
        )
