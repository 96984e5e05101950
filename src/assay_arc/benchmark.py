"""ARC-AGI-3 as a benchmark: a prompt and a game process for each game, and their grader."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from assay import plugins
from assay.plugin import (
    Benchmark,
    Grade,
    Grader,
    Host,
    Machine,
    PluginError,
    PluginRef,
    Prompt,
    PromptRow,
    Trial,
    TrialSpec,
)
from assay_arc import GameProblem
from assay_arc.cards import RESULTS, check_rows
from assay_arc.catalog import BUILT_IN, GameInfo, list_games, pick_game
from assay_arc.log import DisplayOptions, Limits, read_log
from assay_arc.online import read_online_run
from assay_arc.replay import check_logs
from assay_arc.scoring import derive_result, score_all
from assay_arc.store import META, stored_run
from assay_arc.world import GameWorld, hide_process, write_launchers

KEPT_LOG = "game.jsonl"
"""What a log is called that is kept with the raw streams."""


@dataclass(frozen=True)
class ArcBenchmark(Benchmark):
    """Games of a folder, the package's own by default."""

    needs_workspace = False
    """A game is played in a folder of its own, which is not the agent's."""
    grades_failed_trials = True
    """The game's log says how far an agent came that crashed or ran out of time."""
    games: Sequence[str] = ()
    """Ids or base ids; none means all."""
    games_dir: str | None = None
    seed: int = 0
    max_steps: int | None = None
    max_resets: int | None = None
    mcp: bool = True
    """Offer the MCP server to the agent, not only the command."""
    image: bool = True
    """These three: how the game is shown, as a picture, as text, and by what changed."""
    grid: bool = True
    diff: bool = True
    online: Mapping[str, Any] | None = None
    """Play on the official server: see OnlineRun in online.py."""
    memory_file: bool = False
    """Ask the agent to keep notes in a file of its folder."""
    advice: str = ""
    """Text that the agent is told after the task."""
    logs_dir: str | None = None
    """Where event logs are written. Default: with the raw streams."""
    logs_prefix: str = ""
    """Prefix of a log's name in the rows of the output."""
    log_names: Mapping[str, str] = MappingProxyType({})
    """What a trial's log is called, by prompt id. Default: as its folders, which players see."""

    def prepare_process(self) -> None:
        """Hide the process of a trial, which knows the game, from the player."""
        hide_process(always=True)

    def prompts(self) -> Iterable[PromptRow]:
        """Yield a prompt for each game; its metadata pins the game's version and the limits."""
        text = player_prompt(self._limits, mcp=self.mcp, shows=self._shows)
        if self.memory_file:
            text = f"{text}\n\n{MEMORY}"
        if self.advice:
            text = f"{text}\n\n{self.advice}"
        for info in self.chosen_games():
            metadata = {
                "game": info.game_id,
                "sourceSha256": info.source_sha256,
                "seed": self.seed,
                "maxSteps": self.max_steps,
                "maxResets": self.max_resets,
                **self._ablation(),
            }
            yield Prompt(id=info.game_id, input=text, metadata=metadata), {}

    def chosen_games(self) -> list[GameInfo]:
        """Return the games asked for, each once, in that order."""
        known = self._known_games()
        if not self.games:
            return list(known)
        found = [pick_game(name, known, self._folder) for name in self.games]
        return list({info.game_id: info for info in found}.values())

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Iterator[GameWorld]:
        """Run the trial's game in a process and a temporary folder of its own."""
        info = self._game_of(spec)
        log, log_name = self._log_path(spec)
        with tempfile.TemporaryDirectory(prefix="arc-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            world = GameWorld(
                info,
                log or folder / "l" / "game.jsonl",
                folder,
                host,
                seed=self.seed,
                limits=self._limits,
                mcp=self.mcp,
            )
            if spec.surroundings.container:  # which has a Python of its own
                write_launchers(folder / "bin", "/usr/bin/env -S python3")
            # The random player: the trials of a game differ, and each can be repeated.
            world.env["ARC_PLAYER_SEED"] = str(spec.number)
            world.log_name = log_name
            offers = plugins.adapter(spec.agent).offers_mcp_servers
            world.must_offer_tools = self.mcp and offers
            if self._shows != DisplayOptions():
                world.show_only(self._shows)
            if self.online is not None:
                run = read_online_run(self.online)
                world.play_online(run.game(info), run.key_name)
            try:
                world.open()
                yield world
            finally:
                world.close()
                if log is None:
                    world.keep_log()

    def graders(self) -> Sequence[PluginRef]:
        """Name the grader that reads the world's evidence."""
        return (PluginRef(name="arc"),)

    def check_output(self, output: Path) -> None:
        """Refuse rows that are not as Assay wrote them, or that say more than their logs."""
        if (output.parent / META).is_file() and output.name == RESULTS:
            check_rows(stored_run(output.parent, imported=False))

    @property
    def _limits(self) -> Limits:
        return Limits(max_steps=self.max_steps, max_resets=self.max_resets)

    def replay(
        self, logs: Sequence[tuple[Path, dict[str, Any]]], host: Machine
    ) -> Sequence[tuple[bool | None, str]]:
        """Play the games again, and derive results and scores from their logs."""
        replays = check_logs([path for path, _ in logs], self._folder, host)
        found: list[tuple[bool | None, str]] = []
        for (path, evidence), replay in zip(logs, replays, strict=True):
            if replay.difference:
                found.append((False if replay.compared else None, replay.difference))
            else:
                found.append(_derived_again(path, evidence))
        return found

    @property
    def _shows(self) -> DisplayOptions:
        return DisplayOptions(image=self.image, grid=self.grid, diff=self.diff)

    def _ablation(self) -> dict[str, Any]:
        """What is part of a trial's identity where it is not the default."""
        tools = run_tools(self._shows, memory_file=self.memory_file)
        return {} if tools == run_tools(DisplayOptions(), memory_file=False) else {"tools": tools}

    @property
    def _folder(self) -> Path:
        return Path(self.games_dir) if self.games_dir else BUILT_IN

    def _known_games(self) -> Sequence[GameInfo]:
        if self.online is not None:
            return read_online_run(self.online).infos()
        return list_games(self._folder).games

    def _game_of(self, spec: TrialSpec) -> GameInfo:
        name = str(spec.prompt.metadata.get("game", spec.prompt.id))
        info = pick_game(name, self._known_games(), self._folder)
        planned = spec.prompt.metadata.get("sourceSha256", info.source_sha256)
        if planned != info.source_sha256:
            message = f"{info.source} has changed since this run was planned"
            raise GameProblem(message, hint="start a new run with the game as it is now")
        return info

    def _log_path(self, spec: TrialSpec) -> tuple[Path | None, str]:
        if self.logs_dir is None:
            return None, KEPT_LOG
        readable = self.log_names.get(spec.prompt.id, spec.folder)
        name = f"{spec.raw_folder.replace(spec.folder, readable, 1)}.jsonl"
        return Path(self.logs_dir, name), f"{self.logs_prefix}{name}"


