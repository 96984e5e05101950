"""Built-in `limits`: what a trial may cost and how long it may take."""

from dataclasses import dataclass
from typing import Any, ClassVar

from assay.errors import InputError, PluginError
from assay.graders.python_code import PythonCode
from assay.plugin import Trial
from assay.records.capture import Grade


@dataclass
class Limits(PythonCode):
    """Passes when no limit is exceeded; the score is the share of limits that hold.

    What the agent did not say, such as its cost, is not measured and never taken for zero.
    """

    name = "limits"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes
    can_hang: ClassVar[bool] = False
    sees = None  # type: ignore[assignment]  # the whole row
    cost_usd: float | None = None
    seconds: float | None = None
    tokens: int | None = None
    """Input and output together."""

    def __post_init__(self) -> None:
        given = [limit for limit in (self.cost_usd, self.seconds, self.tokens) if limit is not None]
        if not given or min(given) < 0:
            msg = "limits: give cost_usd, seconds or tokens, none of them negative"
            raise InputError(msg, hint="for example: -g limits:cost_usd=0.05,seconds=60")

    def judge(self, trial: Trial) -> Grade:
        wrong: list[str] = []
        limits = {"cost_usd": self.cost_usd, "seconds": self.seconds, "tokens": self.tokens}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        for name, limit in given.items():
            used = _used(name, trial.row)
            if used > limit:
                wrong.append(f"{name} is {used:g}, and at most {limit:g} is allowed")
        score = 1 - len(wrong) / len(given)
        return Grade(pass_=not wrong, score=score, reasoning="; ".join(wrong) or "within limits")


def _used(name: str, row: dict[str, Any]) -> float:
    """Return how much of something a trial has used."""
    usage, timing = row.get("usage") or {}, row.get("timing") or {}
    if name == "seconds":
        total = timing.get("total")
        used = total / 1000 if isinstance(total, int | float) else None
    elif name == "cost_usd":
        used = usage.get("costUsd")
    else:
        parts = [usage.get(key) for key in ("inputTokens", "outputTokens")]
        used = sum(part for part in parts if part) if any(parts) else None
    if not isinstance(used, int | float):
        msg = f"the row does not say how much it used ({name})"
        raise PluginError(msg)
    return float(used)
