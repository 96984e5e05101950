#!/usr/bin/env python3
# ruff: noqa: EM101, EM102
"""ARC-AGI result collector: reads the session logs of game_driver.py and writes the result file.

Needs Python 3.12 and nothing else.

Usage:
  python collect_results.py --sessions-dir ./sessions --output result.json --harness NAME
                            [--seed N] [--model NAME] [--version TEXT] [--notes TEXT]
  python collect_results.py --results-file result.json      check a result file

A log whose last line was torn off by a crash is read up to there. Only what the engine executed
counts: refused commands do not, a reset of a level is one action, and a reset of the whole game
begins another play. The best play is reported.
"""

import argparse
import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {}  # filled in by: assay arc generate

STATES = ("NOT_PLAYED", "NOT_FINISHED", "PLAYING", "WIN", "GAME_OVER")
TOP = {
    "schema_version": str,
    "harness": str,
    "timestamp": str,
    "seed": int,
    "games": list,
    "metadata": dict,
}
GAME = {
    "game_id": str,
    "state": str,
    "levels_completed": int,
    "total_levels": int,
    "total_actions": int,
    "total_resets": int,
    "levels": list,
}
LEVEL = {"level_index": int, "completed": bool, "actions_taken": int, "baseline_actions": int}


class CollectError(Exception):
    """Something that keeps a result from being made."""


class Play:
    """One play: from one full reset to the next."""

    def __init__(self) -> None:
        self.actions = self.levels_completed = 0
        self.state = "NOT_PLAYED"
        self.marks: list[tuple[int, int]] = []

    def take(self, answer: dict[str, Any]) -> None:
        """Note where the game stands after an action."""
        self.state = answer["state"]
        if answer["levelsCompleted"] != self.levels_completed:
            self.levels_completed = answer["levelsCompleted"]
            self.marks.append((self.levels_completed, self.actions))

    def levels(self, n_levels: int) -> list[dict[str, Any]]:
        """Share the actions out among the levels; two won in one action give the second none."""
        spent = [0] * n_levels
        done, before = 0, 0
        for reached, actions in self.marks:
            if done < n_levels:
                spent[done] += actions - before
            done, before = max(done, reached), actions
        if done < n_levels:
            spent[done] += self.actions - before
        return [
            {
                "level_index": i + 1,
                "completed": i < self.levels_completed,
                "actions_taken": taken,
                "baseline_actions": None,
            }
            for i, taken in enumerate(spent)
        ]


def read_session(path: Path) -> list[dict[str, Any]]:
    """Read a log; a torn last line is left out, any other fault is an error."""
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:
        records = [json.loads(line) for line in lines]
    except ValueError as error:
        raise CollectError(f"{path}: a line in the middle is damaged: {error}") from error
    if not records or not isinstance(records[0], dict):
        raise CollectError(f"{path}: not a session log of game_driver.py")
    is_ours = records[0].get("schema") == "assay-arc-log/1"
    if not is_ours and records[0].get("type") not in ("observation", "action"):
        raise CollectError(f"{path}: not a session log of game_driver.py")
    return records


def collect_game(path: Path) -> dict[str, Any]:
    """Make the row of one game from its log."""
    header, *records = read_session(path)
    if "schema" not in header:
        return collect_written(path, [header, *records])
    plays: list[Play] = []
    steps = resets = 0
    for record in records:
        answer = record.get("answer")
        if record.get("outcome") != "executed" or answer is None:
            continue
        is_reset = record["action"] == "RESET"
        steps += not is_reset
        resets += is_reset and bool(plays)
        if not plays or (is_reset and answer["fullReset"]):
            plays.append(Play())
        else:
            plays[-1].actions += 1
        plays[-1].take(answer)
    best = max(plays or [Play()], key=lambda play: (play.levels_completed, -play.actions))
    return {
        "game_id": header["gameId"],
        "state": best.state,
        "levels_completed": best.levels_completed,
        "total_levels": header["levelCount"],
        "total_actions": steps,
        "total_resets": resets,
        "levels": best.levels(header["levelCount"]),
        "session": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "plays": len(plays),
    }


