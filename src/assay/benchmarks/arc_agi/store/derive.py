"""Reads a run folder back into what was played, from its logs; the scores follow from that."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks.arc_agi.log.reader import read_log
from assay.benchmarks.arc_agi.log.result import derive_result
from assay.benchmarks.arc_agi.problems import StoreProblem
from assay.benchmarks.arc_agi.scoring.score import OFFICIAL
from assay.benchmarks.arc_agi.store.build import Played, build_card, build_environment_scores
from assay.benchmarks.arc_agi.store.card import Scorecard
from assay.benchmarks.arc_agi.store.files import write_json
from assay.benchmarks.arc_agi.store.layout import CARD, SCORES
from assay.benchmarks.arc_agi.store.meta import RECORDED, RunMeta
from assay.records.failure import Failure
from assay.records.jsonl import decode_row, read_lines

RESULTS, LOGS, PLAYED = "results.jsonl", "logs", "played.json"


class _Usage(msgspec.Struct, rename="camel"):
    cost_usd: float | None = None


class _Row(msgspec.Struct, rename="camel"):
    """As much of a capture as is needed here."""

    id: str
    metadata: dict[str, Any] = {}
    usage: _Usage | None = None
    failure: Failure | None = None


def derive_played(folder: Path, meta: RunMeta) -> tuple[list[Played], dict[str, str]]:
    """Give every measured trial of a run, and the others with what kept them from being one."""
    if (folder / PLAYED).is_file():
        data = (folder / PLAYED).read_bytes()
        return [_again(folder, one) for one in msgspec.json.decode(data, type=list[Played])], {}
    if not (folder / RESULTS).is_file():
        msg = f"{folder}: neither {RESULTS} nor {PLAYED}; nothing to score from"
        raise StoreProblem(msg)
    played, lost = [], {}
    for place, line in read_lines(folder / RESULTS):
        row, _ = decode_row(place, line, _Row)
        failure = row.failure
        if failure is not None and not failure.cause.measures_agent:
            lost[row.id] = f"{failure.cause}: {failure.message}"
            continue
        evidence = row.metadata.get("evidence") or {}
        if not evidence.get("log"):
            lost[row.id] = "the trial has no game log"
            continue
        cost = row.usage.cost_usd if row.usage else None
        trial = int(row.metadata.get("trial", 1))
        played.append(_from_log(folder, str(evidence["log"]), trial, cost, meta.verified))
    return played, lost


def write_scores(
    folder: Path, run_id: str, played: list[Played], formula: str = OFFICIAL
) -> Scorecard:
    """Write the seed's two score files."""
    card = build_card(run_id, played, formula)
    write_json(folder / CARD, card)
    write_json(folder / SCORES, build_environment_scores(card))
    return card


def _from_log(
    folder: Path, name: str, trial: int, cost: float | None, verified: str | None
) -> Played:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        msg = f"{path}: the log of a trial is missing"
        raise StoreProblem(msg)
    log = read_log(path)
    return Played(
        result=derive_result(log),
        trial=trial,
        title=log.header.title,
        source_sha256=log.header.source_sha256,
        cost_usd=cost,
        log=name,
        log_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        verified=verified or RECORDED,
    )


def _again(folder: Path, one: Played) -> Played:
    """Derive an imported game from its log where it has one."""
    if one.log is None:
        return one
    fresh = _from_log(folder, one.log, one.trial, one.cost_usd, one.verified)
    return msgspec.structs.replace(fresh, tags=one.tags, title=one.title)
