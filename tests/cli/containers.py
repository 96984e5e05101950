"""Podman with images that the tests make from programs of this machine."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = (
    *("sh", "cat", "cp", "ls", "sleep", "id", "kill", "head", "tr", "python3"),
    *("bash", "chmod", "env", "grep", "ln", "mkdir", "rm", "tar", "touch"),
)
IMAGE = "assay-test:1"
USERS = {"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n"}
CONFIG = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""Works as well for a root that may not raise limits, and where control groups have both versions,
which is more than podman's defaults do."""


@pytest.fixture(scope="session")
def podman(podman_program: None) -> Iterator[dict[str, str]]:
    """Give the environment in which podman has the image; loudly skip where it cannot run."""
    # Not below the folder of the session: conmon cannot use a socket with a path that is too long.
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    (folder / "containers.conf").write_text(CONFIG)
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/g"\nrunroot = "{folder}/r"\n'
    (folder / "storage.conf").write_text(storage)
    env = {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "DOCKER_HOST": "unix:///nowhere",
    }
    make_root(folder / "root.tar", folder / "root")
    run = {"env": os.environ | env, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(["podman", "import", folder / "root.tar", IMAGE], **run)
    command = ["podman", "run", "--rm", "--network", "host", IMAGE, "sh", "-c", "exit 5"]
    if done.returncode == 0:
        done = subprocess.run(command, **run)
    if done.returncode != 5:
        unavailable(f"podman cannot run a container here: {done.stderr}")
    yield env
    subprocess.run(["podman", "rm", "-af"], **run)
    shutil.rmtree(folder, ignore_errors=True)


def unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def make_root(target: Path, folder: Path) -> None:
    """Make a root file system of a few programs of this machine and the libraries they need."""
    for name in ("bin", "tmp", "etc", "proc", "dev", "sys", "root", "usr/bin"):
        (folder / name).mkdir(parents=True)
    for name, text in USERS.items():
        (folder / "etc" / name).write_text(text)
    for name in PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found, name
        program = Path(found).resolve()
        shutil.copy(program, folder / "bin" / name)
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for word in said.split():
            if word.startswith("/"):
                copy = folder / word[1:]
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, copy)
    code = "import encodings; print(encodings.__path__[0])"
    say = ["/usr/bin/python3", "-IS", "-c", code]
    encodings = subprocess.run(say, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copytree(encodings, folder / encodings[1:])
    shutil.copy(Path(encodings).with_name("os.py"), folder / encodings[1:] / "../os.py")
    (folder / encodings[1:] / "../lib-dynload").mkdir()  # by these two it knows its place
    with tarfile.open(target, "w") as tar:
        tar.add(folder, ".")


def containers(podman: dict[str, str]) -> str:
    done = subprocess.run(
        ["podman", "ps", "-aq"], env=os.environ | podman, capture_output=True, text=True, check=True
    )
    return done.stdout
