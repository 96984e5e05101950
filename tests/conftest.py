"""What the tests of the whole flow share: a scripted agent, assay as a child process, and the four
real agents at pinned versions, installed once into a cache folder."""

import fcntl
import gc
import hashlib
import json
import os
import platform
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

import click
import hypothesis
import psutil
import pytest

from assay import system
from assay.adapters.vendor import ACP_AGENTS
from assay.cli.group import ENDING_SIGNALS, cli
from assay.cli.main import main
from assay.records.journal import Journal
from assay.records.raw_streams import kept_streams
from assay.records.signatures import Signatures
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec

AGENT = Path(__file__).parent / "agents" / "scripted.sh"
WARM = Path(__file__).parent / "warm_assay.py"
MEASURE = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as file:
    file.write(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process between us and assay: a child's peak memory starts at that of its parent."""


STOPPING = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
)
"""Signals that tests send to programs; a program that was started with one ignored ignores it."""


def _ignore(number: int, frame: object) -> None:
    """Ignore a signal as SIG_IGN does, but only in this process: what it starts can be stopped."""


def pytest_configure(config: pytest.Config) -> None:
    """Let python3 be an interpreter: pyenv's script in its place takes 0.15 s to find one.

    The whole session, all workers included, has folders of its own for caches and temporary files,
    in memory where there is room: what agents leave there is of no use later, and a disk would take
    a fifth of the time. pip goes on to use its cache of the user. Signals that
    `make test &` in a script or `nohup make test` ignore are ignored here and nowhere below.
    """
    found = shutil.which("python3")
    if found and Path(found).read_bytes()[:2] == b"#!":
        os.environ["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    # One example may take long where the machine is busy, also without the profile of CI.
    hypothesis.settings.register_profile("patient", hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("patient")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        before = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        os.environ.setdefault("PIP_CACHE_DIR", str(Path(before, "pip")))
        # Assay makes workspaces only where no agent files stand above, as they may in a HOME.
        folder = tempfile.mkdtemp(prefix="assay-", dir=_place_for_files())
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = f"{folder}/cache"
        os.environ["TMPDIR"] = f"{folder}/tmp"
        for name in ("cache", "tmp"):
            Path(folder, name).mkdir()
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        if config.getoption("numprocesses", default=None):
            config.pluginmanager.register(Watchdog())
            _compile_tests([Path(word.partition("::")[0]) for word in config.args])
    # Before a test sets TMPDIR for itself: it is asked for once in each process.
    tempfile.tempdir = os.environ["TMPDIR"]


def _compile_tests(paths: list[Path]) -> None:
    """Have each file compiled once, in a fresh checkout: else every worker compiles all of them."""
    found = (path.rglob("test_*.py") if path.is_dir() else [path] for path in paths)
    tail = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    missing = [
        str(file)
        for file in chain.from_iterable(found)
        if not (file.parent / "__pycache__" / f"{file.stem}.{tail}").exists()
    ]
    if len(missing) < FEW_FILES or sys.dont_write_bytecode:
        return
    n = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    parts = [
        subprocess.Popen([*command, *missing[i::n]], stdout=subprocess.DEVNULL) for i in range(n)
    ]
    for part in parts:
        part.wait()


FEW_FILES = 40
"""So few are compiled faster than another pytest is started."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Spare a worker the question how often a test has failed elsewhere: each took 40 ms.

    pytest-rerunfailures asks its server before each test, and TCP holds the question back until
    the message before it is confirmed. A test that has ended a worker is run once more all the same
    (the server counts those); it may then fail once before its failure counts.
    """
    reruns = getattr(session.config, "failures_db", None)
    if reruns is not None and "PYTEST_XDIST_WORKER" in os.environ:
        reruns._get = lambda *_: 0


MEMORY_NEEDED = 6 << 30
"""How much memory has to be free for the files of a whole session: they take less than 2 GB."""


def _place_for_files() -> str:
    shared = "/dev/shm"
    if not os.access(shared, os.W_OK):
        return "/var/tmp"
    room = min(shutil.disk_usage(shared).free, psutil.virtual_memory().available)
    return shared if room >= MEMORY_NEEDED else "/var/tmp"


class Watchdog:
    """Watches the workers: names a failure when it happens, and ends a worker that hangs.

    A run that is stopped from outside shows its failures all the same, and a test that hangs is a
    failure with a traceback instead of the end of all the others.
    """

    limit_s = 900
    """Without a report of a worker; a test may wait long for the others that use a real agent."""

    def __init__(self) -> None:
        self._last: dict[Any, float] = {}
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._last[node] = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._last.pop(node, None)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.node in self._last:
            self._last[report.node] = time.monotonic()
        if report.outcome in ("failed", "rerun"):
            why = getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr)
            said = f"{report.outcome} in {report.when}: {report.nodeid}: {str(why)[:300]}"
            print(f"\n{said}", file=sys.__stderr__, flush=True)

    def _watch(self) -> None:
        while not self._ended.wait(5):
            for node, last in list(self._last.items()):
                if time.monotonic() - last > self.limit_s:
                    self._last.pop(node, None)
                    # faulthandler prints where it hangs. There is no public way to its process.
                    node.gateway._io.popen.send_signal(signal.SIGABRT)


def pytest_xdist_auto_num_workers() -> int:
    """Take two workers for each core: most tests wait for processes that they started."""
    return min(2 * (os.cpu_count() or 1), 8)


BY_FIXTURE = {
    "real_agents": "real",
    "browser": "browser",
    "axe": "browser",
    "ray_nodes": "ray",
    "podman": "container",
    **dict.fromkeys(("acp_sdk", "bare", "bun", "harbor", "installed", "reference"), "install"),
    **dict.fromkeys(("new_node", "prettier", "readers_python", "trl_python"), "install"),
}
"""What a test that uses a fixture needs besides this checkout, as a marker."""
LINUX_ONLY = Path(__file__).with_name("linux_only.toml")
"""Tests of what only Linux can promise, with the reason; skipped with ASSAY_PORTABLE."""
BY_FOLDER = {"real": "real", "frozen": "recorded", "seed": "recorded"}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests before some are chosen by their markers; put those that are left in order."""
    n_above = len(Path(__file__).parent.parts)
    linux_only = tomllib.loads(LINUX_ONLY.read_text()) if os.environ.get("ASSAY_PORTABLE") else {}
    for item in items:
        file = "/".join(("tests", *item.path.parts[n_above:]))
        whole = f"{file}::{item.name}"
        for where, reason in linux_only.items():
            # With a bracket, the beginning of the parameters of a test.
            if where in (file, whole.partition("[")[0]) or ("[" in where and where in whole):
                item.add_marker(pytest.mark.skip(f"only on Linux: {reason}"))
        names = {BY_FIXTURE[name] for name in _fixtures(item) if name in BY_FIXTURE}
        folder = item.path.parts[n_above]
        for name in names | {BY_FOLDER[folder]} if folder in BY_FOLDER else names:
            item.add_marker(name)
    yield
    n_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if n_workers > 1:
        _put_in_order(items, n_workers)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _put_in_order(items: list[pytest.Item], n_workers: int) -> None:
    """Begin with the tests of real agents, on half of the workers; the others begin with the rest.

    As many of them as there are cores may run at once. At the end, the other workers would have
    nothing to do but to wait for them. Each worker begins with a part of the list of equal length.
    """
    rest = [item for item in items if not item.get_closest_marker("real")]
    real = [item for item in items if item.get_closest_marker("real")]
    n_real = max(1, n_workers // 2)
    ends = [len(items) * (n + 1) // n_workers for n in range(n_workers)]
    items.clear()
    for n, end in enumerate(ends):
        if n < n_real:
            items += real[len(real) * n // n_real : len(real) * (n + 1) // n_real]
        n_more = max(0, end - len(items))
        items += rest[:n_more]
        del rest[:n_more]


@dataclass(frozen=True)
class Outcome:
    """How one call of assay ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    peak_mb: float

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


@pytest.fixture
def tag() -> str:
    """Stands in the command line of every process of this test's agents, forks included."""
    return f"tag-{uuid.uuid4().hex}"


@pytest.fixture
def schema(tag: str) -> dict[str, Any]:
    """A schema of the scripted agent, as data; a test may change it."""
    events = [
        ("thought", "thought", {"content": "$.text"}),
        ("message", "message", {"content": "$.text"}),
        ("plan", "plan", {"entries": "$.entries"}),
        (
            "tool_call",
            "tool_call",
            {"title": "$.name", "status": "$.status", "callId": "$.id", "output": "$.output"},
        ),
    ]
    return {
        "version": 1,
        "name": "scripted",
        "command": ["/bin/sh", str(AGENT), sys.executable, tag],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "resume": {"flag": "--resume", "sessionIdPath": "$.session_id"},
        "ignore": [{"path": "$.type", "value": "system"}],
        "outputEvents": [
            {"match": {"path": "$.type", "value": value}, "emitAs": kind, "extract": extract}
            for value, kind, extract in events
        ],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }


@pytest.fixture
def agent(tmp_path: Path, schema: dict[str, Any]) -> Callable[..., Path]:
    """Write the schema, with changes, and give its path."""

    def write(**changes: Any) -> Path:
        path = tmp_path / f"agent-{uuid.uuid4().hex[:6]}.json"
        path.write_text(json.dumps(schema | changes))
        return path

    return write


@pytest.fixture
def shell_agent(agent: Callable[..., Path], tag: str) -> Path:
    """An agent that runs the prompt as a shell script; its result is "ok" unless it says so."""
    return agent(command=["bash", "-c", SHELL_AGENT, tag])


SHELL_AGENT = """
say() { printf '{"type":"result","result":"%s"}\\n' "$1"; }
R() { say ok; }
eval "${@: -1}"
"""


@pytest.fixture
def prompts(tmp_path: Path) -> Callable[..., Path]:
    """Write a prompt file: texts get the ids p0, p1, ...; rows are taken as they are."""

    def write(*rows: Any) -> Path:
        path = tmp_path / f"prompts-{uuid.uuid4().hex[:6]}.jsonl"
        full = [
            row if isinstance(row, dict) else {"id": f"p{i}", "input": row}
            for i, row in enumerate(rows)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in full))
        return path

    return write


