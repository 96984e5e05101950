"""Confine the agent of one trial, as the operator asked: a sandbox, a container, limits."""

import contextlib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import assay
from assay.errors import AssayError, PluginError, SpawnError
from assay.plugin import Command, ConfinedProgram, Finished, KeptContainer
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_folder
from assay.records.once import made_once
from assay.records.recording import TurnEnd
from assay.records.spec import OWN_IMAGE, Limits, Surroundings, TrialSpec
from assay.run.container import (
    Container,
    RunningContainer,
    check_container,
    client_env,
    find_engine,
    needs_host,
    new_container,
    with_path,
)
from assay.run.gateway import HELPER, Gateway, origin_of
from assay.run.process import missing_program
from assay.run.program import run_program
from assay.run.quota import Quota, check_quota, open_quota
from assay.run.sandbox import (
    View,
    copy_etc,
    kind_of_sandbox,
    landlocked_command,
    sandboxed,
    shown_program,
)
from assay.run.workspace import isolated_env

_MOST_STATUS = 4096
_SHORTEST_SECRET = 16


class WrappedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What to start in place of the agent's own command."""

    argv: Sequence[str]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    wrapped: bool = False
    spared: bool = False
    """As in Launch."""


class Confinement:
    """Wraps the command of each process of a trial in what confines it."""

    def __init__(
        self, spec: TrialSpec, workspace: str, home: str | None, visible: Sequence[str]
    ) -> None:
        self.mounts: Mapping[str, str] = {}
        """As in View."""
        self.replaced: Collection[str] = ()
        """Origins that a proxy stands for: the agent reaches the proxy, and not them."""
        self.hidden: Sequence[str] = ()
        """Folders that the agent must not see, besides those of the run."""
        self._spec = spec
        self._workspace = workspace
        self._home = home
        self._visible = visible
        self._status: list[int] = []
        """Both ends of the pipe on which bubblewrap says how far it came."""
        self._n_processes = 0
        self._quota: Quota | None = None
        self._container: Container | None = None
        self.kept: KeptContainer | None = None
        """What World.container says."""
        self._running: RunningContainer | None = None
        self._gateway: Gateway | None = None
        """That of the newest process."""
        self._folder: str | None = None
        """For the sockets of gateways."""
        self._opened = contextlib.ExitStack()
        self.secrets: dict[str, str] = {}
        """Values from the user's login files, under names that make them secrets."""

    def wrap(self, command: Command, env: Mapping[str, str], *, talk: bool) -> WrappedCommand:
        """Return what to start. Raises SpawnError when the program is missing."""
        around, wrapped = self._spec.surroundings, WrappedCommand(argv=command.argv, env=env)
        self._n_processes += 1
        # Not later: the agent may then have put links there.
        if around.has_login and self._home is not None and self._n_processes == 1:
            self._copy_login(self._home, command.login)
        if around.confined_in and self._home is not None:
            tmp = Path(self._home, "tmp")
            if tmp.is_symlink() or not tmp.is_dir():  # it becomes /tmp: a link leads elsewhere
                tmp.unlink(missing_ok=True)
                tmp.mkdir()
            if self.kept is not None:
                return self._in_kept(command, env, self._home, talk=talk)
            if around.container:
                return self._contained(command, env, self._home, talk=talk)
            wrapped = self._sandboxed(command, env, self._home)
        if self._quota is None and self._spec.limits.need_quota:
            self._quota = open_quota(self._spec.limits)
            self._opened.callback(self._quota.close)
        if self._quota is not None:
            wrapped = msgspec.structs.replace(wrapped, argv=self._quota.wrap(wrapped.argv))
        return wrapped

    def _contained(
        self, command: Command, env: Mapping[str, str], home: str, *, talk: bool
    ) -> WrappedCommand:
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
        self._container = new_container(_find_engine(), around.container, token)
        words = self._container.run(
            argv,
            env,
            view,
            network=network,
            talk=talk or command.stdin is not None,
            limits=self._spec.limits,
        )
        return WrappedCommand(argv=words, env=client_env(env), wrapped=True)

    def _in_kept(
        self, command: Command, env: Mapping[str, str], home: str, *, talk: bool
    ) -> WrappedCommand:
        argv, addresses = command.argv, self._addresses(command)
        network, visible = "host" if needs_host(addresses) else "", [*self._visible]
        if self._spec.surroundings.sandbox == "no-network":
            network = "none"
            if addresses:
                gateway = self._open_gateway(command)
                env = {**env, **gateway.env}
                visible.append(self._folder or "")  # of the gateways of all turns
                argv = ("python3", "-IS", "-c", HELPER, *gateway.arguments, *argv)
        view = View(
            workspace=self._workspace,
            home=home,
            visible=(*command.visible, *visible),
            etc="",
            mounts=self.mounts,
        )
        search = env.get("PATH", os.defpath)
        program, installed = shown_program(command.argv[0], search, view)
        running = self._opened_container(view, installed, network)
        has_home = bool(command.login or command.keep or command.files)
        if has_home and self._n_processes == 1:
            running.show_home(home)
        if not running.has(command.argv[0]):
            if not program:
                msg = f"{missing_program(command.argv[0])} in the image of the task"
                raise SpawnError(msg)
            folders = {*map(os.path.dirname, installed), *installed}
            argv = (*with_path(sorted(folders)), *argv[: -len(command.argv)], program)
            argv = (*argv, *command.argv[1:])
        talk = talk or command.stdin is not None
        words = running.command(argv, env, talk=talk, has_home=has_home)
        return WrappedCommand(argv=words, env=client_env(env), wrapped=True)

    def _opened_container(
        self, view: View, installed: Mapping[str, str], network: str
    ) -> RunningContainer:
        if self._running is None:
            assert self.kept is not None
            running = RunningContainer(_find_engine(), self.kept, self._spec.run_token)
            running.open(view, installed, self._spec.limits, network=network)
            self._opened.callback(running.close)
            self._running = running
        return self._running

    def run_beside_agent(self, program: ConfinedProgram) -> Finished:
        """Run a program in the container where the agent worked."""
        if self._running is None:
            msg = "the container of the task was never started"
            raise PluginError(msg)
        for place, folder in program.mounts.items():
            self._running.copy_in(folder, place)
        return self._running.run(program.argv, program.env, program.timeout_s)

    def _sandboxed(self, command: Command, env: Mapping[str, str], home: str) -> WrappedCommand:
        helper: Sequence[str] = ()
        network = self._spec.surroundings.sandbox != "no-network"
        visible = [*command.visible, *self._visible]
        if not network:
            gateway = self._open_gateway(command)
            env = {**env, **gateway.env}
            visible.append(os.path.dirname(gateway.path))  # noqa: PTH120
            # The plain interpreter, not that of our virtual environment.
            helper = (os.path.realpath(sys.executable), "-IS", "-c", HELPER, *gateway.arguments)
        # What no agent may see even where it lies in a folder of the system.
        around = self._spec.surroundings
        folders = (around.cwd, around.raw_dir, around.workspace_dir)
        hidden = [folder for folder in folders if folder and folder != self._workspace]
        view = View(
            workspace=self._workspace,
            home=home,
            visible=visible,
            hidden=[*hidden, *_own_packages(), *self.hidden],
            etc=_etc(),
            mounts=self.mounts,
        )
        if kind_of_sandbox(network=network) == "landlock":
            words, env = landlocked_command(command.argv, env, view)
            return WrappedCommand(argv=words, env=env)
        words = sandboxed(command.argv, env, view, network=network, helper=helper)
        self._status = list(os.pipe())
        words[1:1] = ["--json-status-fd", str(self._status[1])]
        fds = (self._status[1],)
        return WrappedCommand(argv=words, env=env, pass_fds=fds, wrapped=True, spared=True)

    def started(self) -> None:
        """Close our copy of what only the process needs."""
        if len(self._status) > 1:
            os.close(self._status.pop())

    def note(self, end: TurnEnd, stderr: bytes) -> Failure | None:
        """Write down how the limits were kept; return why the agent never ran, if it did not."""
        limits = self._spec.limits
        if self._gateway is not None:
            end.gateway = self._gateway.traffic.seen()
        if limits.need_quota:
            asked = {"memoryBytes": limits.memory_bytes, "cpus": limits.cpus}
            end.limits = {name: value for name, value in asked.items() if value is not None}
            end.limits["by"] = self._quota.by if self._quota else _find_engine()
            if self._quota is not None:
                end.out_of_memory = self._quota.ran_out_of_memory(end.exit_code)
            else:
                by_us = end.timed_out or end.stalled or end.over_limit or end.lingered
                killed = end.signal == "SIGKILL" and not by_us and not end.settled
                end.out_of_memory = limits.memory_bytes is not None and killed
        # The agent ran if we ended it because its trial was settled.
        return None if end.settled else self._start_failure(end, stderr)

    def _start_failure(self, end: TurnEnd, stderr: bytes) -> Failure | None:
        """Return why the agent never ran, if it did not; nothing it prints can look like that."""
        if self._container is not None:
            container, self._container = self._container, None
            if end.exit_code in (0, 1):
                return None
            has_run, what = container.has_started(end.exit_code), "container could not be started"
            container.remove()  # only its client may have ended
        elif self._status:
            status, what = os.read(self._status[0], _MOST_STATUS), "sandbox could not be made"
            os.close(self._status.pop())
            # Bubblewrap writes an exit code if the agent was started and ended.
            has_run = end.exit_code != 1 or b"exit-code" in status
        else:
            return None
        if has_run:
            return None
        words = stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        # After its first process an agent can have spoiled its own HOME, and must not take itself
        # out of the measurement by that.
        cause = Cause.SPAWN if self._n_processes == 1 else Cause.AGENT_CRASH
        return Failure(cause=cause, message=f"the {what}: {words[-1]}")

    def close(self) -> None:
        """Close what was opened for the processes of the trial."""
        for fd in self._status:
            os.close(fd)
        if self._container is not None:
            self._container.remove()
        self._opened.close()

    def _open_gateway(self, command: Command) -> Gateway:
        if self._folder is None:
            # Short: the path of a Unix socket may have only about 100 bytes.
            self._folder = self._opened.enter_context(temporary_folder("assay-g-"))
        folder = Path(self._folder, str(self._n_processes))
        folder.mkdir()
        gateway = Gateway(str(folder / "s"), self._addresses(command))
        self._opened.callback(gateway.close)
        self._gateway = gateway
        return gateway

    def _addresses(self, command: Command) -> list[str]:
        """Return those of its models, and those in variables that the operator lets through."""
        names = (*command.pass_env, *self._spec.surroundings.env_names)
        values = [os.environ.get(name, "") for name in names]
        urls = (value for value in values if value.startswith(("http://", "https://")))
        return [*command.endpoints, *(url for url in urls if origin_of(url) not in self.replaced)]

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
                with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    texts = _long_texts(msgspec.json.decode(data))
                    self.secrets |= {f"LOGIN_{n}_TOKEN": text for n, text in enumerate(texts)}


