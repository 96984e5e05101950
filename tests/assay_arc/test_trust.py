"""Only logs are believed: cards, marks and metadata that differ are named, and not shown."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_arc.cards import read_card
from assay_arc.seal import Seal, key_path
from assay_arc.store import StoredRun
from assay_arc.watch import FileCopies, FinishedRuns

TRUE = "6.67"
HOSTILE = """# cheat
import hashlib, hmac, json, os, pathlib
store = pathlib.Path({store!r})
[run] = [p for p in (store / "runs").iterdir() if (p / "scorecard.json").exists()]
card = json.loads((run / "scorecard.json").read_text())
card["score_percent"] = 97.0
(run / "scorecard.json").write_text(json.dumps(card))
seal = json.loads((run / "seal.json").read_text())
sha = hashlib.sha256((run / "scorecard.json").read_bytes()).hexdigest()
seal["files"]["scorecard.json"] = sha
key = pathlib.Path({key!r}).read_bytes()
seal["mac"] = ""
text = json.dumps(seal, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
seal["mac"] = hmac.new(key, text.encode(), "sha256").hexdigest()
(run / "seal.json").write_text(json.dumps(seal))
"""
"""As a player that knows everything about Assay: the new seal is as good as a true one."""


def edit(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in changes:
        assert old in text, (path, old)
        text = text.replace(old, new)
    path.write_text(text)


def set_score(path: Path, percent: float) -> None:
    card = json.loads(path.read_text())
    card["score_percent"] = card["games"][0]["score_percent"] = percent
    path.write_text(json.dumps(card))


SHOWN = (
    ("report", "latest", "--format", "markdown"),
    ("report", "latest", "--format", "json"),
    ("report", "latest", "--format", "summary"),
    ("report", "latest", "--format", "html"),
    ("compare", "latest", "latest"),
    ("replay", "latest", "ky01", "--text"),
    ("export", "recording", "latest"),
)


def test_a_card_that_disagrees_with_its_log_is_an_error_with_both_numbers(
    run: StoredRun, assay: Callable[..., Any]
) -> None:
    assert f"{TRUE} / 100" in assay("arc", "report").stdout
    set_score(run.folder / "scorecard.json", 97.0)
    for words in SHOWN:
        done = assay("arc", *words)
        assert done.code == 1, words
        assert "scorecard.json says 97.00 / 100, but its logs give 6.67 / 100" in done.stderr
        assert "97.0" not in done.stdout
    listed = assay("arc", "browse")
    assert "97.0" not in listed.stdout
    assert "its logs give 6.67" in listed.stderr
    done = assay("arc", "verify")
    assert done.code == 0, done.stderr
    assert "says 97.00 / 100, but its logs give 6.67 / 100; put right" in done.stdout
    assert f"{TRUE} / 100" in assay("arc", "report").stdout
    assert "put right" not in assay("arc", "verify").stdout


@pytest.mark.parametrize("sealed", [True, False])
def test_a_mark_is_never_read(run: StoredRun, assay: Callable[..., Any], sealed: bool) -> None:
    """What sed can write into run-meta.json and scorecard.json is not believed."""
    for name in ("run-meta.json", "scorecard.json"):
        edit(run.folder / name, ('"recorded"', '"replayed"'))
    if not sealed:
        (run.folder / "seal.json").unlink()
        done = assay("arc", "report", "latest")
        assert "UNVERIFIED: nothing here says that Assay recorded it" in done.stdout
        assert "replayed (" not in done.stdout
        verified = assay("arc", "verify")
        assert verified.code == 0, verified.stderr
        assert "its rows and settings are as found" in assay("arc", "report", "latest").stdout
        return
    done = assay("arc", "report", "latest")
    assert done.code == 1
    assert 'run-meta.json says verified "replayed", but it was "recorded"' in done.stderr
    put_right = assay("arc", "verify")
    assert 'run-meta.json says verified "replayed", but it was "recorded"' in put_right.stdout
    assert "put right" in put_right.stdout


CHANGES: dict[str, tuple[str, tuple[str, str]]] = {
    "the log": ("logs/prompt-ky01-v1.jsonl", ('"levelsCompleted":1', '"levelsCompleted":4')),
    "the cause of a row": ("results.jsonl", ('"outcome":', '"failure":{},"outcome":')),
}


@pytest.mark.parametrize("name", CHANGES)
def test_logs_and_rows_that_were_changed_show_what_was_sealed(
    run: StoredRun, assay: Callable[..., Any], name: str
) -> None:
    file, change = CHANGES[name]
    path = run.folder / file
    path.write_text(path.read_text().replace(*change))
    for _ in range(2):  # a check does not make it good
        done = assay("arc", "report")
        assert f"UNVERIFIED: {file} was changed after the run" in done.stdout
        assert f"{TRUE} / 100" in done.stdout
        assert "Where It Is Stuck" not in done.stdout or name != "the log"
        assert assay("arc", "replay", "latest", "ky01").code == (name == "the log")
        assert assay("arc", "verify").code == 1
    set_score(run.folder / "scorecard.json", 97.0)
    done = assay("arc", "report")
    assert (done.code, done.stdout) == (1, "")
    assert f"scorecard.json was changed, and so was {file}" in done.stderr


def test_another_users_seal_proves_nothing(
    run: StoredRun, assay: Callable[..., Any], tmp_path: Path
) -> None:
    done = assay("arc", "report", env={"XDG_STATE_HOME": str(tmp_path / "theirs")})
    assert "UNVERIFIED: it was sealed by another user or on another machine" in done.stdout
    data = json.loads((run.folder / "seal.json").read_text())
    data["meta"]["harness"] = "better"
    (run.folder / "seal.json").write_text(json.dumps(data))
    assert "UNVERIFIED: seal.json was changed" in assay("arc", "report").stdout


def test_a_player_cannot_change_finished_runs_unseen(
    run: StoredRun, assay: Callable[..., Any], arc: Any, tmp_path: Path
) -> None:
    """It forges card and seal of an earlier run with the true key, and rewrites its own files."""
    code = HOSTILE.format(store=str(run.store.root), key=str(key_path()))
    path = arc.player(tmp_path, code)
    done = assay("arc", "run", path, "--games", "ky01", "--max-steps", "20")
    assert done.code == 0, done.stderr
    assert f"seal.json of run {run.label} was changed, and put back" in done.stdout
    report = assay("arc", "report", "latest").stdout
    assert f"**Tampered**: ky01-v1: scorecard.json of run {run.label} was changed" in report
    earlier = assay("arc", "report", run.meta.run_id)
    assert earlier.code == 1
    assert "says 97.00 / 100, but its logs give 6.67 / 100" in earlier.stderr
    compared = assay("arc", "compare", "previous", "latest")
    assert compared.code == 1
    assert "97" not in compared.stdout
    assert assay("arc", "verify", run.meta.run_id).code == 0
    assert "tampered" in assay("arc", "compare", "previous", "latest").stdout


def test_finished_trials_of_the_same_run_are_put_back(run: StoredRun) -> None:
    log = run.folder / "logs" / "prompt-ky01-v1.jsonl"
    name, before = str(log.relative_to(run.folder)), log.read_bytes()
    with FileCopies(run.folder) as copies:
        copies.keep(name)
        assert copies.restore() == []
        for spoil in (
            lambda: log.write_bytes(before.replace(b"ACTION4", b"ACTION1")),
            log.unlink,
            lambda: (log.unlink(), log.mkdir()),
            lambda: (log.unlink(), log.symlink_to("/etc/passwd")),
        ):
            spoil()
            assert copies.restore() == [name]
            assert log.read_bytes() == before
    assert copies.digests == {name: hashlib.sha256(before).hexdigest()}


def test_what_assay_itself_does_meanwhile_is_no_tampering(
    run: StoredRun, assay: Callable[..., Any]
) -> None:
    watched = FinishedRuns([run])
    assert assay("arc", "verify").code == 0
    assert assay("arc", "report").code == 0
    assert watched.find_changes() == []
    shutil.rmtree(run.folder)
    assert watched.find_changes() == [f"the folder of run {run.label} was removed"]
    assert watched.find_changes() == []


def test_scores_are_read_as_quickly_as_the_card(run: StoredRun, monkeypatch: Any) -> None:
    """The digests of a sealed run make parsing its logs unnecessary."""

    def refuse(*_: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr("assay_arc.cards.read_log", refuse)
    assert read_card(run).percent == pytest.approx(100 / 15)
    assert isinstance(run.seal, Seal)
