"""A process that has loaded assay and waits; each request makes a copy of it, which becomes assay.

The copy behaves like `python -m assay`, without the 0.1 to 0.2 s that Python needs to load assay.
The argument is the file descriptor of a socket. A request is one JSON object on one line; standard
input, output and error of the copy come with it. The answers are its process id and its exit code.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import assay.cli
from assay.run import container


def serve(server: socket.socket) -> dict[str, Any] | None:
    """Answer requests; return one in each copy, and nothing after the last request."""
    while True:
        first, fds, _, _ = socket.recv_fds(server, 1 << 16, 3)
        if not first:
            return None
        line = bytearray(first)
        while not line.endswith(b"\n"):
            line += server.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
                os.close(fd)
            return dict(json.loads(line))
        for fd in fds:
            os.close(fd)
        server.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        server.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def become_assay(request: dict[str, Any]) -> None:
    """Do what Python does for `python -m assay` in a folder and with an environment."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = str(Path.cwd())
    # The only value that a process makes of its own while it is loaded.
    container._LABEL = f"assay-run={os.getpid()}-{time.time_ns()}"
    sys.argv = ["-m", *request["args"]]
    try:
        runpy._run_module_as_main("assay")  # type: ignore[attr-defined]
    except SystemExit as end:
        if isinstance(end.code, int):
            leave(end.code)
        raise
    leave(0)


def leave(code: int) -> NoReturn:
    """End like Python, but leave the loaded modules to the system: their end takes 0.03 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for module in pkgutil.iter_modules(assay.cli.__path__):
        importlib.import_module(f"assay.cli.{module.name}")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        connection.set_inheritable(False)
        asked = serve(connection)
    if asked is not None:
        become_assay(asked)