def _derived_again(path: Path, evidence: dict[str, Any]) -> tuple[bool, str]:
    """Whether the evidence of a trial is what follows from its log."""
    result = derive_result(read_log(path))
    found = {"result": result, "scores": score_all(result)}
    found = msgspec.json.decode(msgspec.json.encode(found))
    for name, value in found.items():
        if evidence.get(name) != value:
            return False, f"the {name} in the row are not those that follow from the log"
    return True, ""


TASK = """\
You play one game. It shows a picture of 64x64 pixels in 16 colours, and you act on it. Nobody \
tells you the rules: find out what the actions do, what completes a level, and what loses it. \
The same rules hold in all levels of the game.

Goal: complete every level with as few actions as you can. {limits} A reset of a level costs one \
action; two resets in a row start the whole game again from level 1. A refused command costs \
nothing. Stop when the game says WIN, or when nothing you can still do would help."""

MCP = """\
With tools: the MCP server `arc` has the tools look, act, click, reset and status. look shows the \
whole picture, act does ACTION1..ACTION5 or ACTION7, click does ACTION6 at a pixel."""

SHELL = """\
With a shell: the command `arc-play` is on your PATH and does the same (should your shell not \
find it, its full path is in $ARC_PLAY).
  arc-play look                      the whole picture, one hex digit per block of equal pixels
  arc-play act ACTION1 [ACTION2 ..]  do actions in order
  arc-play click X Y                 do ACTION6 at a pixel; X from the left, Y from the top, 0..63
  arc-play reset                     restart the level
  arc-play status                    state, level, what is used and which actions there are"""

