"""One request of a player: a JSON line, checked before anything is done with it."""

import hmac
from typing import Annotated, Any, Literal

import msgspec

MAX_REQUEST_BYTES = 64 * 1024
MAX_KEPT_TEXT = 2000
INT64 = 2**63

Operation = Literal["look", "act", "click", "reset", "status", "quit", "close"]
Place = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Short = Annotated[str, msgspec.Meta(max_length=200)]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a player may ask; `close` belongs to the owner alone."""

    op: Operation
    token: str = ""
    id: Short | None = None
    """Chosen by the player; one id is never done twice, so a lost answer can be asked again."""
    action: Short | None = None
    x: Place | None = None
    y: Place | None = None
    full: bool = False
    frames: bool = False
    image: bool = False
    grid: bool = False
    reason: Literal["player_quit", "timeout", "crash"] = "player_quit"
    message: str = ""


class BadRequest(Exception):
    """A line that is no request; says what is wrong with it, and keeps what came in."""

    def __init__(self, message: str, received: Any, token: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.received = received
        self.token = token


def parse_request(line: bytes) -> tuple[Request, Any]:
    """Read one line; give the request and what the log keeps of it, without the token."""
    try:
        received = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = "not valid JSON: send one JSON object per line"
        raise BadRequest(message, _as_text(line, "")) from None
    token = received.get("token") if isinstance(received, dict) else None
    token = token if isinstance(token, str) else ""
    kept = _keep(received) if _is_plain(received) else _as_text(line, token)
    try:
        return msgspec.convert(received, Request), kept
    except msgspec.ValidationError as error:
        message = f"not a request: {error}"
        raise BadRequest(message, kept, token) from None


def same_token(given: str, expected: str) -> bool:
    """Compare without telling by time how much was right."""
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def _is_plain(received: Any) -> bool:
    """Say whether this can be kept as it is: a small object of plain values."""
    return isinstance(received, dict) and all(
        value is None
        or isinstance(value, bool | float)
        or (isinstance(value, int) and -INT64 <= value < INT64)
        or (isinstance(value, str) and len(value) <= MAX_KEPT_TEXT)
        for value in received.values()
    )


def _keep(received: dict[str, Any]) -> Any:
    return {key: value for key, value in received.items() if key != "token"}


def _as_text(line: bytes, token: str) -> str:
    text = line.decode("utf-8", "replace")
    return (text.replace(token, "***") if token else text)[:MAX_KEPT_TEXT]
