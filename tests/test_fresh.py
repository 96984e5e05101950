"""scripts/fresh.sh: a command sees nothing that somebody left on this machine."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "fresh.sh"
pytestmark = pytest.mark.usefixtures("bubblewrap")


def run(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, *words], env=os.environ | env, capture_output=True, text=True, timeout=60
    )


def test_what_was_left_behind_is_not_seen_and_nothing_is_left(tmp_path: Path) -> None:
    name = f"left-{uuid.uuid4().hex}"
    home, cache = tmp_path / "home", tmp_path / "cache"
    places = [Path("/tmp"), Path("/var/tmp"), home, cache]
    for place in places:
        place.mkdir(exist_ok=True)
        (place / name).touch()
    script = f"ls {' '.join(f'{place}/{name}' for place in places)} 2>/dev/null; "
    script += (
        f"for d in {' '.join(map(str, places))}; do touch $d/new-{name} || exit 9; done; exit 3"
    )
    done = run("sh", "-c", script, HOME=str(home), XDG_CACHE_HOME=str(cache))
    assert (done.returncode, done.stdout) == (3, ""), done
    for place in places:
        assert not (place / f"new-{name}").exists()
        (place / name).unlink()


def test_the_checkout_and_its_python_are_seen(tmp_path: Path) -> None:
    checkout = SCRIPT.parents[1]
    code = "import assay, sys; print(assay.__file__)"
    done = run(str(checkout / ".venv/bin/python"), "-c", code)
    assert done.returncode == 0, done
    assert done.stdout.startswith(str(checkout))


@pytest.mark.parametrize("name", ["real place", "link"])
def test_a_checkout_may_be_anywhere(tmp_path: Path, name: str) -> None:
    """Also below a folder that is emptied, in a path with a space, behind a link, as a worktree."""
    home, place = tmp_path / "home", tmp_path / "real place"
    (home / "main").mkdir(parents=True)
    # The repository of the worktree is in the HOME that is emptied.
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(home / "main")]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "worktree", "add", "-q", "--detach", str(place)], check=True)
    (place / "scripts").mkdir()
    shutil.copy(SCRIPT, place / "scripts")
    (tmp_path / "link").symlink_to(place)
    script = tmp_path / name / "scripts" / "fresh.sh"
    done = subprocess.run(
        [script, "sh", "-c", "pwd -P; git status --short"],
        cwd=tmp_path / name,
        env=os.environ | {"HOME": str(home), "XDG_CACHE_HOME": f"{home}/.cache"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(place), "?? scripts/"]


def test_without_a_command_it_says_how_it_is_used() -> None:
    done = run()
    assert done.returncode == 2
    assert "usage: scripts/fresh.sh COMMAND" in done.stderr