END = """\
Each answer says what changed. Look first, then act; think about what each answer shows. The game \
keeps its own record: what you say about the result counts for nothing, only what you did. Do not \
look for the game's files or source; play it."""


EVERYTHING = DisplayOptions()

MEMORY = """\
Keep notes in the file NOTES.md of your working folder: what you have found out about the game, \
what you tried and what you mean to do next. Read it before you act, and bring it up to date \
after each level; you may forget everything else."""

MCP_IMAGE = MCP.replace("look shows the whole picture", "look gives the whole picture as an image")
SHELL_IMAGE = SHELL.replace(
    "arc-play look                      the whole picture, one hex digit per block of equal pixels",
    "arc-play look --png FILE           the whole picture, as an image file",
)
END_GRID = END.replace("Each answer says what changed.", "Each answer shows the whole picture.")
END_LOOK = END.replace(
    "Each answer says what changed. Look first, then act;", "Look, act, and look again;"
)


def run_tools(shows: DisplayOptions, *, memory_file: bool) -> list[str]:
    """What a player is given, by name: what a run is known by in comparisons."""
    return [*shows.names, *(["memory"] if memory_file else [])]


def player_prompt(limits: Limits, *, mcp: bool = True, shows: DisplayOptions = EVERYTHING) -> str:
    """Write the prompt, which is the same for every game."""
    budgets = [
        f"{n} {what}"
        for n, what in ((limits.max_steps, "actions"), (limits.max_resets, "resets"))
        if n is not None
    ]
    text = "There is no limit on actions."
    if budgets:
        text = f"You have at most {' and '.join(budgets)}."
    access = [MCP, SHELL] if shows.grid else [MCP_IMAGE, SHELL_IMAGE]
    end = END if shows.diff else END_GRID if shows.grid else END_LOOK
    return "\n\n".join([TASK.format(limits=text), *access[0 if mcp else 1 :], end])


@dataclass(frozen=True)
class ArcGrader(Grader):
    """Passes when the game was won; the score is the official percentage as a share of 1."""

    name = "arc"
    code_version: ClassVar[str] = "1"  # raise this when a verdict changes, also by a formula
    formula: str = "official"

    @cached_property
    def version(self) -> str:
        """The version of the code, followed by the formula unless it is the default."""
        is_default = self.formula == type(self).formula
        return self.code_version if is_default else f"{self.code_version}-{self.formula}"

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Grade by the evidence; without usable baselines by levels, and the reasoning says so."""
        evidence = trial.evidence
        if evidence.get("benchmark") != "arc":
            msg = "this trial has no evidence of an ARC game"
            raise PluginError(msg, hint="grade only the output of `assay arc run`")
        result: dict[str, Any] = evidence["result"]
        score: dict[str, Any] = evidence["scores"][self.formula]
        done, total = result["levelsCompleted"], result["levelCount"]
        percent = score.get("scorePercent")
        outcome = {
            "levelsCompleted": done,
            "levels": total,
            "stopReason": result["stopReason"],
            "scorePercent": percent,
            "formula": self.formula,
            "measures": _measures(result, self.formula, percent),
        }
        actions = outcome["measures"]["actions"]
        ended = str(result["stopReason"]).replace("_", " ")
        reasoning = f"{done} of {total} levels, {actions} actions, {ended}"
        if percent is not None:
            reasoning = f"{percent:.2f} % {self.formula}: {reasoning}"
        else:
            reasoning += f"; no {self.formula} score ({score.get('reason')}): scored by levels"
            percent = 100 * done / total
        return Grade(
            pass_=bool(result["won"]), score=percent / 100, reasoning=reasoning, outcome=outcome
        )


def _measures(result: dict[str, Any], formula: str, percent: float | None) -> dict[str, float]:
    """What compare and report show of games besides the score, which is a share of 1 there."""
    measures: dict[str, float] = {
        "levels": result["levelsCompleted"],
        "actions": sum(play["actions"] for play in result.get("plays", ())),
    }
    return measures if percent is None else {f"{formula} %": percent, **measures}
