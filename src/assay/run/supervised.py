"""Call a function in a process that never outlives its caller, and that takes its agents along.

Ray leaves running what a worker's children have started: when a worker ends, these children are
killed, and nothing below them. So two processes of ours run each trial. The outer one, the worker's
child, waits for the inner one and kills all that it leaves behind. The inner one does the work. It
watches a pipe from the worker; when that closes, for whatever reason, it ends the trial's processes
and itself.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

from assay.records.files import nameless_file, temporary_place
from assay.run.family import Mark, end_leftovers, leave_orphans, no_strays
from assay.run.process import Launch, Process, stop_all

_END_S = 20.0
"""How long a trial may take to end once its worker is gone."""
_WAIT_S = 0.5
_LAST_WORDS = 2000


class ProcessFailed(Exception):
    """The process ended without a result."""


class ProcessKilled(ProcessFailed):
    """A signal ended it."""


def call_supervised(
    function: str,
    argument: Any,
    token: str,
    env: Mapping[str, str],
    purpose: str = "ran the agent",
) -> Any:
    """Call function (module:name) with the argument and the token in a process of its own.

    All that it starts must have a mark that begins with the token: it is ended with it.
    """
    result, said = (nameless_file(temporary_place()) for _ in range(2))
    argv = [sys.executable, "-P", "-m", "assay.run.supervised"]
    launch = Launch(argv=argv, cwd="/", env=dict(env), stdout=result, stderr=said, talk=True)
    order = pickle.dumps((function, argument, token))
    leave_orphans()  # as our child, the inner process would be killed with the outer one
    try:
        process = Process(launch, Mark(f"{token}.supervised"))
        try:
            process.write(len(order).to_bytes(8, "big") + order)
            while not process.wait(_WAIT_S):
                pass
        finally:
            _end(process, token)
        if not os.fstat(result).st_size:
            raise _failed(process, said, purpose)
        with os.fdopen(result, "rb", closefd=False) as file:
            file.seek(0)
            return pickle.load(file)
    finally:
        os.close(result)
        os.close(said)


def _failed(process: Process, said: int, purpose: str) -> ProcessFailed:
    if process.signal_name:
        return ProcessKilled(f"{process.signal_name} killed the process that {purpose}")
    words = os.pread(said, _LAST_WORDS, max(0, os.fstat(said).st_size - _LAST_WORDS))
    lines = words.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    return ProcessFailed(f"the process that {purpose} ended too early: {lines[-1]}")


def _end(process: Process, token: str) -> None:
    process.close_stdin()  # makes it end its trial, if it has not
    until_s = time.monotonic() + _END_S
    while not process.poll() and time.monotonic() < until_s:
        time.sleep(0.01)
    process.end(0)
    process.release()
    if process.exit_code != 0:  # else it has ended all itself; looking at every process takes long
        end_leftovers(token)


def _main() -> None:
    if inner := os.fork():
        _wait_for(inner)
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


def _wait_for(inner: int) -> NoReturn:
    """Wait for the inner process, kill what it leaves behind, and end as it did."""
    with no_strays():
        status = os.waitpid(inner, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


def _end_with_caller(token: str) -> None:
    while os.read(0, 1):  # nothing more is ever written; the other end was closed when it returns
        pass
    stop_all()
    time.sleep(_END_S / 2)
    end_leftovers(token)
    os._exit(1)


if __name__ == "__main__":
    _main()
