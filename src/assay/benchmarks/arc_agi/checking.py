"""Replays the logs of a run in the real engine, in a child process, and says where they differ."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.catalog.games import list_games
from assay.benchmarks.arc_agi.engine.replay import Replay
from assay.benchmarks.arc_agi.engine.surroundings import engine_env
from assay.benchmarks.arc_agi.log.reader import read_log
from assay.benchmarks.arc_agi.problems import ArcProblem
from assay.seams import Machine

ARGV = (sys.executable, "-m", "assay.benchmarks.arc_agi.verify_log", "-")
FIRST_S, EACH_S = 60.0, 120.0


def check_logs(logs: Sequence[Path], games: Path, host: Machine) -> list[Replay]:
    """Replay logs with our copies of their games; one engine process does them all."""
    folders = {info.game_id: info.folder for info in list_games(games).games}
    found = [_game_of(log, folders) for log in logs]
    pairs = [
        msgspec.json.encode((str(log.resolve()), str(game.resolve())))
        for log, game in zip(logs, found, strict=True)
        if isinstance(game, Path)
    ]
    answers = iter(_ask(pairs, host)) if pairs else iter(())
    return [
        next(answers, _broken("the engine gave no answer")) if isinstance(game, Path) else game
        for game in found
    ]


def changed_logs(folder: Path, expected: Mapping[str, str]) -> dict[str, str]:
    """Say which logs are missing or not those that were written when the run was played."""
    changed = {}
    for name, sha256 in expected.items():
        path = folder / name
        if not path.is_file() or path.is_symlink():
            changed[name] = "the log is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            changed[name] = "the log was changed after the run"
    return changed


def _game_of(log: Path, folders: Mapping[str, Path]) -> Path | Replay:
    try:
        game_id = read_log(log).header.game_id
    except (ArcProblem, OSError) as problem:
        return _broken(str(problem))
    return folders.get(game_id) or _broken(f"game {game_id} is not among our games")


def _ask(pairs: Sequence[bytes], host: Machine) -> list[Replay]:
    said = b"\n".join(pairs) + b"\n"
    limit_s = FIRST_S + EACH_S * len(pairs)
    done = host.run(ARGV, stdin=said, env=engine_env(), timeout_s=limit_s)
    lines = done.stdout.splitlines()
    replays = [msgspec.json.decode(line, type=Replay) for line in lines if line.startswith(b"{")]
    if len(replays) < len(pairs):
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no words"]
        missing = _broken(f"the engine process ended early: {words[0]}")
        replays += [missing] * (len(pairs) - len(replays))
    return replays


def _broken(why: str) -> Replay:
    return Replay(replayed=False, n_actions=0, difference=why)
