"""Games on the official server: its games, its scorecards, and what a run keeps of them."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.plugin import Machine
from assay_arc import GameProblem
from assay_arc.cards import seal_run
from assay_arc.catalog import GameInfo, OfficialServer, OnlineGame
from assay_arc.engine import engine_env
from assay_arc.store import OfficialCard, RunMeta, StoredRun, write_json

BASE_URL = "https://three.arcprize.org"
KEY_NAME = "ARC_API_KEY"
ARGV = (sys.executable, "-m", "assay_arc.engine_process", "online")
LIMIT_S = 120.0
CARD_FILE = "official-scorecard.json"
NO_COPY = "online"
"""Stands for the hash of a source that we do not have."""
_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_ERRNO = re.compile(r"\[Errno -?\d+\] ([^()\"']+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class OnlineInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A game as the server describes it, and of our own copy what the server does not say."""

    game_id: str
    title: str = ""
    tags: tuple[str, ...] = ()
    baselines: tuple[int, ...] | None = None
    source_sha256: str = NO_COPY

    def info(self) -> GameInfo:
        nowhere = Path(os.devnull)
        return GameInfo(
            game_id=self.game_id,
            title=self.title or self.game_id,
            tags=self.tags,
            level_tags=(),
            baselines=self.baselines,
            date_downloaded="",
            folder=nowhere,
            source=nowhere,
            source_sha256=self.source_sha256,
        )


class OnlineRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is kept of an online run, so that it can be resumed; not the key, only its name."""

    base_url: str = BASE_URL
    key_name: str = KEY_NAME
    card_id: str = ""
    games: tuple[OnlineInfo, ...] = ()

    @property
    def server(self) -> OfficialServer:
        return OfficialServer(base_url=self.base_url, key=read_key(self.key_name))

    @property
    def card_url(self) -> str:
        return f"{self.base_url}/scorecards/{self.card_id}"

    def infos(self) -> list[GameInfo]:
        return [game.info() for game in self.games]

    def game(self, info: GameInfo) -> OnlineGame:
        return OnlineGame(server=self.server, card_id=self.card_id, info=info)


def read_online_run(data: Mapping[str, Any]) -> OnlineRun:
    return msgspec.convert(data, OnlineRun)


def start_card(meta: RunMeta, online: OnlineRun, host: Machine) -> None:
    """Open a scorecard for the games of a run, and note it in the metadata of the run."""
    chosen = tuple(game for game in online.games if game.game_id in meta.game_ids)
    answer = _ask(host, online.server, op="open", tags=["assay", meta.harness])
    opened = msgspec.structs.replace(online, games=chosen, card_id=str(answer["card_id"]))
    meta.benchmark = {**(meta.benchmark or {}), "online": msgspec.to_builtins(opened)}
    meta.official = OfficialCard(card_id=opened.card_id, url=opened.card_url)


def finish_card(run: StoredRun, host: Machine) -> None:
    """Close the scorecard of a run that is complete, and keep it as the server scored it."""
    meta = run.meta
    if meta.official is None or meta.official.closed or meta.status != "completed":
        return
    online = read_online_run((meta.benchmark or {})["online"])
    card = dict(_ask(host, online.server, op="close", card_id=online.card_id) or {})
    write_json(run.folder / CARD_FILE, card)
    score = card.get("score")
    meta.official.closed = True
    meta.official.score_percent = float(score) if isinstance(score, int | float) else None
    seal_run(run.folder, meta)


def read_key(name: str) -> str:
    """The key that the variable holds; it is in no message and in no file."""
    key = os.environ.get(name, "").strip() if _NAME.fullmatch(name) else ""
    if not key:
        message = f"the environment variable {name!r} has no key for the official server"
        example = name if _NAME.fullmatch(name) else KEY_NAME
        hint = f"export {example}=..., or name another variable with --api-key-env"
        raise GameProblem(message, hint=hint)
    return key


def check_url(url: str) -> str:
    """An address without a name, a password or a query in it."""
    if not _URL.fullmatch(url):
        message = f"{url!r} is not the address of a server, such as {BASE_URL}"
        raise GameProblem(message)
    return url.rstrip("/")


def fetch_games(
    base_url: str, key_name: str, copies: Sequence[GameInfo], host: Machine
) -> OnlineRun:
    """Ask the server for its games; our own copies say what it keeps to itself."""
    run = OnlineRun(base_url=check_url(base_url), key_name=key_name)
    local = {info.game_id: info for info in copies}
    games = []
    for game in msgspec.convert(_ask(host, run.server, op="games"), list[OnlineInfo]):
        if copy := local.get(game.game_id):
            baselines = game.baselines or copy.baselines
            game = msgspec.structs.replace(
                game, baselines=baselines, source_sha256=copy.source_sha256
            )
        games.append(game)
    if not games:
        message = f"{run.base_url} offers no games"
        raise GameProblem(message, hint=f"is the key in {key_name} valid?")
    return msgspec.structs.replace(run, games=tuple(games))


def _ask(host: Machine, server: OfficialServer, **request: Any) -> Any:
    stdin = msgspec.json.encode({"server": msgspec.to_builtins(server), **request})
    done = host.run(ARGV, stdin=stdin, env=engine_env(), timeout_s=LIMIT_S)
    lines = done.stdout.splitlines()
    if done.exit_code or not lines:
        said = done.stderr.decode("utf-8", "replace").replace(server.key, "***")
        reason = (said.strip().splitlines() or ["no answer in time"])[-1]
        raise _unusable(server.base_url, reason)
    return msgspec.json.decode(lines[-1])


def _unusable(url: str, reason: str) -> GameProblem:
    """Tell a server that cannot be reached, by the names that requests has for it."""
    if reason.partition(":")[0] not in ("ConnectionError", "ConnectTimeout", "ReadTimeout"):
        message = f"{url} cannot be used: {reason}"
        return GameProblem(message, hint="check the address, the key and the network")
    system = _ERRNO.search(reason)
    message = f"{url} cannot be reached: {system[1] if system else reason}"
    return GameProblem(message, hint="check the address and the network")
