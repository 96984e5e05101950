"""Call a function in a process that never outlives its caller, and that takes its agents along.

Ray leaves running what a worker's children have started: when a worker ends, these children are
killed, and nothing below them. So two processes of ours run each trial. The outer one, the worker's
child, forks the inner one, waits for it and kills all that it leaves behind. The inner one does the
work. It watches a pipe from the worker; when that closes, for whatever reason, it ends the trial's
processes and itself. The outer one stays for the next call, because to load our modules takes much
longer than to fork. It never reads what it is to do, and has no threads.
"""

import atexit
import contextlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NoReturn

from assay import system
from assay.records.files import nameless_file, temporary_place, write_all
from assay.run.family import Mark, end_leftovers, forget_parent, leave_orphans, no_orphans_left
from assay.run.process import Launch, Process, name_of_signal, stop_all

_END_S = 20.0
"""How long a trial may take to end once its worker is gone."""
_STATUS_BYTES = 4
_MOST_NAME_BYTES = 4096
"""Less than a pipe takes at once."""
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
    variables: Mapping[str, str] | None = None,
) -> Any:
    """Call function (module:name) with the argument and the token in a process of its own.

    All that it starts must have a mark that begins with the token: it is ended with it. The process
    has the environment env, and these variables as well.
    """
    outer = _OuterProcess.take(dict(env))
    exit_code: int | None = None
    try:
        exit_code = outer.call(function, (argument, token, dict(variables or {})))
        if not os.fstat(outer.result).st_size:
            raise outer.failure(exit_code, purpose)
        with os.fdopen(outer.result, "rb", closefd=False) as file:
            file.seek(0)
            return pickle.load(file)
    finally:
        if exit_code == 0:
            outer.give_back()
        else:  # otherwise it has ended all itself; looking at every process takes long
            outer.end()
            end_leftovers(token)


class _OuterProcess:
    """The outer process, which serves one call after the other."""

    _idle: ClassVar[list["_OuterProcess"]] = []

    def __init__(self, env: dict[str, str]) -> None:
        leave_orphans()  # as our child, the inner process would be killed with the outer one
        self._env = env
        self._order = _secret_file()
        self.result, self._said = (nameless_file(temporary_place()) for _ in range(2))
        self._status, theirs = os.pipe()
        files = str(self._order), str(theirs)
        launch = Launch(
            argv=[sys.executable, "-P", "-m", "assay.run.supervised", *files],
            cwd="/",
            env=env,
            stdout=self.result,
            stderr=self._said,
            talk=True,
            pass_fds=(self._order, theirs),
        )
        try:
            self._process = Process(launch, Mark("supervised"))
        finally:
            os.close(theirs)

    @staticmethod
    def take(env: dict[str, str]) -> "_OuterProcess":
        """Return one that has this environment and is not in use."""
        while True:
            try:
                outer = _OuterProcess._idle.pop()
            except IndexError:
                return _OuterProcess(env)
            if outer._env == env and not outer._process.poll():
                return outer
            outer.end()

    def give_back(self) -> None:
        """Keep it for the next call."""
        _OuterProcess._idle.append(self)

    def call(self, function: str, order: Any) -> int | None:
        """Return how the inner process ended, as subprocess does; None if the outer one has."""
        for fd in (self._order, self.result, self._said):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        write_all(self._order, pickle.dumps(order))
        self._process.write(f"{function}\n".encode())
        status = os.read(self._status, _STATUS_BYTES)
        os.ftruncate(self._order, 0)
        return int.from_bytes(status, "big", signed=True) if status else None

    def failure(self, exit_code: int | None, purpose: str) -> ProcessFailed:
        """Say why there is no result."""
        if exit_code is None:
            self._wait()
            name = self._process.signal_name
        else:
            name = name_of_signal(-exit_code) if exit_code < 0 else None
        if name:
            return ProcessKilled(f"{name} killed the process that {purpose}")
        start = max(0, os.fstat(self._said).st_size - _LAST_WORDS)
        words = os.pread(self._said, _LAST_WORDS, start).decode("utf-8", "replace")
        lines = words.strip().splitlines() or ["it said nothing"]
        return ProcessFailed(f"the process that {purpose} ended too early: {lines[-1]}")

    def end(self) -> None:
        """End it, and what it is doing."""
        self._process.close_stdin()  # makes the inner process end its trial, if it has not
        self._wait()
        self._process.end(0)
        self._process.release()
        for fd in (self._order, self.result, self._said, self._status):
            os.close(fd)

    def _wait(self) -> None:
        until_s = time.monotonic() + _END_S
        while not self._process.poll() and time.monotonic() < until_s:
            time.sleep(0.01)


def _secret_file() -> int:
    """Open a file for what may hold keys: in memory, where the system can."""
    fd = system.open_memory_file("assay-order")
    return nameless_file(temporary_place()) if fd is None else fd


def _main() -> None:
    """Be the outer process: do what comes in, until the worker has gone."""
    order, status = map(int, sys.argv[1:])
    for fd in (order, status):
        os.set_inheritable(fd, False)
    while function := os.read(0, _MOST_NAME_BYTES).decode().strip():
        with contextlib.suppress(Exception):  # the inner process will say what is wrong with it
            import_module(function.partition(":")[0])
        with no_orphans_left():
            inner = os.fork()
            if not inner:
                os.close(status)
                _do(function, order)
            ended = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            os.write(status, ended.to_bytes(_STATUS_BYTES, "big", signed=True))


def _do(function: str, order: int) -> NoReturn:
    """Be the inner process: do the work, and end."""
    code = 1
    try:
        forget_parent()
        # The file for the result is our stdout; nothing else may write to it.
        result = os.dup(1)
        os.dup2(2, 1)
        with os.fdopen(order, "rb") as file:
            file.seek(0)
            argument, token, variables = pickle.load(file)
        os.environ.update(variables)
        threading.Thread(target=_end_with_caller, args=(token,), daemon=True).start()
        module, _, name = function.partition(":")
        with no_orphans_left():
            made = getattr(import_module(module), name)(argument, token)
        atexit._run_exitfuncs()
        with os.fdopen(result, "wb") as file:
            pickle.dump(made, file)
        code = 0
    except BaseException:  # noqa: BLE001 - above us are only the frames of the outer process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _end_with_caller(token: str) -> None:
    while os.read(0, 1):  # nothing more is ever written; the other end was closed when it returns
        pass
    stop_all()
    time.sleep(_END_S / 2)
    end_leftovers(token)
    os._exit(1)


if __name__ == "__main__":
    _main()