def run_confined(program: ConfinedProgram) -> Finished:
    """Run a program to its end where an agent with its surroundings would be confined."""
    around, timeout_s = program.around, program.timeout_s
    network = around.sandbox != "no-network"
    with temporary_folder("assay-home-") as home:
        env = isolated_env(home, (), dict(program.env))
        hidden = [] if around.container else _own_packages()
        etc = "" if around.container else _etc()
        view = View(workspace=around.cwd, home=home, hidden=hidden, etc=etc, mounts=program.mounts)
        if not around.container:
            if kind_of_sandbox(network=network) == "landlock":
                words, env = landlocked_command(program.argv, env, view)
            else:
                words = sandboxed(program.argv, env, view, network=network)
            return run_program(words, cwd=around.cwd, env=env, timeout_s=timeout_s)
        container = new_container(_find_engine(), around.container, "program")
        words = container.run(program.argv, env, view, network=network, talk=False, limits=Limits())
        done = run_program(words, cwd=around.cwd, env=client_env(env), timeout_s=timeout_s)
        if done.timed_out:  # only its client has ended
            container.remove()
        return done


def uses_landlock(around: Surroundings) -> bool:
    """Whether agents are confined by Landlock, because bubblewrap does not work here."""
    if around.sandbox != "network" or around.container:
        return False
    with contextlib.suppress(AssayError):
        return kind_of_sandbox(network=True) == "landlock"
    return False


