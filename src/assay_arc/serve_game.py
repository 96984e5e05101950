"""The game process: `python -m assay_arc.serve_game`, settings in ASSAY_ARC_GAME.

It loads one game in the real engine, offline, writes the event log, and plays by the requests that
come over a private socket. Started again with the same log it replays the log and goes on.
"""

import ctypes
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from assay_arc.catalog import GameInfo, read_game
from assay_arc.engine import ToolkitEngine, shut_network, toolkit_versions
from assay_arc.log import Header, LogWriter, has_header, read_log
from assay_arc.problems import ArcProblem, GameProblem
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
from assay_arc.session import Session, resume_session

PR_SET_DUMPABLE = 4


def main() -> int:
    """Serve one game to its end; 1 when it could not start or its log could not be written."""
    try:
        config = read_config(os.environ, sys.stdin)
        os.environ.pop(VARIABLE, None)
        _hide_process()
        open_socket_folder(config.socket)
        os.chdir(config.socket.parent)
        shut_network()
        serve(config)
    except (ArcProblem, OSError) as problem:
        sys.stderr.write(f"game process: {problem}\n")
        return 1
    return 0


def serve(config: ServeConfig) -> None:
    """Open log and game, then answer requests until the game is closed or the owner is gone."""
    parent = os.getppid()
    with LogWriter(config.log) as log:
        session = _open_session(config, log)
        listener = Listener(config.socket, lambda line: _answer(line, session, config))
        stopped = _stop_on_signal()
        try:
            listener.serve(lambda: session.closed or bool(stopped) or _is_orphan(config, parent))
        finally:
            listener.close()


def _open_session(config: ServeConfig, log: LogWriter) -> Session:
    info = read_game(config.game)
    engine = ToolkitEngine(info, config.seed)
    if has_header(config.log):
        logged = read_log(config.log)
        expected = _header(config, info, engine, logged.header.level_count)
        return resume_session(logged, expected, engine, log, _now)
    first = engine.start()
    if first is None:
        message = f"{info.source}: {info.game_id} gives no first picture of 64x64"
        raise GameProblem(message)
    log.append(_header(config, info, engine, first.win_levels))
    session = Session(engine, log, config.limits, _now, first)
    session.begin()
    return session


def _header(config: ServeConfig, info: GameInfo, engine: ToolkitEngine, n_levels: int) -> Header:
    toolkit, engine_version = toolkit_versions()
    return Header(
        game_id=info.game_id,
        title=info.title,
        source_sha256=info.source_sha256,
        baselines=info.baselines,
        level_count=n_levels,
        toolkit_version=toolkit,
        engine_version=engine_version,
        seed=config.seed,
        seed_used=engine.seed_used,
        limits=config.limits,
        started_at=_now(),
    )


def _answer(line: bytes, session: Session, config: ServeConfig) -> tuple[bytes, bool]:
    """Answer one line: the answer, and whether the connection may stay."""
    try:
        request, received = parse_request(line)
    except BadRequest as bad:
        if same_token(bad.token, config.token):
            return _encode(session.reject(bad.message, bad.received)), True
        return _encode({"ok": False, "error": bad.message, "text": bad.message}), False
    is_owner = same_token(request.token, config.owner_token)
    if not is_owner and not same_token(request.token, config.token):
        return _encode({"ok": False, "error": "wrong token", "text": "wrong token"}), False
    if request.op == "close" and not is_owner:
        return _encode(session.reject("only the owner closes a game", received)), True
    return _encode(session.handle(request, received)), True


def _is_orphan(config: ServeConfig, parent: int) -> bool:
    """Say whether the one who started us is gone; without an owner a game must not go on."""
    return not config.stay_when_orphaned and os.getppid() != parent


def _encode(reply: dict[str, Any]) -> bytes:
    return msgspec.json.encode(reply)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _stop_on_signal() -> list[int]:
    """End cleanly on SIGTERM, without an end record: nobody said why."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return stopped


def _hide_process() -> None:
    """Keep other processes of this user from reading our memory, environment and open files."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.dup2(2, 1)


if __name__ == "__main__":
    raise SystemExit(main())