@pytest.fixture
def start(
    tmp_path: Path, warm_assays: "WarmAssays", request: pytest.FixtureRequest
) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start assay and leave it running; it is killed with the test at the latest.

    It is a copy of a process that has loaded assay, or a new process if the test is marked cold.
    Streams that are not given are nothing and two pipes.
    """
    cold = request.node.get_closest_marker("cold") is not None
    started: list[subprocess.Popen[str]] = []

    def start_assay(
        *args: Any,
        env: dict[str, str] | None = None,
        cwd: Path = tmp_path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> "subprocess.Popen[str]":
        words, full = [str(word) for word in args], {**os.environ, **(env or {})}
        process: subprocess.Popen[str] = (
            warm_assays.start(words, cwd, full, (stdin, stdout, stderr))
            if not cold and warm_assays.can_copy(full)
            else subprocess.Popen(
                [sys.executable, "-m", "assay", *words],
                cwd=cwd,
                env=full,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=True,
            )
        )
        started.append(process)
        return process

    yield start_assay
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def on_terminal(start: Callable[..., Any]) -> Callable[..., tuple[int, str]]:
    """Run assay with a terminal as stdout and stderr; give its exit code and what it showed."""

    def run(*words: Any, stop_at: bytes = b"", **more: Any) -> tuple[int, str]:
        ours, theirs = os.openpty()
        process = start(*words, **({"stdout": theirs, "stderr": theirs} | more))
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how Linux tells the end of a terminal
            while part := os.read(ours, 1 << 16):
                shown += part
                if stop_at and stop_at in shown:
                    process.send_signal(signal.SIGINT)
                    stop_at = b""
        os.close(ours)
        # The terminal driver itself writes \r\n for \n.
        return process.wait(30), shown.replace(b"\r\n", b"\n").decode()

    return run


class WarmProcess(subprocess.Popen[str]):
    """A process that runs assay and is no child of ours: its exit code comes over a socket."""

    def __init__(
        self, words: list[str], connection: socket.socket, stdout: IO[str] | None, stderr: Any
    ) -> None:
        self.args, self.returncode, self.stdin = words, None, None  # type: ignore[assignment]
        self._connection, self._answers = connection, connection.makefile("r")
        self.pid = int(self._answers.readline())
        self.stdout, self.stderr = stdout, stderr
        # What the methods of Popen look at.
        self._child_created, self._communication_started, self._input = True, False, None
        self.text_mode = True

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""
        if self.returncode is None:
            if not _readable([self._connection.fileno()], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Give the exit code if there is one."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def _internal_poll(self, **_: Any) -> int | None:
        return self.poll()


class WarmAssays:
    """Runs assay in copies of two processes that have loaded it; see warm_assay.py.

    Two, each with its own hash seed, so that the order of a set differs between two runs of a test.
    """

    def __init__(self, folder: Path) -> None:
        self._settings = _settings(os.environ)
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._addresses = [folder / "0", folder / "1"]

    def run(
        self, words: list[str], cwd: Path, env: Mapping[str, str], stdin: bytes, timeout: float
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run assay to its end, like subprocess.run; in a new process if a copy would differ."""
        if not (self.can_copy(env) and len(stdin) <= PIPE_BYTES):
            return subprocess.run(
                [sys.executable, "-m", "assay", *words],
                cwd=cwd,
                env=env,
                input=stdin,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        (given, feed), (out, to_out), (err, to_err) = os.pipe(), os.pipe(), os.pipe()
        if len(stdin) > select.PIPE_BUF:
            fcntl.fcntl(feed, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(feed, stdin)
        os.close(feed)
        how = "once" if words and words[0] in NEED_OWN_PROCESS else "again"
        with (
            self._request(how, words, cwd, env, [given, to_out, to_err]) as connection,
            connection.makefile("r") as answers,
        ):
            pid = int(answers.readline())
            try:
                stdout, stderr = _read_to_end([out, err], timeout)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["assay", *words], timeout) from None
            return subprocess.CompletedProcess(words, int(answers.readline()), stdout, stderr)

    def start(
        self, words: list[str], cwd: Path, env: Mapping[str, str], streams: Iterable[int]
    ) -> WarmProcess:
        """Start assay and leave it running, with streams as Popen takes them."""
        ours: list[IO[str] | None] = []
        theirs = []
        for stream in streams:
            read, write = os.pipe() if stream == subprocess.PIPE else (None, None)
            if stream == subprocess.DEVNULL:
                write = os.open(os.devnull, os.O_RDWR)
            theirs.append(os.dup(stream) if write is None else write)
            ours.append(None if read is None else os.fdopen(read))
        return WarmProcess(words, self._request("once", words, cwd, env, theirs), *ours[1:])

    def _request(
        self, how: str, words: list[str], cwd: Path, env: Mapping[str, str], fds: list[int]
    ) -> socket.socket:
        """Ask for assay with three streams, which are closed here; its answers can be read."""
        self._addresses.reverse()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._listening(self._addresses[0])))
        parts = [how, str(cwd), str(len(words)), *words, *(f"{k}={v}" for k, v in env.items())]
        payload = b"\0".join(os.fsencode(part) for part in parts)
        message = b"%d\n%b" % (len(payload), payload)
        sent = socket.send_fds(connection, [message], fds)
        for fd in fds:
            os.close(fd)
        if message[sent:]:  # even nothing cannot be sent to one that has answered and gone
            connection.sendall(message[sent:])
        return connection

    def can_copy(self, env: Mapping[str, str]) -> bool:
        """Say whether a copy is the same as a new process: Python reads some variables once."""
        return _settings(env) == self._settings

    def program(self) -> Path:
        """Write a program `assay` that is started in this way too; give its folder."""
        folder = self._folder / "bin"
        if not folder.exists():
            folder.mkdir()
            address = self._listening(self._addresses[0])
            relay = WARM.with_name("warm_program.py")
            words = [sys.executable, "-IS", relay, address, Path(sys.executable).parent / "assay"]
            words.append(repr(sorted(self._settings.items())))
            (folder / "assay").write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
            (folder / "assay").chmod(0o755)
        return folder

    def _listening(self, address: Path) -> Path:
        """Start a process that listens at an address, unless there is one."""
        if not address.exists():
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(address))
                listener.listen(64)
                process = subprocess.Popen(
                    [sys.executable, str(WARM), str(listener.fileno())],
                    # Threads of OpenBLAS would not be in a copy.
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[listener.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )
            self._processes.append(process)
        return address

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()


PIPE_BYTES = 1 << 20
"""What a pipe can hold at most; everything is written before anyone reads."""


STARTS_NOTHING = {
    *("balance", "baseline", "calibrate", "compare", "export", "extract", "format", "init"),
    *("explain", "plan", "raw", "report", "schemas", "skills", "summarize"),
}
"""Commands that read and write files and start no process, unless a grader is given.

`query` is not one of them: DuckDB complains of its own leaks when a process that loaded it ends.
"""


NEED_OWN_PROCESS = {"query", "view", "mock-model"}
"""Commands that get a copy of a process for themselves alone; see warm_assay.py."""


def _starts_nothing(words: list[str]) -> bool:
    graders = any(word.startswith(("-g", "--grader", "--judge", "--with-model")) for word in words)
    loads_duckdb = any(".parquet" in word for word in words)
    return bool(words) and words[0] in STARTS_NOTHING and not (graders or loads_duckdb)


def run_here(
    words: list[str], cwd: Path, env: Mapping[str, str], stdin: bytes
) -> "subprocess.CompletedProcess[bytes]":
    """Run assay in this process as if in a new one: own streams, variables, folder and state."""
    with ExitStack() as after:
        after.callback(os.chdir, Path.cwd())
        os.chdir(cwd)
        after.callback(_replace_variables, dict(os.environ))
        _replace_variables(env)
        for number in ENDING_SIGNALS:
            after.callback(signal.signal, number, signal.getsignal(number))
        streams = after.enter_context(_own_streams(stdin))
        forget_state()
        after.callback(forget_state)
        after.callback(gc.unfreeze)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["assay", *words])
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
            except BaseException:  # noqa: BLE001 - what Python itself does with it
                traceback.print_exc()
                code = 1
        stdout, stderr = streams()
    return subprocess.CompletedProcess(words, code, stdout, stderr)


