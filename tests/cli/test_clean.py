"""assay clean removes what Assay made and nothing else."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from assay.records.files import remove_abandoned_folders, temporary_folder


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of the test's own, outside of which nothing is looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "cache" / "assay"


@pytest.fixture
def used(assay, prompts, shell_agent, cache, tmp_path) -> list[Path]:
    """Workspaces of two runs, in the cache and in a folder that is the user's otherwise."""
    (tmp_path / "ws" / "mine").mkdir(parents=True)
    (tmp_path / "ws" / "mine" / "letter").write_text("dear")
    (tmp_path / "template").mkdir()
    for out, options in {
        "a.jsonl": ["--workspace-template", "template"],
        "b.jsonl": ["--workspace-dir", "ws"],
    }.items():
        done = assay("capture", prompts("echo x > f; R"), "-s", shell_agent, "-o", out, *options)
        assert done.code == 0, done.stderr
    rows = [json.loads((tmp_path / out).read_text()) for out in ("a.jsonl", "b.jsonl")]
    return [Path(row["cwd"]) for row in rows]


def test_what_killed_runs_left_in_the_temporary_folder_is_removed(
    assay, cache, tmp_path, monkeypatch
):
    """Such as a HOME with a copy of the agent's login."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder("assay-home-") as used:
        name = Path(used).name
        _, _, pid, namespace, rest = name.split("-")
        dead = subprocess.Popen(["true"])
        dead.wait()
        left = tmp_path / f"assay-home-{dead.pid}-{namespace}-{rest}"
        others = [f"assay-home-{dead.pid}-0000-{rest}", f"assay-{dead.pid}", "assay-home-mine"]
        for folder in (left, *map(tmp_path.joinpath, others)):
            (folder / "login").mkdir(parents=True)
        link = tmp_path / f"assay-{dead.pid}-{namespace}-{rest}"
        link.symlink_to(tmp_path / "assay-home-mine")
        assert pid == str(os.getpid())
        assert "temporary folders of killed runs: 1" in assay("clean", "--dry-run").stdout
        remove_abandoned_folders()
        assert not left.exists()
        assert Path(used).is_dir()
        assert all((tmp_path / other / "login").is_dir() for other in others)
        assert link.is_symlink()


def test_only_what_assay_made_is_removed(assay, used, cache, tmp_path):
    inside, outside = used
    left = cache / "workspaces" / f"template-{'0' * 16}"
    left.mkdir()
    (cache / "search").mkdir()
    (cache / "search" / "index.sqlite").write_text("made again")
    (cache / "workspaces" / "notes.txt").write_text("the user's")
    (cache / "workspaces" / "mine").mkdir()
    # A link under the name of a run leads nowhere.
    target = tmp_path / "elsewhere" / ".assay"
    target.mkdir(parents=True)
    (target / "letters").write_text("token")
    (tmp_path / "elsewhere" / "letters").mkdir()
    (cache / "workspaces" / ("a" * 16)).symlink_to(tmp_path / "elsewhere")
    results = (tmp_path / "a.jsonl").read_bytes()

    done = assay("clean", "--dry-run")
    assert "Would remove workspaces: 1 (" in done.stdout
    assert "Would remove copies of templates: 1 (" in done.stdout
    assert "Would remove caches: 1 (" in done.stdout
    assert inside.is_dir()
    assert left.is_dir()
    assert "nothing to remove" in assay("clean", "--older-than", "1h").stdout
    shown = "workspaces: 1, copies of templates: 1, caches: 1 ("
    assert shown in assay("doctor").stdout

    done = assay("clean")
    assert done.code == 0, done.stderr
    assert not inside.parent.exists()
    assert not left.exists()
    assert not list((cache / "search").iterdir())
    assert outside.is_dir(), "a user's folder is looked at only if it is named"
    assert (cache / "workspaces" / "notes.txt").exists()
    assert (cache / "workspaces" / "mine").exists()
    assert (tmp_path / "elsewhere" / "letters").is_dir()
    assert assay("clean", "ws").code == 0
    assert not outside.exists()
    assert (tmp_path / "ws" / "mine" / "letter").read_text() == "dear"
    assert (tmp_path / "a.jsonl").read_bytes() == results
    assert "nothing is left" in assay("doctor").stdout


def test_age_counts(assay, used, cache, tmp_path):
    inside, _ = used
    old = time.time() - 8 * 86_400
    os.utime(inside.parent / ".assay" / inside.name, (old, old))
    assert "nothing to remove" in assay("clean", "--older-than", "2w").stdout
    assert "Removed workspaces: 1 (" in assay("clean", "--older-than", "7d").stdout
    for wrong in ("7", "d", "-1d", "1y", ""):
        assert assay("clean", "--older-than", wrong).code == 2


def test_a_run_that_goes_on_is_left_alone(assay, start, prompts, shell_agent, cache, tmp_path):
    slow = prompts(f"touch on; until [ -e {tmp_path}/go ]; do sleep 0.02; done; R")
    running = start("capture", slow, "-s", shell_agent, "-o", "a.jsonl", "--isolate")
    while not list(cache.glob("workspaces/*/prompt-*/on")):
        time.sleep(0.02)
    assert "nothing to remove" in assay("clean").stdout
    (tmp_path / "go").touch()
    assert running.wait(20) == 0
    assert "Removed workspaces: 1 (" in assay("clean").stdout
    done = assay("grade", "a.jsonl", "-g", "file:on", "-o", "graded.jsonl")
    assert "the workspace is gone" in (tmp_path / "graded.jsonl").read_text(), done.stderr
