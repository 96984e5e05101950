"""ARC-AGI-3: what a step costs through MCP and arc-play against the bare engine; sizes; listing.

python -m benchmarks.arc [STEPS]     default 300; the log is on disk, synced at every step
"""

import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay_arc.catalog import BUILT_IN, GameInfo, list_games
from assay_arc.log import read_log, unpack_frames
from assay_arc.world import GamePlan, close_game, plan_game, wait_ready, write_launchers

TOKEN = re.compile(r"\d{1,3}|[A-Za-z]+|[^\sA-Za-z0-9]")
"""A rough count of what a model's tokenizer makes of text; the same for both sides."""


def main() -> int:
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print(f"{n_steps} random actions in each game; times are medians of one step, in ms\n")
    print("| game | engine | MCP | MCP adds | arc-play, 20 at once | arc-play, one each |")
    print("|---|--:|--:|--:|--:|--:|")
    sizes: list[tuple[int, int, int, int]] = []
    added = []
    for info in list_games().games:
        bare = bare_engine(info, n_steps)
        mcp, own = through_mcp(info, n_steps)
        sizes += own
        many, one = through_command(info, min(n_steps, 60))
        added.append(mcp - bare)
        cells = " | ".join(f"{value:.2f}" for value in (bare, mcp, mcp - bare, many, one))
        print(f"| {info.game_id} | {cells} |")
    print(f"\nMCP adds {statistics.mean(added):.2f} ms a step on average (goal: at most 2)")
    ours, theirs, our_tokens, their_tokens = (
        statistics.mean(column) for column in zip(*sizes, strict=True)
    )
    print(
        f"observation of an action: {ours:.0f} bytes, about {our_tokens:.0f} tokens; the seed's "
        f"JSON frame: {theirs:.0f} bytes, about {their_tokens:.0f} tokens "
        f"(1/{theirs / ours:.0f} and 1/{their_tokens / our_tokens:.0f}; goal: a tenth)"
    )
    list_25()
    return 0