def _replace_variables(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def forget_state() -> None:
    """Empty what assay's modules remember: a new process remembers nothing."""
    Journal.has_saved = False
    if len(sys.modules) != _remembering[0]:
        ours = [module for name, module in sys.modules.items() if name.partition(".")[0] in OURS]
        values = [value for module in ours for value in vars(module).values()]
        _remembering[:] = [len(sys.modules), [v for v in values if hasattr(v, "cache_clear")]]
    for function in _remembering[1]:
        function.cache_clear()


OURS = ("assay", "assay_arc")
_remembering: list[Any] = [0, []]


@contextmanager
def _own_streams(stdin: bytes) -> Iterator[Callable[[], list[bytes]]]:
    """Replace the three standard streams by pipes; give what ends and reads the last two."""
    (given, feed), (out, to_out), (err, to_err) = os.pipe(), os.pipe(), os.pipe()
    read: dict[int, list[bytes]] = {out: [], err: []}
    threads = [threading.Thread(target=_drain, args=(fd, read[fd])) for fd in read]
    threads.append(threading.Thread(target=_feed, args=(feed, stdin)))
    kept = [os.dup(fd) for fd in range(3)]
    before = sys.stdin, sys.stdout, sys.stderr
    for fd, ours in enumerate((given, to_out, to_err)):
        os.dup2(ours, fd)
        os.close(ours)
    for thread in threads:
        thread.start()
    sys.stdin = open(0, encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115

    def end() -> list[bytes]:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.close()
        sys.stdin.close()
        sys.stdin, sys.stdout, sys.stderr = before
        for fd, saved in enumerate(kept):
            os.dup2(saved, fd)
            os.close(saved)
        for thread in threads:
            thread.join()
        return [b"".join(read[out]), b"".join(read[err])]

    yield end


def _drain(fd: int, parts: list[bytes]) -> None:
    with open(fd, "rb", buffering=0) as pipe:
        while part := pipe.read(1 << 16):
            parts.append(part)


def _feed(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


OF_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ")
"""How the names of variables begin that Python reads when it starts."""


def _settings(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(OF_INTERPRETER)}


def _readable(fds: Sequence[int], seconds: float | None) -> list[int]:
    """Wait until some of these can be read, or have ended; select takes none beyond 1023."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)]


def _read_to_end(fds: list[int], seconds: float) -> list[bytes]:
    """Read pipes until nobody has them open for writing, and close them."""
    deadline = time.monotonic() + seconds
    read = {fd: bytearray() for fd in fds}
    try:
        waiting = set(fds)
        while waiting:
            ready = _readable(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for fd in ready:
                part = os.read(fd, 1 << 16)
                read[fd] += part
                if not part:
                    waiting.discard(fd)
    finally:
        for fd in fds:
            os.close(fd)
    return [bytes(read[fd]) for fd in fds]


@pytest.fixture(scope="session")
def warm_assays() -> Iterator[WarmAssays]:
    """Give the means to run assay without loading it each time."""
    with tempfile.TemporaryDirectory() as folder:  # short: an address has at most 107 characters
        made = WarmAssays(Path(folder))
        yield made
        made.close()


@pytest.fixture(scope="session")
def warm_path(warm_assays: WarmAssays) -> str:
    """Give a PATH for lines of a shell, with an assay that need not be loaded."""
    return f"{warm_assays.program()}:{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture
def assay(
    tmp_path: Path, warm_assays: WarmAssays, request: pytest.FixtureRequest
) -> Callable[..., Outcome]:
    """Run assay to its end, in the test's folder.

    A command that starts nothing runs in this process, others in a copy of one that has loaded
    assay, and in a new process if the test is marked cold.
    """
    cold = request.node.get_closest_marker("cold") is not None

    def run(
        *args: Any,
        stdin: str | bytes | None = None,
        env: dict[str, str] | None = None,
        stdout: Any = subprocess.PIPE,
        measure: bool = False,
        timeout: float = 120,
        cwd: Path = tmp_path,
    ) -> Outcome:
        words = [str(word) for word in args]
        full = {**os.environ, **(env or {})}
        given = stdin.encode() if isinstance(stdin, str) else stdin or b""
        command = [sys.executable, "-m", "assay", *words]
        note = tmp_path / f"peak-{uuid.uuid4().hex[:6]}"
        if measure:
            command = [sys.executable, "-I", "-S", "-c", MEASURE, str(note), *command]
        warm = not (cold or measure) and stdout is subprocess.PIPE
        began = time.monotonic()
        done = (
            run_here(words, cwd, full, given)
            if warm and _starts_nothing(words) and warm_assays.can_copy(full)
            else warm_assays.run(words, cwd, full, given, timeout)
            if warm
            else subprocess.run(
                command,
                cwd=cwd,
                env=full,
                input=given,
                stdout=stdout,
                stderr=subprocess.PIPE,
                timeout=timeout,
                check=False,
            )
        )
        return Outcome(
            code=done.returncode,
            stdout=(done.stdout or b"").decode(),
            stderr=done.stderr.decode(),
            seconds=time.monotonic() - began,
            peak_mb=int(note.read_text()) / 1024 if measure else 0.0,
        )

    return run


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a disk of a size, such as 1m."""
    folder = tmp_path / "disk"

    def mount(size: str) -> Path:
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
            pytest.skip("THE SMALL DISK IS NOT TESTED: mounting a tmpfs needs root")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def alive(tag: str) -> Iterator[Callable[[], list[int]]]:
    """Give the living processes of this test's agents; none of them outlives the test."""

    def find() -> list[int]:
        return [pid for pid in _pids() if tag.encode() in _command_line(pid)]

    yield find
    for pid in find():
        os.kill(pid, 9)


@pytest.fixture
def spec(tmp_path: Path, schema: dict[str, Any]) -> Callable[..., TrialSpec]:
    """Make a trial of the scripted agent, to be run inside the test's own process.

    Each has a prompt of its own: trials of one prompt in one folder run one after another.
    """
    numbers = count(1)

    def make(text: Any, limits: Limits | None = None, **changes: Any) -> TrialSpec:
        around = {"cwd": str(tmp_path), "raw_dir": str(tmp_path / "raw"), "raw_prefix": "raw"}
        around |= changes.pop("surroundings", {})
        options = {"schema": schema | changes.pop("schema", {})}
        return TrialSpec(
            prompt=Prompt(id=f"p{next(numbers)}", input=text),
            agent=PluginRef(name="declared", options=options),
            benchmark=PluginRef(name="prompts"),
            limits=limits or Limits(turn_s=20),
            surroundings=Surroundings(**around),
            folder=f"trial-{uuid.uuid4().hex[:6]}",
            **changes,
        )

    return make


@pytest.fixture
def raw_of() -> Callable[[Path, dict[str, Any]], dict[str, str]]:
    """Read the raw streams of a row of a file in a folder, by their names."""

    def read(base: Path, row: dict[str, Any]) -> dict[str, str]:
        return {one.name: one.read().decode() for one in kept_streams(base / row["raw"])}

    return read


@pytest.fixture
def raw_folder(tmp_path: Path) -> Callable[[Path, dict[str, Any]], Path]:
    """Write the raw streams of a row of a file in a folder to a folder of their own."""

    def write(base: Path, row: dict[str, Any]) -> Path:
        for one in kept_streams(base / row["raw"]):
            path = tmp_path / "raw-streams" / one.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.read())
        return tmp_path / "raw-streams"

    return write


@pytest.fixture
def read_rows() -> Callable[[Path], list[dict[str, Any]]]:
    """Read an output file strictly: every line whole, ended and JSON."""

    def read(path: Path) -> list[dict[str, Any]]:
        data = path.read_bytes()
        assert data == b"" or data.endswith(b"\n")
        return [json.loads(line) for line in data.splitlines()]

    return read


@pytest.fixture
def eventually() -> Callable[..., bool]:
    """Wait for a condition; say whether it came true in time."""

    def wait(condition: Callable[[], Any], seconds: float = 20.0) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _command_line(pid: int) -> bytes:
    """Give the command line of a living process; one that is dead but not buried has none.

    Without pathlib, which takes twice as long: tests ask for all processes again and again.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


STAYS = ("assay view ", "assay mock-model ")
"""Commands that serve until Ctrl-C."""
CTRL_C = 130
GATE_CODES = (0, 3, 4)
"""What --fail-on and --until may say about data that the examples make at random."""


class Examples:
    """Reads the examples of a command out of its help, and runs them in a folder."""

    def __init__(self, path: str) -> None:
        # The browser of `view --open` is a program that does nothing.
        self.env = os.environ | {"PATH": path, "BROWSER": "true"}
        self._started: list[subprocess.Popen[str]] = []

    def of(self, *names: str) -> list[str]:
        """Give the lines below "Examples:", which must be the end of the help."""
        command: click.Command = cli
        ctx = click.Context(cli)
        for name in names:
            assert isinstance(command, click.Group)
            found = command.get_command(ctx, name)
            assert found is not None
            command, ctx = found, click.Context(found, info_name=name, parent=ctx)
        _, title, rest = command.get_help(ctx).partition("Examples:\n")
        assert title, f"assay {' '.join(names)} --help has no examples"
        lines = [line.strip() for line in rest.rstrip("\n").split("\n")]
        assert all(line.startswith(("assay ", "cat ", "echo ")) for line in lines), lines
        return lines

    def run(self, line: str, folder: Path) -> str:
        """Run one example to its end, or until it has printed its first line; give its stdout."""
        stays = line.startswith(STAYS)
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {line}" if stays else line],
            cwd=folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        if stays:
            assert process.stdout is not None
            assert "http://127.0.0.1" in process.stdout.readline(), process.communicate()[1]
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
        gated = "--fail-on" in line or "--until" in line
        expected = (0, CTRL_C) if stays else GATE_CODES if gated else (0,)
        assert process.returncode in expected, f"{line}\n{stdout}\n{stderr}"
        return stdout

    def run_all(self, *names: str, folder: Path) -> None:
        """Run all examples of a command, in their order."""
        for line in self.of(*names):
            self.run(line, folder)

    def close(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


@pytest.fixture(scope="module")
def examples(warm_path: str) -> Iterator[Examples]:
    """Give the means to read and run examples."""
    made = Examples(warm_path)
    yield made
    made.close()


PINS = {
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
INSTALL_LIMIT_S = 900


@dataclass(frozen=True)
class RealAgents:
    """Where the programs are, and a scratch folder for one run."""

    folder: Path

    def program(self, name: str) -> Path:
        """Give the program to start: the native binary where there is one."""
        found = sorted(self.folder.glob(f"node_modules/{_program_glob(name)}"))
        assert found, f"{name} is not in {self.folder}; remove that folder and run the tests again"
        return found[0]

    def version(self, name: str) -> str:
        """Give the pinned version."""
        return PINS[name].rsplit("@", 1)[1]


@pytest.fixture(scope="session")
def real_agents() -> RealAgents:
    """Install the agents unless the cache has them; parallel workers wait for the first."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    digest = hashlib.sha256(json.dumps(PINS, sort_keys=True).encode()).hexdigest()[:12]
    folder = root / f"agents-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"agents-{digest}.lock"):
        if not folder.exists():
            _install(folder)
    return RealAgents(folder)


@pytest.fixture
def one_per_core(real_agents: RealAgents) -> Iterator[None]:
    """Let as many tests start real agents as there are cores: each start takes a whole core."""
    with ExitStack() as files:
        names = [f"core-{n}.lock" for n in range(os.cpu_count() or 1)]
        slots = [files.enter_context((real_agents.folder / name).open("w")) for name in names]
        while not any(_try_lock(slot) for slot in slots):
            time.sleep(0.05)
        yield


@pytest.fixture
def agent_program(real_agents: RealAgents, one_per_core: None) -> Callable[[str], Path]:
    """Find an agent's program, for a test that runs it now."""
    return real_agents.program


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], None]], Path]:
    """Fill a folder once for all workers: the tests of a file may be spread over all of them."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        with _locked(root / f"{name}.lock"):
            if not (root / name).exists():
                part = Path(tempfile.mkdtemp(dir=root))
                fill(part)
                part.rename(root / name)
        return root / name

    return make


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _try_lock(file: IO[str]) -> bool:
    """Lock a file until it is closed, unless another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _install(folder: Path, packages: Iterable[str] = ()) -> None:
    packages = packages or PINS.values()
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages]
    said = " ".join([*command[:2], "--prefix", "DIR", *command[2:]])
    if shutil.which("npm") is None:
        _unavailable(f"npm is missing; install Node.js >= 20, then: {said}")
    beside = folder.with_suffix(".part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    command[2:2] = ["--prefix", str(beside)]
    done = subprocess.run(
        command, cwd=beside, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
    )
    if done.returncode:
        _unavailable(f"this cannot be installed with: {said}\n{done.stderr[-2000:]}")
    beside.rename(folder)


def _unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def _program_glob(name: str) -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    target = f"{platform.system().lower()}-{machine}"
    baseline = "-baseline" if machine == "x64" and not _has_avx2() else ""
    return {
        "claude": f"@anthropic-ai/claude-code-{target}/claude",
        "codex": f"@openai/codex-{target}/vendor/*/bin/codex",
        "gemini": ".bin/gemini",
        "opencode": f"opencode-{target}{baseline}/bin/opencode",
    }[name]


def _has_avx2() -> bool:
    cpu = Path("/proc/cpuinfo")
    return not cpu.exists() or " avx2" in cpu.read_text()


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Need bubblewrap; install it where that is possible."""
    if not system.is_linux():
        pytest.skip("only on Linux: there is no sandbox")
    need_debian("bubblewrap", "bwrap")


@pytest.fixture
def sign() -> Callable[[Path], None]:
    """Let rows that a test wrote be rows that Assay wrote."""

    def sign(path: Path) -> None:
        signatures = Signatures.of_output(path, afresh=True)
        assert signatures is not None
        for line in path.read_bytes().splitlines():
            signatures.sign(line)

    return sign


@pytest.fixture
def without_bubblewrap(tmp_path: Path) -> dict[str, str]:
    """Give the environment of a machine on which bubblewrap does not work."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\necho no permissions >&2; exit 1\n")
    (programs / "bwrap").chmod(0o755)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


