"""Call a function in a process that never outlives its caller, and that takes its agents along.

Ray leaves what a worker started running when the worker or its raylet is killed. So a worker starts
one process of ours for each trial: it watches a pipe from the worker, and when that closes, for
whatever reason, it ends the trial's processes and itself.
"""

import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from assay.records.files import nameless_file, temporary_place
from assay.run.family import Mark, end_leftovers, no_strays
from assay.run.process import Launch, Process, stop_all

_END_S = 20.0
"""How long a trial may take to end once its worker is gone."""
_WAIT_S = 0.5
_LAST_WORDS = 2000


class ProcessFailed(Exception):
    """The process ended without a result."""


class ProcessKilled(ProcessFailed):
    """A signal ended it."""


def call_supervised(function: str, argument: Any, token: str, env: Mapping[str, str]) -> Any:
    """Call function (module:name) with the argument and the token in a process of its own.

    All that it starts must have a mark that begins with the token: it is ended with it.
    """
    result, said = (nameless_file(temporary_place()) for _ in range(2))
    argv = [sys.executable, "-P", "-m", "assay.run.supervised"]
    launch = Launch(argv=argv, cwd="/", env=dict(env), stdout=result, stderr=said, talk=True)
    order = pickle.dumps((function, argument, token))
    try:
        with no_strays():
            process = Process(launch, Mark(f"{token}.supervised"))
            try:
                process.write(len(order).to_bytes(8, "big") + order)
                while not process.wait(_WAIT_S):
                    pass
            finally:
                _end(process, token)
        if not os.fstat(result).st_size:
            raise _failed(process, said)
        with os.fdopen(result, "rb", closefd=False) as file:
            file.seek(0)
            return pickle.load(file)
    finally:
        os.close(result)
        os.close(said)


def _failed(process: Process, said: int) -> ProcessFailed:
    if process.signal_name:
        return ProcessKilled(f"{process.signal_name} killed the process that ran the agent")
    words = os.pread(said, _LAST_WORDS, max(0, os.fstat(said).st_size - _LAST_WORDS))
    lines = words.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    return ProcessFailed(f"the process that ran the agent ended too early: {lines[-1]}")


def _end(process: Process, token: str) -> None:
    process.close_stdin()  # makes it end its trial, if it has not
    until_s = time.monotonic() + _END_S
    while not process.poll() and time.monotonic() < until_s:
        time.sleep(0.01)
    process.end(0)
    process.release()
    end_leftovers(token)


def _main() -> None:
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    function, argument, token = pickle.loads(sys.stdin.buffer.read(size))
    # The file for the result is our stdout; nothing else may write to it.
    result = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_caller, args=(token,), daemon=True).start()
    module, _, name = function.partition(":")
    with no_strays():
        made = getattr(import_module(module), name)(argument, token)
    with os.fdopen(result, "wb") as file:
        pickle.dump(made, file)


def _end_with_caller(token: str) -> None:
    while os.read(0, 1):  # nothing more is ever written; the other end was closed when it returns
        pass
    stop_all()
    time.sleep(_END_S / 2)
    end_leftovers(token)
    os._exit(1)


if __name__ == "__main__":
    _main()
