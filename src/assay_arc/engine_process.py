"""The processes with the real engine in them: `python -m assay_arc.engine_process COMMAND`.

serve                    Play one game by the requests that come over a private socket, and write
                         its event log; settings in ASSAY_ARC_GAME. Started again with the same log
                         it replays the log and goes on.
look GAME_FOLDER [SEED]  Write what the engine answers to the first reset, as JSON.
online                   Read a request to the official server from stdin, as JSON: its games, or a
                         scorecard to open or to close; write its answer as JSON.
probe                    Read game folders from stdin; write {sha256 of the source: levels or null}.
record                   Read [RECORDING, GAME_FOLDER, LOG, SEED] from stdin, a JSON array on each
                         line; play each recording of the toolkit again, write the event log of it,
                         and write the same as verify for each.
verify                   Read [LOG, GAME_FOLDER] from stdin, a JSON array on each line; replay each
                         log and write {"replayed", "nActions", "difference", "note"} for each.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.system.calls import hide_process
from assay_arc import ArcProblem, GameProblem
from assay_arc.catalog import GameInfo, OfficialServer, read_game
from assay_arc.engine import (
    OnlineEngine,
    ToolkitEngine,
    open_arcade,
    shut_network,
    toolkit_versions,
)
from assay_arc.log import GameLog, Header, Limits, LogWriter, has_header, read_log
from assay_arc.recordings import Replayer, read_recording
from assay_arc.replay import ReplayResult, header_difference, not_compared, replay_events
from assay_arc.server import (
    VARIABLE,
    BadRequest,
    Listener,
    ServeConfig,
    open_socket_folder,
    parse_request,
    read_config,
    same_token,
)
from assay_arc.session import GameSession, resume_session

PR_SET_DUMPABLE = 4
NO_PICTURE = "gives no first picture of 64x64"


def main(argv: Sequence[str]) -> int:
    """Run one command; return 2 when there is no such command."""
    match list(argv):
        case ["serve"]:
            return _serve()
        case ["look", folder]:
            return _look(Path(folder), 0)
        case ["look", folder, seed]:
            return _look(Path(folder), int(seed))
        case ["probe"]:
            return _probe()
        case ["verify"]:
            return _replay_each(
                tuple[str, str],
                lambda log, game: verify(read_log(Path(log)), read_game(Path(game))),
            )
        case ["record"]:
            return _replay_each(tuple[str, str, str, int], record)
        case ["online"]:
            return _online()
    sys.stderr.write(__doc__ or "")
    return 2


def _serve() -> int:
    """Serve one game to its end; return 1 if it cannot start or its log cannot be written."""
    try:
        config = read_config(os.environ, sys.stdin)
        os.environ.pop(VARIABLE, None)  # it holds the tokens, and the game runs in this process
        _hide_process()
        open_socket_folder(config.socket)
        os.chdir(config.socket.parent)
        if config.online is None:
            shut_network()  # a game that runs elsewhere is no code of this process
        serve(config)
    except (ArcProblem, OSError) as problem:
        sys.stderr.write(f"game process: {problem}\n")
        return 1
    return 0


def serve(config: ServeConfig) -> None:
    """Open log and game, then answer requests until the game is closed or its owner is gone."""
    parent = os.getppid()
    with LogWriter(config.log, config.copy_fd) as log:
        session = _open_session(config, log)
        session.shows = config.shows
        listener = Listener(config.socket, lambda line: _answer(line, session, config))
        # SIGTERM ends it cleanly, without an end record, since the reason is unknown.
        stopped: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
        # Ctrl-C reaches every process of a terminal; the owner ends the game.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        def should_stop() -> bool:
            # When the process that started us is gone, we have another parent.
            is_orphan = not config.stay_when_orphaned and os.getppid() != parent
            return session.closed or bool(stopped) or is_orphan

        try:
            listener.serve(should_stop)
        finally:
            listener.close()


def _open_session(config: ServeConfig, log: LogWriter) -> GameSession:
    if config.online is not None and has_header(config.log):
        # A replay would do every action once more on the official scorecard.
        message = "an online game cannot be continued by another process"
        raise GameProblem(message)
    engine: ToolkitEngine
    if config.online is not None:
        info, engine = config.online.info, OnlineEngine(config.online)
    else:
        info = read_game(config.game)
        engine = ToolkitEngine(info, config.seed)
    if has_header(config.log):
        logged = read_log(config.log)
        expected = _header(info, engine, logged.header.level_count, config.seed, config.limits)
        return resume_session(logged, expected, engine, log, _now)
    first = engine.start()
    if first is None:
        message = f"{info.source}: {info.game_id} {NO_PICTURE}"
        raise GameProblem(message)
    log.append(_header(info, engine, first.win_levels, config.seed, config.limits))
    session = GameSession(engine, log, config.limits, _now, first)
    session.begin()
    return session


def _header(
    info: GameInfo, engine: ToolkitEngine, n_levels: int, seed: int, limits: Limits
) -> Header:
    toolkit, engine_version = toolkit_versions()
    return Header(
        game_id=info.game_id,
        title=info.title,
        source_sha256=info.source_sha256,
        baselines=info.baselines,
        level_count=n_levels,
        toolkit_version=toolkit,
        engine_version=engine_version,
        seed=seed,
        seed_used=engine.seed_used,
        limits=limits,
        started_at=_now(),
    )


def _answer(line: bytes, session: GameSession, config: ServeConfig) -> tuple[dict[str, Any], bool]:
    """Answer one line; also whether the connection may stay open."""
    try:
        request, received = parse_request(line)
    except BadRequest as bad:
        # Without the token nothing is logged, and no more is said.
        if same_token(bad.token, config.token):
            return session.reject(bad.message, bad.received), True
        return {"ok": False, "error": bad.message, "text": bad.message}, False
    is_owner = same_token(request.token, config.owner_token)
    if not is_owner and not same_token(request.token, config.token):
        return {"ok": False, "error": "wrong token", "text": "wrong token"}, False
    if request.op == "close" and not is_owner:
        return session.reject("only the owner closes a game", received), True
    return session.handle(request, received), True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _hide_process() -> None:
    """Keep other processes of this user from reading our memory, environment and open files."""
    # A process that is not dumpable cannot be traced, and its /proc files belong to root.
    hide_process()
    os.dup2(2, 1)  # whatever the game prints goes to stderr


def _look(folder: Path, seed: int) -> int:
    """Write the first observation; return 1 when the game does not start."""
    out = _isolate_game()
    try:
        engine = ToolkitEngine(read_game(folder), seed)
        first = engine.start()
    except (ArcProblem, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    if first is None:
        sys.stderr.write(f"the game {NO_PICTURE}\n")
        return 1
    os.write(out, msgspec.json.encode((engine.seed_used, first.to_answer())) + b"\n")
    return 0


def _probe() -> int:
    """Count the levels of every game; null for one that does not start."""
    out = _isolate_game()
    counts: dict[str, int | None] = {}
    for line in sys.stdin:
        try:
            info = read_game(Path(line.rstrip("\n")))
            counts[info.source_sha256] = None  # if the engine fails
            first = ToolkitEngine(info).start()
            counts[info.source_sha256] = first.win_levels if first else None
        except GameProblem as problem:
            sys.stderr.write(f"{problem}\n")
    os.write(out, msgspec.json.encode(counts) + b"\n")
    return 0


def _replay_each(shape: type[Any], replay: Callable[..., ReplayResult]) -> int:
    """Replay what each line of stdin names; return 1 when one differs or cannot be read."""
    out = _isolate_game()
    all_replayed = True
    for line in sys.stdin:
        try:
            result = replay(*msgspec.json.decode(line, type=shape))
        except (ArcProblem, OSError) as problem:
            result = ReplayResult(replayed=False, n_actions=0, difference=str(problem))
        all_replayed &= result.replayed
        os.write(out, msgspec.json.encode(result) + b"\n")
    return 0 if all_replayed else 1


def verify(log: GameLog, info: GameInfo) -> ReplayResult:
    """Replay one log with our copy of its game."""
    # Checked before the engine is made: that runs the source, which may be another game's.
    if difference := header_difference(log.header, info):
        return not_compared(difference)
    result = replay_events(log, ToolkitEngine(info, log.header.seed))
    logged, here = (log.header.toolkit_version, log.header.engine_version), toolkit_versions()
    if logged == here:
        return result
    note = f"logged with arc_agi {logged[0]}, arcengine {logged[1]}; here {here[0]}, {here[1]}"
    return msgspec.structs.replace(result, note=note)


def record(recording: str, game: str, log_path: str, seed: int) -> ReplayResult:
    """Play one recording again with our copy of its game, and write the log of it."""
    recorded, info = read_recording(Path(recording)), read_game(Path(game))
    engine = ToolkitEngine(info, seed)

    def header(n_levels: int, at: str) -> Header:
        made = _header(info, engine, n_levels, seed, Limits())
        return msgspec.structs.replace(made, started_at=at)

    with LogWriter(Path(log_path)) as log:
        difference, has_frames = Replayer(engine, log).play(recorded, header)
    note = None if has_frames else "the recording has no frames"
    n_actions = max(len(recorded.answers) - 1, 0)  # the first is the start of the game
    return ReplayResult(
        replayed=difference is None, n_actions=n_actions, difference=difference, note=note
    )


class OnlineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask the official server."""

    op: Literal["games", "open", "close"]
    server: OfficialServer
    card_id: str = ""
    tags: list[str] = []
    source_url: str | None = None


def _online() -> int:
    """Ask the official server; return 1 when it does not answer."""
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=OnlineRequest)
        answer = _ask_server(open_arcade(request.server), request)
    except GameProblem as problem:
        sys.stderr.write(f"{problem.message}\n")
        return 1
    os.write(out, msgspec.json.encode(answer) + b"\n")
    return 0


def _ask_server(arcade: Any, request: OnlineRequest) -> Any:
    try:
        if request.op == "open":
            return {"card_id": arcade.open_scorecard(request.source_url, request.tags)}
        if request.op == "close":
            card = arcade.close_scorecard(request.card_id)
            return None if card is None else card.model_dump(mode="json", exclude={"api_key"})
        return [
            {
                "gameId": env.game_id,
                "title": env.title or env.game_id,
                "tags": list(env.tags or ()),
                "baselines": list(env.baseline_actions or ()) or None,
            }
            for env in arcade.get_environments()
        ]
    except Exception as error:  # of requests, of pydantic
        message = f"{type(error).__name__}: {error}"
        raise GameProblem(message) from error


def _isolate_game() -> int:
    """Send what a game prints to stderr and shut its network; return our own stdout."""
    out = os.dup(1)
    os.dup2(2, 1)
    shut_network()
    return out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
