"""An agent under --sandbox where bubblewrap is missing: Landlock and seccomp hold it."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.run.sandbox import works_landlock

pytestmark = pytest.mark.skipif(not works_landlock(), reason="the kernel has no Landlock")


@pytest.fixture
def told(
    assay: Callable, prompts: Callable, without_bubblewrap: dict[str, str]
) -> Callable[..., Any]:
    """Let an agent run a script in the sandbox of a machine on which bubblewrap does not work."""

    def run(script: str, *words: Any, sandbox: str = "--sandbox") -> Any:
        env = {**without_bubblewrap, "SOME_API_KEY": "not for the agent"}
        # Files that the command names are shown; those of a prompt are not.
        words = ("--shell", 'eval "$PROMPT"', *words)
        return assay("capture", prompts(script), sandbox, *words, env=env)

    return run


def test_reads_and_writes_only_what_is_its_own(told: Callable, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret-3f")
    script = (
        f"cat {tmp_path}/secret; ls {tmp_path}; ls ~root; echo x > {tmp_path}/planted\n"
        f"echo x > /tmp/planted-{tmp_path.name}; cat /proc/{os.getpid()}/environ\n"
        f"kill {os.getpid()}; echo mine > f; mkdir d; cat f; echo home > $HOME/h; cat $HOME/h\n"
        'echo "$SOME_API_KEY"; echo t > $TMPDIR/t && echo ok'
    )
    done = told(script)
    [row] = done.rows
    assert row["output"].split() == ["mine", "home", "ok"], row
    assert "secret-3f" not in json.dumps(row)
    assert not (tmp_path / "planted").exists()
    assert not Path(f"/tmp/planted-{tmp_path.name}").exists()
    assert row["identity"]["isolation"] == "landlock"
    assert "Landlock is used" in done.stderr
    assert "it sees names, sizes and processes" in done.stderr


def test_reaches_no_socket_of_this_machine(told: Callable, tmp_path: Path) -> None:
    """A server behind one, such as docker or systemd, starts anything for whoever asks."""
    place = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        code = (
            "import ctypes, os, socket\n"
            'pair = socket.socketpair(); socket.socket(socket.AF_INET); print("inet")\n'
            "for family in (1, 40):\n"
            f'    try:\n        socket.socket(family).connect("{place}"); print("connected")\n'
            "    except OSError as error:\n        print(error.errno)\n"
            "ring = ctypes.CDLL(None).syscall(425, 1, bytes(256)); print(ring)\n"
            'print([line for line in open("/proc/self/status") if "CapEff" in line][0].split()[1])'
        )
        [row] = told(f"/usr/bin/python3 -c '{code}'").rows
    assert row["output"].split() == ["inet", "1", "1", "-1", "0" * 16], row


def test_without_network_it_is_refused(told: Callable) -> None:
    done = told("echo x", sandbox="--sandbox=no-network")
    assert done.code == 1
    assert "--sandbox does not work on this machine: no permissions" in done.stderr
    assert "only --sandbox is possible, by Landlock" in done.stderr


def test_doctor_says_what_holds_here(assay: Callable, tmp_path: Path) -> None:
    done = assay("doctor", env={"PATH": str(tmp_path)})
    assert "!! --sandbox: --sandbox needs bubblewrap" in done.stdout
    assert "ok Landlock: works, and --sandbox uses it where bubblewrap does not" in done.stdout
