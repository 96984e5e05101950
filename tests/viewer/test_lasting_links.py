"""A link into the viewer works after a restart; its secret is the owner's alone."""

import shutil
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def viewer(*paths: Path, cache: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "assay", "view", *map(str, paths)]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cache), "XDG_CACHE_HOME": str(cache)},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=10)


@pytest.fixture
def folder(runs: Path, tmp_path: Path) -> Path:
    place = tmp_path / "runs"
    place.mkdir()
    shutil.copy(runs / "before.jsonl", place)
    return place


def test_the_address_stays_the_same_for_the_same_folder(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with viewer(folder, cache=cache) as first:
        pass
    with viewer(folder, cache=cache) as second:
        assert second == first
        with urllib.request.urlopen(first) as answer:
            assert answer.status == 200
        # While it is in use, a second viewer takes another port, with the same secret.
        with viewer(folder, cache=cache) as third:
            assert third != first
            assert third.split("/")[3] == first.split("/")[3]
    with viewer(folder / "before.jsonl", cache=cache) as other:
        assert other.split("/")[3] != first.split("/")[3]
        wrong = other.replace(other.split("/")[3], first.split("/")[3])
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(wrong)
    for path in (cache / "assay/view", *(cache / "assay/view").iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.parametrize("harm", ["readable", "short", "not json", "no port"])
def test_a_secret_that_others_could_know_is_not_used_again(
    folder: Path, tmp_path: Path, harm: str
) -> None:
    cache = tmp_path / "cache"
    with viewer(folder, cache=cache) as first:
        token = first.split("/")[3]
    (kept,) = (cache / "assay/view").iterdir()
    if harm == "readable":
        kept.chmod(0o644)
    elif harm == "no port":
        kept.write_text(kept.read_text().replace('"port":', '"port":-'))
    else:
        kept.write_text('{"token": "a", "port": 1}' if harm == "short" else "{")
    with viewer(folder, cache=cache) as second:
        assert second.split("/")[3] not in (token, "a")
