"""Run an agent in a container of docker or podman: its programs are those of an image."""

import atexit
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from assay.errors import AssayError, PluginError, SpawnError
from assay.plugin import Finished, KeptContainer
from assay.records.once import made_once
from assay.records.spec import Limits
from assay.run import family
from assay.run.process import Launch, Process
from assay.run.program import StartedProgram, run_program
from assay.run.sandbox import View

_ENGINES = {
    "docker": ("docker", "version", "--format", "{{.Server.Version}}"),
    "podman": ("podman", "version", "--format", "{{.Client.Version}}"),
}
"""Each engine, and what shows that it answers: docker's program does nothing without a server."""
_LABEL = f"assay-run={os.getpid()}-{time.time_ns()}"
"""All containers of this process have it."""
_WATCHDOG = 'cat; for id in $("$1" ps -aq --filter "label=$2"); do "$1" rm -f "$id"; done'
_NEVER_STARTED = (125, 126, 127)
"""Exit codes of an engine that could not start the container; an agent may have them too."""
_NO_PROGRAM = 127
_CLEAN_UP_S = 5.0
_counter = count()


_READY = "assay-container-is-ready"
_START_S = 120.0
_HOME_LINKS = (
    'for f in "$HOME"/.[!.]* "$HOME"/*; do '
    'if test -e "$f" && test ! -e "$1/${f##*/}"; then ln -s "$f" "$1/"; fi; done'
)
"""Shows an agent with a HOME of its own what the image has in the usual one, such as .gitconfig."""
_LOCAL = re.compile(r"^\w+://(?:127\.[\d.]+|localhost|\[::1\])(?:[:/]|$)")


class Container(msgspec.Struct, frozen=True):
    """One container that runs one process of an agent."""

    engine: str
    image: str
    name: str

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        view: View,
        *,
        network: bool,
        talk: bool,
        limits: Limits,
    ) -> list[str]:
        """Return the command that runs argv; it sees its workspace, its HOME and what is visible.

        Values of variables stay out of the command line: see client_env.
        """
        words = [*_run(self.engine, network=network), "--name", self.name, "--label", _LABEL]
        words += ["--workdir", view.workspace, *_limits(limits)]
        words += ["--interactive"] if talk else []
        for place in (view.workspace, view.home):
            words += ["--volume", f"{place}:{place}"]
        words += ["--volume", f"{view.home}/tmp:/tmp"]
        for place, folder in view.mounts.items():
            words += ["--volume", f"{folder}:{place}"]
        for place in view.visible:
            path = Path(place).expanduser()
            words += ["--volume", f"{path}:{path}:ro"] if path.exists() else []
        return [*words, *_variables(env), "--entrypoint", argv[0], self.image, *argv[1:]]

    def has_started(self, exit_code: int | None) -> bool:
        """Whether the agent ran at all; the engine knows, whatever the agent printed."""
        if exit_code not in _NEVER_STARTED:
            return True
        past = ["--stream=false"] if self.engine == "podman" else ["--until", f"{time.time():.0f}"]
        words = [self.engine, "events", "--since", "24h", *past]
        words += ["--filter", f"container={self.name}", "--filter", "event=start"]
        return bool(run_program(words, timeout_s=20.0).stdout.strip())

    def remove(self) -> None:
        """End it and remove it; nothing happens when it is gone."""
        run_program([self.engine, "rm", "-f", self.name], timeout_s=30.0)


