"""How the winner of a prompt is decided: the options and variables of compare and report."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from assay.cli.output import echo_folded, find_secrets
from assay.cli.parameters import Decorator
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.compare.report import Judge

WEIGHTS = (
    "COMPARE_QUALITY",
    "COMPARE_LATENCY",
    "COMPARE_RELIABILITY",
    "COMPARE_CAPABILITY",
    "COMPARE_CONSISTENCY",
)
ITERATIONS = "COMPARE_BOOTSTRAP_ITERATIONS"
VARIABLES = (
    "COMPARE_QUALITY, COMPARE_LATENCY, COMPARE_RELIABILITY",
    "Weights of --strategy weighted for captures. Default: 0.5, 0.3, 0.2.",
    "COMPARE_CAPABILITY, COMPARE_RELIABILITY, COMPARE_CONSISTENCY",
    "Weights of --strategy weighted for trials. Default: 0.4, 0.4, 0.2.",
    ITERATIONS,
    "Resamples of the intervals of time, cost, tokens and the ranking,",
    "100 to 1000000. Default: 5000, or 1000 for the ranking.",
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.ASCII | re.IGNORECASE)

strategy_option: Decorator = click.option(
    "-s",
    "--strategy",
    type=click.Choice(["weighted", "statistical", "custom"]),
    default="weighted",
    help="How the winner of each prompt is decided. Default: weighted.",
)
judge_option: Decorator = click.option(
    "-g",
    "--grader",
    metavar="FILE",
    help="Grader file that ranks the runs, for --strategy custom.",
)


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, by options and variables."""

    name: str
    grader: str | None
    weights: Mapping[str, float]
    n_resamples: int | None

    @property
    def options(self) -> dict[str, Any]:
        """The part of CompareOptions that it decides; a judge is loaded here."""
        return {
            "strategy": self.name,
            "weights": self.weights,
            "n_resamples": self.n_resamples,
            "judge": _judge(self.grader) if self.grader else None,
        }


def chosen_strategy(name: str, grader: str | None) -> Strategy:
    """Check the options and read the variables; before any file is read."""
    if name == "custom" and not grader:
        msg = "--strategy custom needs --grader FILE."
        raise click.UsageError(msg)
    if grader and name != "custom":
        msg = f"--grader {grader} ranks the runs only with --strategy custom; add that."
        raise click.UsageError(msg)
    if grader and not Path(grader).is_file():
        msg = f"Grader not found: {Path(grader).resolve()}"
        raise InputError(msg)
    return Strategy(name=name, grader=grader, weights=_weights(), n_resamples=_iterations())


def _weights() -> dict[str, float]:
    """Read the weights from the environment: those of both kinds of run, used or not."""
    weights = {}
    for name in WEIGHTS:
        value = os.environ.get(name, "")
        # float() also takes 1_000, other alphabets' digits, nan and inf.
        if value and not _NUMBER.fullmatch(value):
            msg = f"{name}={value!r} is not a weight, which is a number of at least 0."
            raise click.UsageError(msg)
        if value.startswith("-"):  # as in the reference harness
            echo_folded(f"note: {name}={value} is negative; its default is used", err=True)
        elif value:
            weights[name] = float(value)
    return weights


def _iterations() -> int | None:
    value = os.environ.get(ITERATIONS, "")
    if value and not (value.isascii() and value.isdigit() and 100 <= int(value) <= 1_000_000):
        msg = f"{ITERATIONS}={value!r} is not a whole number from 100 to 1000000."
        raise click.UsageError(msg)
    return int(value) if value else None


def _judge(grader: str) -> "Judge":
    """Build the user's strategy; only this imports what starts programs."""
    from assay.compare.custom import custom_judge
    from assay.pipeline.stages import AskingHost

    return custom_judge(grader, AskingHost(), find_secrets().mask_text)
