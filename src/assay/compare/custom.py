"""A user's own strategy: a program or Python file that ranks the runs of each prompt."""

import asyncio
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay import plugins
from assay.compare.head_to_head import CustomJudgement
from assay.compare.pairs import Aligned
from assay.errors import InputError, PluginError
from assay.plugin import Host
from assay.records.journal import RowKey
from assay.records.rows import open_rows
from assay.records.trial.files import holds_trials

_EXPORTS = ("grade", "default", "compare")
_FIELDS = ("id", "input", "hint", "metadata", "runs")
type Ask = Callable[[dict[str, Any]], Any]


class _Place(msgspec.Struct):
    run: str
    rank: int
    score: float


class _Ranking(msgspec.Struct):
    rankings: list[_Place]
    reasoning: str | None = None


def custom_judge(
    path: str, host: Host, mask: Callable[[str], str], timeout_s: float = 60.0
) -> Callable[[Aligned], CustomJudgement]:
    """Make a strategy of a file with a grade (or compare) function, or of a program.

    mask hides the secrets of our environment in what it says.
    """
    file = Path(path)
    if not file.is_file():
        msg = f"Grader not found: {file.resolve()}"
        raise InputError(msg)
    ask = _module(file, host, timeout_s) or _python(file) or _program(file, host, timeout_s)

    def rank(aligned: Aligned) -> CustomJudgement:
        totals = [np.full(len(run.ids), np.nan) for run in aligned.runs]
        labels = {run.label: number for number, run in enumerate(aligned.runs)}
        reasoning = {}
        for prompt, question in _questions(aligned):
            ranking = _answer(ask(question), question)
            for place, value in _totals(ranking.rankings).items():
                where = aligned.where[prompt, labels[place]]
                totals[labels[place]][where] = value
            if ranking.reasoning:
                # A Python function may return half a surrogate pair, which no JSON can hold.
                text = ranking.reasoning.encode("utf-8", "replace").decode()
                reasoning[prompt] = mask(text)
        return CustomJudgement(file.name, totals, reasoning)

    return rank