class RunningContainer:
    """A container that is there as long as its trial: as in Harbor, agent and verifier work in it
    one after the other, with the rights that the image gives them, and can change its files.

    What the agent leaves running there goes on until the container is removed.
    """

    def __init__(self, engine: str, kept: KeptContainer, token: str) -> None:
        self._container = new_container(engine, kept.image, token)
        self._kept = kept
        self._program: StartedProgram | None = None

    def open(
        self, view: View, installed: Mapping[str, str], limits: Limits, *, network: str
    ) -> None:
        """Start it. installed has what is mounted read-only under other names; network is none,
        host or nothing for what the engine does by default."""
        engine, name = self._container.engine, self._container.name
        words = [engine, "run", "--rm", "--stop-signal", "KILL", "--name", name, "--label", _LABEL]
        words += _limits(limits)
        words += ["--network", network] if network else []
        for place in (view.workspace, view.home):
            words += ["--volume", f"{place}:{place}"]
        for place, folder in view.mounts.items():
            words += ["--volume", f"{folder}:{place}"]
        for place in view.visible:
            path = Path(place).expanduser()
            words += ["--volume", f"{path}:{path}:ro"] if path.exists() else []
        for place, source in installed.items():
            words += ["--volume", f"{source}:{place}:ro"]
        for variable in self._kept.env:
            words += ["--env", variable]
        idle = self._kept.command or ("sleep", "infinity")
        script = f'echo {_READY}; exec "$@"'
        words += [self._kept.image, "sh", "-c", script, "sh", *idle]
        self._program = StartedProgram(words, client_env(self._kept.env), "/")
        until_s = time.monotonic() + _START_S
        while _READY not in (said := self._program.output_end()):
            if self._program.ended or time.monotonic() > until_s:
                self.close()
                if not network:  # not everybody may make a network
                    self.open(view, installed, limits, network="host")
                    return
                msg = f"the container of the task did not start: {said[-500:] or 'no output'}"
                raise SpawnError(msg)
            time.sleep(0.02)

    def command(
        self, argv: Sequence[str], env: Mapping[str, str], *, talk: bool, has_home: bool
    ) -> list[str]:
        """Return the command that runs argv in it; see client_env."""
        words = [self._container.engine, "exec", "--workdir", self._kept.workdir or "/"]
        words += ["--interactive"] if talk else []
        env = {name: value for name, value in env.items() if name != "TMPDIR"}
        if not has_home:
            env = {name: value for name, value in env.items() if not _is_ours_too(name)}
        return [*words, *_variables(env), self._container.name, *argv]

    def run(
        self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float, stdin: bytes = b""
    ) -> Finished:
        """Run a program in it to its end."""
        words = self.command(argv, env, talk=bool(stdin), has_home=False)
        return run_program(words, stdin=stdin, env=client_env(env), timeout_s=timeout_s)

    def has(self, program: str) -> bool:
        """Whether a program is there."""
        words = ["sh", "-c", 'command -v -- "$1"', "sh", program]
        return self.run(words, {}, 60.0).exit_code == 0

    def show_home(self, home: str) -> None:
        """Let a HOME of ours have what is in that of the image."""
        self.run(["sh", "-c", _HOME_LINKS, "sh", home], {}, 60.0)

    def copy_in(self, folder: str, place: str) -> None:
        """Copy a folder of ours into it."""
        target = f"{self._container.name}:{place}"
        words = [self._container.engine, "cp", f"{folder}/.", target]
        done = run_program(words, timeout_s=600.0)
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            msg = f"cannot copy files into the container of the task: {said[-500:]}"
            raise PluginError(msg)

    def close(self) -> None:
        """End it and remove it."""
        if self._program is not None:
            self._container.remove()
            self._program.end()
            self._program = None


def with_path(folders: Iterable[str]) -> tuple[str, ...]:
    """Begin a command that finds programs in these folders too, after those of the image."""
    script = 'PATH="$PATH:$1"; export PATH; shift; exec "$@"'
    return ("sh", "-c", script, "sh", ":".join(folders))


def needs_host(addresses: Iterable[str]) -> bool:
    """Whether an agent must share our network to reach its models, which are on this machine."""
    return any(map(_LOCAL.match, addresses))


