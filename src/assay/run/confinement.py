"""Confine the agent of one trial, as the operator asked: a sandbox, a container, limits."""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import assay
from assay.plugin import Command, ConfinedProgram, Finished
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_folder
from assay.records.recording import TurnEnd
from assay.records.spec import Limits, Surroundings, TrialSpec
from assay.run.container import (
    Container,
    check_container,
    client_env,
    find_engine,
    new_container,
)
from assay.run.gateway import HELPER, Gateway
from assay.run.host import LocalHost
from assay.run.quota import Quota, check_quota, open_quota
from assay.run.sandbox import View, check_sandbox, copy_etc, sandboxed
from assay.run.workspace import isolated_env

_MOST_STATUS = 4096
_SHORTEST_SECRET = 16


class Enclosed(msgspec.Struct, frozen=True, kw_only=True):
    """What to start in place of the agent's own command."""

    argv: Sequence[str]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    wrapped: bool = False
    spared: bool = False
    """As in Launch."""


class Confinement:
    """Makes one enclosure for each process of a trial."""

    def __init__(
        self, spec: TrialSpec, workspace: str, home: str | None, visible: Sequence[str]
    ) -> None:
        self.mounts: Mapping[str, str] = {}
        """As in View."""
        self.hidden: Sequence[str] = ()
        """Folders that the agent must not see, besides those of the run."""
        self._spec = spec
        self._workspace = workspace
        self._home = home
        self._visible = visible
        self._gateways: list[Gateway] = []
        self._status: list[int] = []
        """Both ends of the pipe on which bubblewrap says how far it came."""
        self._n_processes = 0
        self._quota: Quota | None = None
        self._container: Container | None = None
        self._folder: str | None = None
        self.secrets: dict[str, str] = {}
        """Values from the user's login files, under names that make them secrets."""

    def enclose(self, command: Command, env: Mapping[str, str], *, talk: bool) -> Enclosed:
        """Return what to start. Raises SpawnError when the program is missing."""
        around, enclosed = self._spec.surroundings, Enclosed(argv=command.argv, env=env)
        self._n_processes += 1
        # Not later: the agent may then have put links there.
        if around.has_login and self._home is not None and self._n_processes == 1:
            self._copy_login(self._home, command.login)
        if around.confined_in and self._home is not None:
            _make_tmp(self._home)
            if around.container:
                return self._contained(command, env, self._home, talk=talk)
            enclosed = self._sandboxed(command, env, self._home)
        if self._quota is None and self._spec.limits.need_quota:
            self._quota = open_quota(self._spec.limits, LocalHost())
        if self._quota is not None:
            argv = self._quota.wrap(enclosed.argv)
            enclosed = msgspec.structs.replace(enclosed, argv=argv)
        return enclosed

    def _contained(
        self, command: Command, env: Mapping[str, str], home: str, *, talk: bool
    ) -> Enclosed:
        around, argv = self._spec.surroundings, command.argv
        network = around.sandbox != "no-network"
        visible = [*command.visible, *self._visible]
        if not network:
            gateway = self._open_gateway(command)
            env = {**env, **gateway.env}
            visible.append(os.path.dirname(gateway.path))  # noqa: PTH120
            argv = ("python3", "-IS", "-c", HELPER, *gateway.arguments, *argv)
        view = View(
            workspace=self._workspace, home=home, visible=visible, etc="", mounts=self.mounts
        )
        token = self._spec.run_token
        self._container = new_container(_engine(), around.container, token)
        words = self._container.run(
            argv,
            env,
            view,
            network=network,
            talk=talk or command.stdin is not None,
            limits=self._spec.limits,
        )
        return Enclosed(argv=words, env=client_env(env), wrapped=True)

    def _sandboxed(self, command: Command, env: Mapping[str, str], home: str) -> Enclosed:
        helper: Sequence[str] = ()
        network = self._spec.surroundings.sandbox != "no-network"
        visible = [*command.visible, *self._visible]
        if not network:
            gateway = self._open_gateway(command)
            env = {**env, **gateway.env}
            visible.append(os.path.dirname(gateway.path))  # noqa: PTH120
            # The plain interpreter, not that of our virtual environment.
            helper = (os.path.realpath(sys.executable), "-IS", "-c", HELPER, *gateway.arguments)
        view = View(
            workspace=self._workspace,
            home=home,
            visible=visible,
            hidden=[*_hidden(self._spec.surroundings, self._workspace), *self.hidden],
            etc=_etc(),
            mounts=self.mounts,
        )
        words = sandboxed(command.argv, env, view, network=network, helper=helper)
        self._status = list(os.pipe())
        words[1:1] = ["--json-status-fd", str(self._status[1])]
        return Enclosed(argv=words, env=env, pass_fds=(self._status[1],), wrapped=True, spared=True)

    def started(self) -> None:
        """Close our copy of what only the process needs."""
        if len(self._status) > 1:
            os.close(self._status.pop())

    def note(self, end: TurnEnd, stderr: bytes) -> Failure | None:
        """Write down how the limits were kept; return why the agent never ran, if it did not."""
        limits = self._spec.limits
        if limits.need_quota:
            asked = {"memoryBytes": limits.memory_bytes, "cpus": limits.cpus}
            end.limits = {name: value for name, value in asked.items() if value is not None}
            end.limits["by"] = self._quota.by if self._quota else _engine()
            end.out_of_memory = self._ran_out_of_memory(end)
        if end.settled:  # the agent ran, and we ended it
            return None
        if self._container is not None:
            return self._container_failure(self._container, end, stderr)
        return self._setup_failure(end, stderr) if self._status else None

    def _ran_out_of_memory(self, end: TurnEnd) -> bool:
        if self._quota is not None:
            return self._quota.ran_out_of_memory(end.exit_code)
        ours = end.timed_out or end.stalled or end.over_limit or end.lingered or end.settled
        return self._spec.limits.memory_bytes is not None and end.signal == "SIGKILL" and not ours

    def _container_failure(
        self, container: Container, end: TurnEnd, stderr: bytes
    ) -> Failure | None:
        self._container = None
        if end.exit_code not in (0, 1):  # only its client may have ended
            started = container.has_started(LocalHost(), end.exit_code)
            container.remove(LocalHost())
            if not started:
                message = f"the container could not be started: {_last_line(stderr)}"
                return Failure(cause=self._cause(), message=message)
        return None

    def _setup_failure(self, end: TurnEnd, stderr: bytes) -> Failure | None:
        status = os.read(self._status[0], _MOST_STATUS)
        os.close(self._status.pop())
        # Written if the agent was started and ended: what an agent prints cannot imitate it.
        if end.exit_code != 1 or b"exit-code" in status:
            return None
        message = f"the sandbox could not be made: {_last_line(stderr)}"
        return Failure(cause=self._cause(), message=message)

    def _cause(self) -> Cause:
        """Whose fault it is that a process did not start: after the first, the agent's.

        It can spoil its own HOME, and must not take itself out of the measurement by that.
        """
        return Cause.SPAWN if self._n_processes == 1 else Cause.AGENT_CRASH

    def close(self) -> None:
        """Close what was opened for the processes of the trial."""
        for fd in self._status:
            os.close(fd)
        if self._container is not None:
            self._container.remove(LocalHost())
        for gateway in self._gateways:
            gateway.close()
        if self._quota is not None:
            self._quota.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open_gateway(self, command: Command) -> Gateway:
        if self._folder is None:
            # Short: the path of a Unix socket may have only about 100 bytes.
            self._folder = tempfile.mkdtemp(prefix="assay-g-")
        names = (*command.pass_env, *self._spec.surroundings.env_names)
        addresses = [*command.endpoints, *_addresses(names)]
        folder = Path(self._folder, str(len(self._gateways)))
        folder.mkdir()
        gateway = Gateway(str(folder / "s"), addresses)
        self._gateways.append(gateway)
        return gateway

    def _copy_login(self, home: str, login: Mapping[str, str]) -> None:
        """Copy the agent's own login into its HOME; instructions and settings stay behind."""
        for target, source in login.items():
            path = Path(target)
            if path.exists() or not path.is_relative_to(home):
                continue
            with contextlib.suppress(OSError):
                data = Path(source).expanduser().read_bytes()
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600)
                path.write_bytes(data)
                self.secrets |= _secrets_in(data)


