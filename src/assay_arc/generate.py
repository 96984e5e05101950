"""Writes the folder for another harness: instructions and two programs that need only arc-agi."""

import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from assay.records.text import counted_noun
from assay_arc.catalog import BUILT_IN, GameInfo
from assay_arc.log import read_time
from assay_arc.store import read_json, write_bytes

TEMPLATES = Path(__file__).parent / "generated"
PROGRAMS = ("game_driver.py", "collect_results.py")
SESSIONS, RESULT, PLANS = "sessions", "result.json", "plans.json"
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemini": (".gemini/settings.json", {"model": {"disableLoopDetection": True}}),
    "opencode": (
        "opencode.json",
        {"$schema": "https://opencode.ai/config.json", "permission": "allow"},
    ),
}
"""What a harness must have in its settings to play: a file of the generated folder."""
PROMPT = """\
You are playing ARC-AGI games: {games}. Read instructions.md in this folder, and play each game \
with ./game_driver as it says: read the observations, find out the rules, and send actions. Do not \
read the games' files. When all games are played, run ./collect_results --sessions-dir sessions \
with your model's name after --model."""
MARK = "SETTINGS: dict[str, Any] = {}  # filled in by: assay arc generate\n"
GAMES = "environment_files"


class HarnessPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What another harness is to play, and under which limits."""

    harness: str
    games: tuple[GameInfo, ...]
    seed: int
    max_steps: int | None
    max_resets: int | None
    ref_run_id: str
    generated: str
    with_games: bool
    env_dir: str = ""
    """Where the games are on this machine."""


def generate(plan: HarnessPlan, folder: Path) -> dict[str, Any]:
    """Write all files; return the reference's summary of them."""
    earlier = set_aside(folder)
    settings = {
        "harness": plan.harness,
        "seed": plan.seed,
        "max_steps": plan.max_steps,
        "max_resets": plan.max_resets,
        "games": {info.game_id: info.source_sha256 for info in plan.games},
        **({} if plan.with_games else {"env_dir": plan.env_dir}),
    }
    for name in PROGRAMS:
        write_bytes(folder / name, fill_program(TEMPLATES / name, settings))
        write_launcher(folder / name)
    if plan.with_games:
        copy_games(plan.games, folder / GAMES)
    else:  # of an earlier set
        shutil.rmtree(folder / GAMES, ignore_errors=True)
    if plan.harness in CONFIGS:
        name, config = CONFIGS[plan.harness]
        if not (folder / name).exists():  # the user may have added settings
            write_bytes(folder / name, _json_text(config).encode())
    write_bytes(folder / "instructions.md", instructions(plan).encode())
    keep_plan(folder, plan)
    (folder / "runs").mkdir(exist_ok=True)
    return {
        "status": "generated",
        "instructions": str(folder / "instructions.md"),
        "game_driver": str(folder / PROGRAMS[0]),
        "collect_results": str(folder / PROGRAMS[1]),
        "game_count": len(plan.games),
        "seed": plan.seed,
        "ref_run_id": plan.ref_run_id,
        **({"earlier": str(earlier)} if earlier else {}),
    }


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an import needs to know of a plan: a game that is not in the result was not played."""

    generated: str
    games: tuple[str, ...]
    seed: int
    max_steps: int | None
    max_resets: int | None


def keep_plan(folder: Path, plan: HarnessPlan) -> None:
    """Add a plan to those that were generated for a harness."""
    kept = KeptPlan(
        generated=plan.generated,
        games=tuple(info.game_id for info in plan.games),
        seed=plan.seed,
        max_steps=plan.max_steps,
        max_resets=plan.max_resets,
    )
    write_bytes(folder / PLANS, msgspec.json.encode([*read_plans(folder), kept]) + b"\n")


def read_plans(folder: Path) -> list[KeptPlan]:
    """The plans that were generated for a harness, oldest first."""
    path = folder / PLANS
    return list(read_json(path, list[KeptPlan])) if path.is_file() else []


def find_plan(folder: Path, game_ids: Sequence[str], timestamp: str) -> KeptPlan | None:
    """The newest plan with all these games; rather one that is older than the result."""
    fitting = [plan for plan in read_plans(folder) if set(game_ids) <= set(plan.games)]
    at = read_time(timestamp)
    older = [plan for plan in fitting if read_time(plan.generated) <= at]
    return next(reversed(older or fitting), None)


def set_aside(folder: Path) -> Path | None:
    """Move what was played in this folder before: it must be neither collected nor gone on with."""
    old = [folder / name for name in (SESSIONS, RESULT) if (folder / name).exists()]
    if not old:
        return None
    number = 1
    while (target := folder / f"earlier-{number}").exists():
        number += 1
    target.mkdir()
    for path in old:
        path.rename(target / path.name)
    return target


def write_launcher(program: Path) -> None:
    """Make a program of the folder startable, with the Python that has the toolkit.

    Harnesses start shells in which another Python is found, or none.
    """
    program.chmod(0o755)
    launcher = program.with_suffix("")
    text = (TEMPLATES / "launcher.sh").read_text(encoding="utf-8")
    write_bytes(launcher, text.replace("PROGRAM", launcher.name).encode())
    launcher.chmod(0o755)
    if find_spec("arc_agi") is not None:
        write_bytes(program.with_name(".python"), f"{sys.executable}\n".encode())


def fill_program(template: Path, settings: dict[str, Any]) -> bytes:
    """Put the settings into a program, as a Python literal, so that none of them is executed."""
    text = template.read_text(encoding="utf-8")
    before, mark, after = text.partition(MARK)
    if not mark:
        msg = f"{template}: the line for the settings is missing"
        raise ValueError(msg)
    return f"{before}SETTINGS: dict[str, Any] = {settings!r}  # fmt: skip\n{after}".encode()


def copy_games(games: Sequence[GameInfo], target: Path) -> None:
    """Copy games for a machine that does not have them, without their baselines."""
    shutil.rmtree(target, ignore_errors=True)
    for info in games:
        home = target / info.base_id / info.folder.name
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(info.source, home / info.source.name)
        metadata = msgspec.json.decode((info.folder / "metadata.json").read_bytes())
        metadata.pop("baseline_actions", None)
        write_bytes(home / "metadata.json", msgspec.json.format(msgspec.json.encode(metadata)))


def instructions(plan: HarnessPlan) -> str:
    """Fill in the instructions by replacing placeholders as text."""
    ids = [info.game_id for info in plan.games]
    if plan.with_games:
        note = f", and `{GAMES}/` with the games"
        where = f"The games are in `{GAMES}/` of this folder, which the driver finds by itself:"
    else:
        note = ""
        where = (
            f"Put the games' files into `{GAMES}/` of this folder, where the driver looks itself, "
            "or tell it where they are with `--env-dir FOLDER`:"
        )
    driver = f"./game_driver <game_id> {plan.seed}"
    config = CONFIGS.get(plan.harness, ("", {}))[1]
    values = {
        "harness": plan.harness,
        "generated": plan.generated,
        "ref_run_id": plan.ref_run_id,
        "games": counted_noun(len(ids), "game"),
        "these_games": "this game" if len(ids) == 1 else f"these {len(ids)} games",
        "seed": str(plan.seed),
        "max_steps": _limit_text(plan.max_steps),
        "max_resets": _limit_text(plan.max_resets),
        "game_ids_text": ", ".join(ids),
        "game_ids_json": msgspec.json.encode(ids).decode(),
        "games_note": note,
        "games_text": where,
        "first_driver": f"{driver} --env-dir {GAMES}" if plan.with_games else driver,
        "driver": driver,
        "prompt": PROMPT.format(games=", ".join(ids)),
        "config": _json_text(config).strip(),
    }
    guidance = (TEMPLATES / f"guidance_{plan.harness}.md").read_text(encoding="utf-8")
    text = (TEMPLATES / "instructions.md").read_text(encoding="utf-8")
    text = text.replace("{{guidance}}", guidance.strip())
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _json_text(config: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(config)).decode() + "\n"


def is_built_in(folder: Path) -> bool:
    """Whether games come from the package, so that other machines may not have them."""
    return folder.resolve() == BUILT_IN.resolve()


def _limit_text(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)