def client_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the engine's program: ours, and the agent's for it to pass on."""
    passed = {name: value for name, value in env.items() if not _is_ours_too(name)}
    return {**os.environ, **passed, "PATH": os.environ.get("PATH", os.defpath)}


def new_container(engine: str, image: str, token: str) -> Container:
    """Return a container with a name of its own; it ends with this process at the latest."""
    _watch(engine)
    return Container(engine, image, f"assay-{token[:12]}-{os.getpid()}-{next(_counter)}")


def find_engine() -> str:
    """Return docker or podman, whichever answers. Raises AssayError when neither does."""
    for name, words in _ENGINES.items():
        if _answers(words):
            return name
    msg = "--container needs docker or podman, and neither answers"
    raise AssayError(msg, hint="install one, for example with: apt install podman")


def describe_engines() -> str:
    """Say which engines answer. Raises AssayError when none does."""
    find_engine()
    answers = {name: _answers(words) for name, words in _ENGINES.items()}
    found = [name for name, answer in answers.items() if answer]
    silent = [name for name, answer in answers.items() if not answer]
    text = f"{' and '.join(found)} answers" if len(found) == 1 else "docker and podman answer"
    return f"{text}; {silent[0]} does not" if silent else text


def check_container(image: str, *, network: bool) -> str:
    """Raise AssayError, with the reason, unless the image can be run here; return the engine."""
    engine = find_engine()
    if run_program([engine, "image", "inspect", image], timeout_s=60.0).exit_code != 0:
        msg = f"{engine} has no image {image}"
        raise AssayError(msg, hint=f"build or fetch it: {engine} build -t {image} containers/")
    words = [*_run(engine, network=network), "--entrypoint"]
    words += ["true", image] if network else ["python3", image, "-IS", "-c", "pass"]
    done = run_program(words, timeout_s=120.0)
    # There was a container to look for the program in; only without network is it needed.
    if done.exit_code == _NO_PROGRAM and not network:
        msg = f"the image {image} has no python3, which --sandbox=no-network needs"
        raise AssayError(msg)
    if done.exit_code not in (0, _NO_PROGRAM):
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
        msg = f"{engine} cannot run a container here: {said.splitlines()[-1]}"
        raise AssayError(msg)
    return engine


def _answers(words: Sequence[str]) -> bool:
    try:
        return run_program(words, timeout_s=20.0).exit_code == 0
    except AssayError:
        return False


def _run(engine: str, *, network: bool) -> list[str]:
    """Begin a command line: a container without rights, as the user that we are."""
    words = [engine, "run", "--rm", "--network", "host" if network else "none"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
    return [*words, *_user(engine)]


def _variables(env: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, value in env.items():
        if _is_ours_too(name):
            words += ["--env", f"{name}={value}"]
        elif name != "PATH":  # the image has its own
            words += ["--env", name]
    return words


def _is_ours_too(name: str) -> bool:
    """Whether the engine's program needs another value of a variable than the agent."""
    return name in ("HOME", "TMPDIR") or name.startswith("XDG_")


def _limits(limits: Limits) -> list[str]:
    words: list[str] = []
    if limits.memory_bytes is not None:
        words += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
    return [*words, "--cpus", f"{limits.cpus:g}"] if limits.cpus is not None else words


def _user(engine: str) -> list[str]:
    """Run as we do, so that the files that it makes are ours."""
    words = ["--user", f"{os.getuid()}:{os.getgid()}"]
    return [*words, "--userns", "keep-id"] if engine == "podman" and os.getuid() else words


@made_once
def _watch(engine: str) -> None:
    """Start a process that removes our containers when this process ends, in whatever way.

    A container belongs to its engine and not to us: it would go on after a kill -9.
    """
    mark = family.Mark("assay-watchdog")
    sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    launch = Launch(
        argv=["/bin/sh", "-c", _WATCHDOG, "sh", engine, _LABEL],
        cwd="/",
        env=dict(os.environ),
        stdout=sink,
        stderr=sink,
        talk=True,
    )
    process = Process(launch, mark)
    os.close(sink)

    def end() -> None:
        process.close_stdin()
        until_s = time.monotonic() + _CLEAN_UP_S
        while not process.poll() and time.monotonic() < until_s:
            time.sleep(0.01)
        process.end(0)
        process.release()

    atexit.register(end)