def run_confined(program: ConfinedProgram) -> Finished:
    """Run a program to its end where an agent with its surroundings would be confined."""
    host, around, timeout_s = LocalHost(), program.around, program.timeout_s
    network = around.sandbox != "no-network"
    with temporary_folder("assay-home-") as home:
        env = isolated_env(home, (), dict(program.env))
        hidden = [] if around.container else _own_packages()
        etc = "" if around.container else _etc()
        view = View(workspace=around.cwd, home=home, hidden=hidden, etc=etc, mounts=program.mounts)
        if not around.container:
            words = sandboxed(program.argv, env, view, network=network)
            return host.run(words, cwd=around.cwd, env=env, timeout_s=timeout_s)
        container = new_container(_engine(), around.container, "program")
        words = container.run(program.argv, env, view, network=network, talk=False, limits=Limits())
        done = host.run(words, cwd=around.cwd, env=client_env(env), timeout_s=timeout_s)
        if done.timed_out:  # only its client has ended
            container.remove(host)
        return done


def check_confinement(around: Surroundings, limits: Limits) -> None:
    """Raise AssayError, with the reason, when this machine cannot do what was asked for."""
    if around.container:
        _check_container(around.container, around.sandbox)
        return
    if around.sandbox:
        _check_sandbox(around.sandbox)
    if limits.need_quota:
        check_quota(limits, LocalHost())


