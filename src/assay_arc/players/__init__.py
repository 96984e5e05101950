"""The built-in players as agents: real processes that play through the same socket as any other."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from assay.errors import InputError
from assay.plugin import Ask, Command, Dialogue, Reading, Watch
from assay.records.capture import AgentInfo, Events
from assay.records.recording import RawLine, Recording
from assay.records.trajectory import AnyStep, Message, ToolCall

PACKAGE = "assay_arc.players"
VERSION = "1"


def random_player(argument: str | None = None, args: Sequence[str] = ()) -> "PlayerAdapter":
    """Build the random player; random:7 fixes its seed, else each trial has its own."""
    seed = ("--seed", argument) if argument is not None else ()
    if argument is not None and not argument.isdigit():
        msg = f"random:{argument}: the seed must be a number"
        raise InputError(msg, hint="for example: random:7")
    return PlayerAdapter(name="random", module=f"{PACKAGE}.random_play", args=(*seed, *args))


def search_player(args: Sequence[str] = ()) -> "PlayerAdapter":
    """Build the player that searches breadth-first."""
    return PlayerAdapter(name="search", module=f"{PACKAGE}.search_play", args=tuple(args))


class _Event(msgspec.Struct):
    type: str
    op: str = ""
    input: dict[str, Any] = {}
    ok: bool = True
    state: str = ""
    levelsCompleted: int = 0
    text: str = ""


class _PlayerWatch:
    """Follows a player's lines."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.ended = False
        self._output = ""
        self.n_unparsed = 0

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        """Read one line."""
        try:
            event = _DECODER.decode(line.text)
        except msgspec.MsgspecError:
            self.n_unparsed += 1
            return ()
        if event.type == "result":
            self.ended, self._output = True, event.text
            return (Message(content=event.text, timestamp=line.t_ms),)
        return (
            ToolCall(
                name=event.op,
                status="completed" if event.ok else "failed",
                timestamp=line.t_ms,
                input=event.input,
                output=f"{event.state}, {event.levelsCompleted} levels done",
            ),
        )

    def output(self) -> str:
        """Say how the player ended."""
        return self._output


@dataclass(frozen=True)
class PlayerAdapter:
    """One built-in player; it does not read the prompt, only the game."""

    name: str
    module: str
    args: tuple[str, ...] = ()
    timeout_ms: float | None = None
    linger_s: float = 10.0

    def command(self, ask: Ask) -> Command:
        """Start the player; where its game is stands in the environment."""
        return Command(argv=(sys.executable, "-m", self.module, "--events", *self.args))

    def watch(self) -> Watch:
        """Follow a game."""
        return _PlayerWatch()

    def dialogue(self, cwd: str) -> Dialogue | None:
        """Players do not talk."""
        return None

    def read(self, recording: Recording) -> Reading:
        """Read moves as tool calls and the last line as the answer."""
        steps: list[AnyStep] = []
        outputs: list[str] = []
        events = Events()
        for turn in recording.turns:
            watch = _PlayerWatch()
            for line in turn.lines():
                events.total += 1
                steps += watch.feed(line)
            events.unparsed += watch.n_unparsed
            events.terminal = watch.ended
            outputs.append(watch.output())
        events.mapped = events.total - events.unparsed
        agent = AgentInfo(adapter=self.name, version=VERSION)
        return Reading(steps=steps, outputs=outputs, events=events, agent=agent)


_DECODER = msgspec.json.Decoder(_Event)
