"""The server's memory without HTTP: the players by URL prefix, the log, the sign to stop."""

import threading

from assay.testing.model import anthropic, chat, gemini, responses
from assay.testing.model.player import Player
from assay.testing.model.request_log import RequestLog
from assay.testing.model.script import Play, Provider, Script
from assay.testing.model.wire import Wire

WIRES: dict[Provider, Wire] = {
    module.WIRE.provider: module.WIRE for module in (anthropic, responses, chat, gemini)
}


class Stage:
    """What all requests to one server share."""

    def __init__(self, script: Script, log: RequestLog) -> None:
        self.log = log
        self.closing = threading.Event()
        self._script = script
        self._players: dict[str, Player] = {}
        self._lock = threading.Lock()

    def player(self, lane: str) -> Player | None:
        """Find who plays to this URL prefix; each prefix counts for itself."""
        play = self._play(lane)
        if play is None:
            return None
        with self._lock:
            return self._players.setdefault(lane, Player(play))

    @property
    def names(self) -> list[str]:
        """The names that `/s/NAME` may take; none means any."""
        return sorted(self._script.scripts)

    def _play(self, lane: str) -> Play | None:
        if not lane or not self._script.scripts:
            return self._script
        return self._script.scripts.get(lane.split("@", 1)[0])