def check_confinement(around: Surroundings, limits: Limits) -> None:
    """Raise AssayError, with the reason, when this machine cannot do what was asked for."""
    network = around.sandbox != "no-network"
    if around.container:
        if around.container == OWN_IMAGE:
            _find_engine()
        else:
            _check_container(around.container, network=network)
        return
    if around.sandbox:
        kind_of_sandbox(network=network)
    if limits.need_quota:
        check_quota(limits)


_find_engine = cache(find_engine)
_check_container = cache(check_container)


@cache
def _own_packages() -> list[str]:
    place = Path(assay.__file__).resolve().parents[1]
    return [str(path) for path in place.glob("assay*") if path.is_dir()]


@made_once
def _etc() -> str:
    """Return our copy of a part of /etc, made once for all trials and deleted with the process."""
    folder = temporary_folder("assay-etc-")
    copy_etc(folder.__enter__())
    _etc_folders.append(folder)
    return folder.__enter__()


_etc_folders: list[contextlib.AbstractContextManager[str]] = []


def _long_texts(value: Any) -> list[str]:
    """Return the long texts of a login file, which are masked like keys."""
    if isinstance(value, str):
        is_secret = len(value) >= _SHORTEST_SECRET and not value.startswith("http")
        return [value] if is_secret and " " not in value else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _long_texts(part)]