def _questions(aligned: Aligned) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of one prompt at a time, from where they stand in their files."""
    keys, rows_of = msgspec.json.Decoder(RowKey), msgspec.json.Decoder(dict[str, Any])
    with ExitStack() as stack:
        files = [stack.enter_context(open_rows(run.path)) for run in aligned.runs]
        # Of rows with one id the last counts: it is the last to be put here.
        spots = [{row.id: spot for spot, row in file.placed_rows(keys)} for file in files]
        for prompt in aligned.in_several.tolist():
            rows = {
                run.label: files[n].row_at(spots[n][aligned.ids[prompt]], rows_of)
                for n, run in enumerate(aligned.runs)
                if aligned.where[prompt, n] >= 0
            }
            first = next(iter(rows.values()))
            question = {"id": first["id"], "input": first["input"]}
            question |= {k: first[k] for k in ("hint", "metadata") if k in first}
            yield prompt, question | {"runs": {label: _run(row) for label, row in rows.items()}}


def _run(row: dict[str, Any]) -> dict[str, Any]:
    if holds_trials(row):
        names = ("passRate", "passAtK", "passExpK", "k", "trials")
        return {name: row[name] for name in names if name in row}
    answer = {name: row[name] for name in ("output", "trajectory", "score") if name in row}
    return answer | {
        "duration": row.get("timing", {}).get("total"),
        "toolErrors": row.get("toolErrors", False),
    }


def _answer(value: Any, question: dict[str, Any]) -> _Ranking:
    """Check what the grader answered."""
    where = f"the comparison grader's answer for {question['id']!r}"
    try:
        answer = msgspec.convert(value, _Ranking)
    except (msgspec.ValidationError, TypeError) as error:
        msg = f"{where} is not a ranking: {error}"
        raise PluginError(msg, hint='{"rankings": [{"run", "rank", "score"}]}') from error
    ranking = answer.rankings
    names = [place.run for place in ranking]
    wrong = [name for name in names if name not in question["runs"] or names.count(name) > 1]
    if wrong:
        msg = f"{where} ranks {wrong[0]!r}, which is not a run of this prompt, or ranks it twice"
        raise PluginError(msg, hint=f"the runs are: {', '.join(question['runs'])}")
    if not all(isfinite(place.score) and place.rank >= 1 for place in ranking):
        msg = f"{where} has a rank below 1 or a score that is not a number"
        raise PluginError(msg)
    return answer


def _totals(ranking: list[_Place]) -> dict[str, float]:
    """Return a total for each run: its score, unless the ranks contradict the scores."""
    ordered = sorted(ranking, key=lambda place: place.rank)
    agree = all(a.score >= b.score for a, b in pairwise(ordered))
    return {place.run: place.score if agree else 1.0 / place.rank for place in ranking}


def _module(file: Path, host: Host, timeout_s: float) -> Ask | None:
    """Ask a JavaScript or TypeScript module, which the grader of that kind runs."""
    if not plugins.is_module(file):
        return None
    module: Any = plugins.grader(plugins.grader_ref(str(file), timeout_s))
    module.load(host)

    def ask(question: dict[str, Any]) -> Any:
        try:
            return module.ask(question, host)
        except PluginError as error:
            msg = f"the comparison grader {file} failed on {question['id']!r}: {error.message}"
            raise PluginError(msg) from error

    return ask


def _python(file: Path) -> Ask | None:
    if file.suffix != ".py":
        return None
    source = file.read_text(encoding="utf-8", errors="replace")
    # The text is searched first: a file without these functions is a program, not a module.
    if not any(f"def {name}(" in source for name in _EXPORTS):
        return None
    found = _guarded(lambda: runpy.run_path(str(file), run_name="assay_comparison_grader"), file)
    function = next((found[name] for name in _EXPORTS if callable(found.get(name))), None)
    if function is None:
        return None

    def call(question: dict[str, Any]) -> Any:
        answer = function(**_arguments(function, question))
        return asyncio.run(answer) if inspect.isawaitable(answer) else answer  # type: ignore[arg-type]

    return lambda question: _guarded(lambda: call(question), file, question["id"])


def _arguments(function: Callable[..., Any], question: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments the function names; a single one of another name gets everything."""
    accepted = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        return question
    if len(accepted) == 1 and (name := next(iter(accepted))) not in _FIELDS:
        return {name: question}
    required = [name for name, p in accepted.items() if p.default is p.empty]
    return {name: question.get(name) for name in accepted if name in question or name in required}


def _guarded(work: Callable[[], Any], file: Path, prompt_id: str | None = None) -> Any:
    """Run the user's code. What it prints goes to stderr; what it raises becomes a message."""
    where = "" if prompt_id is None else f" on {prompt_id!r}"
    try:
        with redirect_stdout(sys.stderr):
            return work()
    except (Exception, SystemExit) as error:
        msg = f"the comparison grader {file} failed{where}: {type(error).__name__}: {error}"
        raise PluginError(msg) from error


def _program(file: Path, host: Host, timeout_s: float) -> Ask:
    command = [str(file.resolve())]
    if file.suffix == ".py" and not os.access(file, os.X_OK):
        command = [sys.executable, *command]

    def ask(question: dict[str, Any]) -> Any:
        done = host.run(command, stdin=msgspec.json.encode(question), timeout_s=timeout_s)
        if done.timed_out or done.exit_code != 0:
            why = "gave no answer in time" if done.timed_out else f"exited with {done.exit_code}"
            stderr_end = done.stderr.decode("utf-8", "replace").strip()[-300:]
            msg = f"the comparison grader {why} on {question['id']!r}: {stderr_end}"
            raise PluginError(msg)
        try:
            return msgspec.json.decode(done.stdout)
        except msgspec.DecodeError as error:
            msg = f"the comparison grader's answer for {question['id']!r} is not JSON"
            raise PluginError(msg) from error

    return ask