@cache
def _check_container(image: str, sandbox: str) -> None:
    check_container(LocalHost(), image, network=sandbox != "no-network")


@cache
def _engine() -> str:
    return find_engine(LocalHost())


@cache
def _check_sandbox(sandbox: str) -> None:
    check_sandbox(LocalHost(), network=sandbox != "no-network")


def _make_tmp(home: str) -> None:
    """Make sure that what becomes /tmp is a folder: a link would lead to any other."""
    tmp = Path(home, "tmp")
    if tmp.is_symlink() or not tmp.is_dir():
        tmp.unlink(missing_ok=True)
        tmp.mkdir()


def _last_line(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]


def _hidden(around: Surroundings, workspace: str) -> list[str]:
    """Return what no agent may see even where it lies in a folder of the system."""
    folders = [around.cwd, around.raw_dir, around.workspace_dir]
    return [folder for folder in folders if folder and folder != workspace] + _own_packages()


@cache
def _own_packages() -> list[str]:
    place = Path(assay.__file__).resolve().parents[1]
    return [str(path) for path in place.glob("assay*") if path.is_dir()]


_etc_lock = threading.Lock()
_etc_folders: list[str] = []


def _etc() -> str:
    """Return our copy of a part of /etc, made once for all trials."""
    with _etc_lock:
        if not _etc_folders:
            folder = tempfile.mkdtemp(prefix="assay-etc-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            copy_etc(folder)
            _etc_folders.append(folder)
        return _etc_folders[0]


def _addresses(names: Sequence[str]) -> list[str]:
    """Return the addresses in variables that the operator lets through to the agent."""
    values = [os.environ.get(name, "") for name in names]
    return [value for value in values if value.startswith(("http://", "https://"))]


def _secrets_in(data: bytes) -> dict[str, str]:
    """Return the long texts of a login file, so that they are masked like keys."""
    try:
        values = list(_texts(msgspec.json.decode(data)))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return {f"LOGIN_{number}_TOKEN": text for number, text in enumerate(values)}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        is_secret = len(value) >= _SHORTEST_SECRET and not value.startswith("http")
        return [value] if is_secret and " " not in value else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
