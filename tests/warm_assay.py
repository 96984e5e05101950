"""A process that has loaded assay and waits; each request makes a copy of it, which becomes assay.

The copy behaves like `python -m assay`, without the 0.1 to 0.2 s that Python needs to load assay.
The argument is the file descriptor of a socket that listens. A request has its length and a line
break, then, with zero bytes between them, the folder, the number of arguments, the arguments and
the variables; standard input, output and error of the copy come with it. The answers are two
lines: its process id and its exit code. At the end of its own standard input the process ends.
"""

import atexit
import gc
import importlib
import os
import pkgutil
import runpy
import select
import socket
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

import assay.cli
from assay.run import container


class Request(NamedTuple):
    """What assay is to be started with."""

    cwd: str
    args: list[str]
    env: dict[str, str]


def serve(listener: socket.socket) -> Request | None:
    """Answer requests; return one in each copy, and nothing when there will be no more."""
    n_copies = 0
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        connection, _ = listener.accept()
        while n_copies and os.waitpid(-1, os.WNOHANG)[0]:
            n_copies -= 1
        if os.fork() == 0:
            listener.close()
            with connection:
                return answer(connection)
        n_copies += 1
        connection.close()


def answer(connection: socket.socket) -> Request:
    """Return in the copy that becomes assay; wait for it and end in the process that is asked."""
    first, fds, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    length, _, payload = first.partition(b"\n")
    while len(payload) < int(length):
        payload += connection.recv(1 << 16)
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        connection.sendall(f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(f"{code}\n".encode())
        os._exit(0)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    cwd, n_args, *words = [os.fsdecode(word) for word in payload.split(b"\0")]
    variables = (word.partition("=") for word in words[int(n_args) :])
    return Request(cwd, words[: int(n_args)], {name: value for name, _, value in variables})


def become_assay(request: Request) -> NoReturn:
    """Do what Python does for `python -m assay` in a folder and with an environment."""
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.path[0] = str(Path.cwd())
    # The only value that a process makes of its own while it is loaded.
    container._LABEL = f"assay-run={os.getpid()}-{time.time_ns()}"
    sys.argv = ["-m", *request.args]
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
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        asked.set_inheritable(False)
        found = serve(asked)
    if found is not None:
        become_assay(found)