def collect_written(path: Path, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the row of a game from lines that the player wrote: {"type", "data"} each.

    What follows from them is a claim: the import marks it as unverified.
    """
    sys.stderr.write(f"WARNING: {path}: written by the player, so that nothing can be verified\n")
    plays: list[Play] = []
    steps = resets = n_levels = 0
    command = None
    for record in records:
        data = record.get("data") or {}
        if record.get("type") == "action":
            command = data.get("command", "step")
        elif record.get("type") == "observation" and "state" in data:
            answer = {"state": data["state"], "levelsCompleted": data.get("levels_completed", 0)}
            n_levels = max(n_levels, data.get("total_levels") or 0, answer["levelsCompleted"])
            steps += command == "step"
            resets += command == "reset"
            if not plays or (
                command == "reset" and answer["levelsCompleted"] < plays[-1].levels_completed
            ):
                plays.append(Play())
            elif command is not None:
                plays[-1].actions += 1
            plays[-1].take(answer)
            command = None
    best = max(plays or [Play()], key=lambda play: (play.levels_completed, -play.actions))
    return {
        "game_id": path.stem,
        "state": best.state,
        "levels_completed": best.levels_completed,
        "total_levels": n_levels,
        "total_actions": steps,
        "total_resets": resets,
        "levels": best.levels(n_levels),
        "plays": len(plays),
    }


def collect(args: argparse.Namespace) -> dict[str, Any]:
    """Make the whole result; games that were not played say so."""
    if not args.sessions_dir.is_dir():
        raise CollectError(f"{args.sessions_dir}: no such folder of sessions")
    games = [collect_game(path) for path in sorted(args.sessions_dir.glob("*.jsonl"))]
    played = {game["game_id"] for game in games}
    for game_id in SETTINGS.get("games", {}):
        if game_id not in played:
            games.append(
                {
                    "game_id": game_id,
                    "state": "NOT_PLAYED",
                    "levels_completed": 0,
                    "total_levels": 0,
                    "total_actions": 0,
                    "total_resets": 0,
                    "levels": [],
                }
            )
    metadata = {"model": args.model, "version": args.version, "notes": args.notes}
    for name in ("max_steps", "max_resets"):
        if name in SETTINGS:
            metadata[name] = SETTINGS[name]
    return {
        "schema_version": "1.0.0",
        "scoring_formula_version": "1.0.0",
        "harness": args.harness,
        "timestamp": datetime.now(UTC).isoformat(),
        "seed": args.seed,
        "games": games,
        "metadata": metadata,
    }


def check(result: Any) -> list[str]:
    """List what is wrong with a result; the import checks much more."""
    if not isinstance(result, dict):
        return ["the result must be an object"]
    errors = fields(result, TOP, "")
    for i, game in enumerate(result["games"] if isinstance(result.get("games"), list) else []):
        place = f"games[{i}]"
        if not isinstance(game, dict):
            errors.append(f"{place} must be an object")
            continue
        errors += fields(game, GAME, f"{place}.")
        if game.get("state") not in STATES:
            errors.append(f"{place}.state must be one of {', '.join(STATES)}")
        for j, level in enumerate(game["levels"] if isinstance(game.get("levels"), list) else []):
            if isinstance(level, dict):
                errors += fields(level, LEVEL, f"{place}.levels[{j}].")
            else:
                errors.append(f"{place}.levels[{j}] must be an object")
    return errors


def fields(row: dict[str, Any], known: dict[str, type], place: str) -> list[str]:
    """Check that fields are there and of their type; a baseline may be null."""
    errors = []
    for name, kind in known.items():
        value = row.get(name)
        if name not in row:
            errors.append(f"Missing required field: {place}{name}")
        elif name == "baseline_actions" and value is None:
            continue
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            errors.append(f"{place}{name} must be of type {kind.__name__}")
        elif isinstance(value, int) and value < 0 and name != "seed":
            errors.append(f"{place}{name} must not be negative")
    return errors


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="ARC-AGI Result Collector")
    parser.add_argument("--sessions-dir", type=Path, help="Folder of session logs")
    parser.add_argument("--results-file", type=Path, help="Result file to check")
    parser.add_argument("--output", type=Path, default=Path("result.json"))
    parser.add_argument("--harness", default=SETTINGS.get("harness", "unknown"))
    parser.add_argument("--seed", type=int, default=SETTINGS.get("seed", 0))
    parser.add_argument("--model", default="unknown", help="Model identifier")
    parser.add_argument("--version", default="unknown", help="Harness version")
    parser.add_argument("--notes", default="", help="Additional notes")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Collect or check; 1 when something is wrong."""
    args = read_arguments(argv)
    try:
        if args.results_file:
            return say_check(args.results_file)
        if not args.sessions_dir:
            raise CollectError("--sessions-dir or --results-file required")
        result = collect(args)
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    except (CollectError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"ERROR: {error}\n")
        return 1
    won = sum(game["state"] == "WIN" for game in result["games"])
    sys.stdout.write(f"Result written to {args.output}\n")
    sys.stdout.write(f"Games: {len(result['games'])}, Completed: {won}\n")
    return 0


def say_check(path: Path) -> int:
    """Check a file and say what was found."""
    errors = check(json.loads(path.read_text(encoding="utf-8")))
    for line in ["Schema validation errors:", *(f"  - {error}" for error in errors)]:
        if errors:
            sys.stderr.write(line + "\n")
    if not errors:
        sys.stdout.write(f"{path}: valid\n")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
