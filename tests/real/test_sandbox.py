"""The four real agents under --sandbox: they work, and see nothing that is not theirs."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("bubblewrap")]

SECRET = "planted-7d1f"


Play = Callable[..., Any]


@pytest.mark.parametrize("sandbox", ["--sandbox", "--sandbox=no-network"])
def test_works_and_cannot_read_a_planted_file(play: Play, sandbox: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted.txt"
    planted.write_text(SECRET)
    assay_source = Path(__file__).parents[2] / "src"
    look = f"cat {planted}; ls {assay_source} /proc/1/root/home; ls -d /proc/[0-9]*"
    script = {
        "steps": [
            {"calls": [{"tool": "shell", "command": "echo made > made.txt && echo said-it"}]},
            {"calls": [{"tool": "shell", "command": f"{look}; true"}]},
            {"text": "Done."},
        ]
    }
    done = play(script, args=(sandbox,))
    assert "failure" not in done.row, done
    assert done.row["output"] == "Done."
    assert (done.workspace / "made.txt").read_text() == "made\n"
    first, second = done.steps("tool_call")
    assert "said-it" in first["output"], done
    assert SECRET not in json.dumps(done.row)
    seen = second["output"]
    assert "No such file" in seen, seen
    assert "assay_arc" not in seen
    assert seen.count("/proc/") < 20, "it sees the processes of others"
    assert done.row["raw"]
    assert done.holds(SECRET) == []
    assert done.alive() == []


def test_reaches_its_model_through_the_proxy(live: Play, kind: Any) -> None:
    """On 127.0.0.2 the model is another machine's: there is no way to it but the proxy."""
    with Forwarder() as forwarder:
        done = live(
            kind.name,
            {"steps": [{"text": "Through the proxy."}]},
            env=lambda url: kind.env(forwarder.address(url)),
            args=lambda url: [*kind.words(forwarder.address(url)), "--sandbox=no-network"],
        )
    assert done.row["output"] == "Through the proxy.", done


class Forwarder:
    """Passes connections to a port of 127.0.0.2 on to the same port of 127.0.0.1."""

    def __enter__(self) -> "Forwarder":
        self._sockets: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def address(self, url: str) -> str:
        port = int(url.rsplit(":", 1)[1])
        if not self._sockets:
            self._sockets.append(socket.create_server(("127.0.0.2", port)))
            threading.Thread(target=self._serve, args=(port,), daemon=True).start()
        return url.replace("127.0.0.1", "127.0.0.2")

    def _serve(self, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._sockets[0].accept()[0]
                server = socket.create_connection(("127.0.0.1", port))
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