def bare_engine(info: GameInfo, n_steps: int) -> float:
    """Time the engine alone, in a process that does nothing else."""
    code = (
        "import sys, time, random, json, statistics\n"
        "from pathlib import Path\n"
        "from assay_arc.catalog import read_game\n"
        "from assay_arc.engine import ToolkitEngine\n"
        "engine = ToolkitEngine(read_game(Path(sys.argv[1])))\n"
        "seen, rng, times = engine.start(), random.Random(1), []\n"
        "for _ in range(int(sys.argv[2])):\n"
        "    n = rng.choice(seen.available_actions)\n"
        "    place = (rng.randrange(64), rng.randrange(64)) if n == 6 else (None, None)\n"
        "    over = seen.state in ('GAME_OVER', 'WIN')\n"
        "    began = time.perf_counter()\n"
        "    seen = engine.act('RESET') if over else engine.act(f'ACTION{n}', *place)\n"
        "    times.append(time.perf_counter() - began)\n"
        "print(statistics.median(times) * 1000)\n"
    )
    argv = [sys.executable, "-c", code, str(info.folder), str(n_steps)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def through_mcp(info: GameInfo, n_steps: int) -> tuple[float, list[tuple[int, int, int, int]]]:
    """Time tool calls over stdio, and measure what comes back."""
    with running(info) as (plan, programs, log):
        server = subprocess.Popen(
            [programs["arc-mcp"]],
            env={**os.environ, **plan.player_env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            params = {"name": name, "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline())["result"]
            return answer

        times, texts = drive(n_steps, call)
        stdin.close()
        server.wait()
        stdout.close()
        return statistics.median(times) * 1000, sizes_of(texts, log)


def drive(
    n_steps: int, call: Callable[[int, str, dict[str, Any]], dict[str, Any]]
) -> tuple[list[float], list[str]]:
    """Act at random through a way in; give times and answers."""
    rng, times, texts = random.Random(1), [], []
    text = call(0, "status", {})["content"][0]["text"]
    actions = re.findall(r"ACTION\d", text.split("available:")[1])
    for number in range(1, n_steps + 1):
        name, arguments = "act", {"action": rng.choice(actions)}
        if "GAME_OVER" in text or "WIN" in text.split("\n")[0]:
            name, arguments = "reset", {}
        elif arguments["action"] == "ACTION6":
            name, arguments = "click", {"x": rng.randrange(64), "y": rng.randrange(64)}
        began = time.perf_counter()
        text = call(number, name, arguments)["content"][0]["text"]
        times.append(time.perf_counter() - began)
        texts.append(text)
    return times, texts


def sizes_of(texts: list[str], log: Path) -> list[tuple[int, int, int, int]]:
    """Compare each answer with the observation the seed's driver would have printed."""
    rows = []
    answers = [e.answer for e in read_log(log).events[2:] if e.answer is not None]
    for text, answer in zip(texts, answers, strict=False):
        frames = unpack_frames(answer.frames)
        grids = [[list(f[y * 64 : y * 64 + 64]) for y in range(64)] for f in frames]
        seed = json.dumps({"state": answer.state, "frame": grids, "levels_completed": 0})
        rows.append((len(text), len(seed), len(TOKEN.findall(text)), len(TOKEN.findall(seed))))
    return rows


def through_command(info: GameInfo, n_steps: int) -> tuple[float, float]:
    """Time the command: many actions in one call, and a call for each."""
    with running(info) as (plan, programs, _):
        env = {**os.environ, **plan.player_env}
        action = ["click", "1", "1"] if info.base_id in ("od01", "so01") else ["act", "ACTION1"]
        one = []
        for _ in range(n_steps // 3):
            began = time.perf_counter()
            subprocess.run([programs["arc-play"], *action], env=env, capture_output=True)
            one.append(time.perf_counter() - began)
        many = []
        for _ in range(3):
            began = time.perf_counter()
            repeated = ["act", *["ACTION1"] * 20] if action[0] == "act" else action
            subprocess.run([programs["arc-play"], *repeated], env=env, capture_output=True)
            many.append((time.perf_counter() - began) / (20 if action[0] == "act" else 1))
        return statistics.median(many) * 1000, statistics.median(one) * 1000


@contextmanager
def running(info: GameInfo) -> Iterator[tuple[GamePlan, dict[str, Path], Path]]:
    """Run a game process with its log on disk."""
    with (
        tempfile.TemporaryDirectory(prefix="arc") as name,
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as disk,
    ):
        log = Path(disk, "log.jsonl")
        plan = plan_game(info.folder, log, Path(name) / "s" / "g")
        programs = write_launchers(Path(name) / "bin")
        process = subprocess.Popen(plan.argv, env={**os.environ, **plan.env})
        try:
            wait_ready(plan)
            yield plan, programs, log
        finally:
            close_game(plan, "player_quit")
            process.wait()


def list_25() -> None:
    """List 25 games, for the first time and again."""
    with tempfile.TemporaryDirectory(prefix="arc") as name:
        folder = Path(name)
        games = list_games(BUILT_IN).games
        for n in range(25):
            info = games[n % len(games)]
            home = folder / "environment_files" / f"{info.base_id}{n}" / "v1"
            shutil.copytree(info.folder, home, ignore=shutil.ignore_patterns("__pycache__"))
            data = json.loads((home / "metadata.json").read_text())
            data["game_id"] = f"{info.base_id}{n}-v1"
            (home / "metadata.json").write_text(json.dumps(data))
            source = home / info.source.name
            source.write_text(source.read_text() + f"\n# copy {n}\n")
        for which in ("first time", "again"):
            began = time.perf_counter()
            argv = [sys.executable, "-m", "assay", "arc", "browse"]
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
            assert "25 environments" in done.stdout
            print(f"25 games listed, {which}: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