@pytest.fixture(scope="session")
def faketime() -> str:
    """Return the library by which programs see another time; install it where that is possible."""
    need_debian("faketime", "faketime")
    return str(next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")))


@pytest.fixture(scope="session")
def podman_program() -> None:
    """Need podman with runc; install them where that is possible."""
    need_debian("podman runc", "podman", "runc")


@pytest.fixture(scope="session")
def chromium_program() -> None:
    """Need Chromium and its driver; install them where that is possible."""
    need_debian("chromium chromium-driver", "chromium", "chromedriver")


def need_debian(packages: str, *programs: str) -> None:
    """Install packages of Debian if a program is missing, and skip loudly where that fails."""
    if all(map(shutil.which, programs)):
        return
    script = Path(__file__).parents[1] / "scripts" / "debian.sh"
    done = subprocess.run(
        [script, *packages.split()], capture_output=True, text=True, check=False, timeout=900
    )
    if not all(map(shutil.which, programs)):
        install = f"apt-get update && apt-get install -y {packages}"
        _unavailable(f"{packages} missing; install: {install}\n{done.stderr[-2000:]}")


BUN, NODE = "bun@1.4.4", "24.21.0"
"""Runtimes of TypeScript graders; this version of Node.js runs TypeScript."""


@pytest.fixture(scope="session")
def bun() -> Path:
    """The folder with bun's program, for PATH."""
    (found,) = _runtime(BUN).glob("node_modules/@oven/bun-*/bin")
    return found


REFERENCE = "@plaited/agent-eval-harness@0.12.2"


@pytest.fixture(scope="session")
def reference(bun: Path) -> list[str]:
    """The command of the reference harness."""
    folder = _runtime(REFERENCE.replace("/", "+"), REFERENCE) / "node_modules/.bin"
    return [str(bun / "bun"), str(folder / "agent-eval-harness")]


@pytest.fixture(scope="session")
def acp_sdk() -> Path:
    """The official SDK of the Agent Client Protocol, with its experimental version 2."""
    return _runtime("@agentclientprotocol+sdk@2.4.0", "@agentclientprotocol/sdk@2.4.0")


@pytest.fixture(scope="session")
def qwen_code() -> str:
    """The program of Qwen Code."""
    (agent,) = (agent for agent in ACP_AGENTS if agent.name == "qwen")
    package = f"@qwen-code/qwen-code@{agent.tested[0]}"
    return str(_runtime(package.replace("/", "+"), package) / "node_modules/.bin/qwen")


@pytest.fixture(scope="session")
def new_node() -> Path:
    """The folder with a Node.js that runs TypeScript, for PATH."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    (found,) = _runtime(f"node-linux-{machine}@{NODE}").glob("node_modules/node-linux-*/bin")
    return found


def _runtime(name: str, package: str = "") -> Path:
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    root.mkdir(parents=True, exist_ok=True)
    folder = root / name
    with _locked(root / f"{name}.lock"):
        if not folder.exists():
            _install(folder, [package or name])
    return folder


RAY_NODE = {"num_cpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture(scope="module")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Ray cluster for the tests of one file; other files wait, because it takes much memory."""
    from ray.cluster_utils import Cluster  # late: it takes a second to load

    root = tmp_path_factory.getbasetemp()
    lock = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "ray.lock"
    with (
        _locked(lock),
        pytest.MonkeyPatch.context() as patch,
        # Not below the tests' folder: the path of a socket has room for 107 bytes.
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder,
    ):
        patch.setenv("RAY_worker_niceness", "0")  # else all other tests come first
        # Not temp_dir=...: Cluster also writes its address into Ray's default folder, made or not.
        patch.setenv("RAY_TMPDIR", folder)
        head = {**RAY_NODE, "no_monitor": True, "include_log_monitor": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        yield made
        made.shutdown()


@pytest.fixture
def ray_cluster(ray_nodes: Any) -> Any:
    """The cluster with two nodes; the second one is new if an earlier test has killed it."""
    if not ray_nodes.worker_nodes:
        ray_nodes.second = ray_nodes.add_node(**RAY_NODE)
        ray_nodes.wait_for_nodes()
    return ray_nodes


@pytest.fixture(autouse=True)
def _ray_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of the library be copies of this process, although another test has loaded Ray.

    Ray is not connected here: its own tests have processes of their own.
    """
    monkeypatch.delitem(sys.modules, "ray._raylet", raising=False)
