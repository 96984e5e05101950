"""Say what a URL asks for: which script, which provider, or a probe."""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from assay.testing.model.script import Provider

Kind = Literal["answer", "count_tokens", "models", "websocket", "probe", "unknown"]

_LANE = re.compile(r"^/s/([^/]+)(/.*)?$")
_ANSWERS: tuple[tuple[re.Pattern[str], Provider], ...] = (
    (re.compile(r"(^|/)messages$"), "anthropic"),
    (re.compile(r"(^|/)responses$"), "responses"),
    (re.compile(r"(^|/)chat/completions$"), "chat"),
    (re.compile(r"/models/[^/:]+:(generateContent|streamGenerateContent)$"), "gemini"),
)
_COUNTS = re.compile(r"/messages/count_tokens$|/responses/input_tokens$|:countTokens$")
_GEMINI = re.compile(r"/models/([^/:]+):(\w+)$")
_MODELS = re.compile(r"(^|/)models(/[^/:]+)?$")


@dataclass(frozen=True)
class Route:
    """Where a request goes."""

    kind: Kind
    lane: str = ""
    """The `NAME` or `NAME@RUN` of a `/s/…` prefix; empty for none."""
    provider: Provider | None = None
    model: str | None = None
    stream: bool | None = None
    as_sse: bool = True


def find_route(method: str, url: str, *, upgrade: bool = False) -> Route:
    """Read the method and the URL of a request."""
    parts = urlsplit(url)
    lane, path = _split_lane(parts.path)
    if upgrade:
        return Route("websocket", lane)
    if method in ("GET", "HEAD"):
        probe = method == "HEAD" or not path.strip("/") or path.endswith("/hello")
        kind: Kind = "probe" if probe else "models" if _MODELS.search(path) else "unknown"
        return Route(kind, lane)
    if _COUNTS.search(path):
        return Route("count_tokens", lane)
    for pattern, provider in _ANSWERS:
        if method == "POST" and pattern.search(path):
            return _answer_route(lane, provider, path, parts.query)
    return Route("unknown", lane)


def _split_lane(path: str) -> tuple[str, str]:
    found = _LANE.match(path)
    return (unquote(found[1]), found[2] or "/") if found else ("", path)


def _answer_route(lane: str, provider: Provider, path: str, query: str) -> Route:
    gemini = _GEMINI.search(path)
    if gemini is None:
        return Route("answer", lane, provider)
    streams = gemini[2] == "streamGenerateContent"
    as_sse = parse_qs(query).get("alt") == ["sse"]
    return Route("answer", lane, provider, unquote(gemini[1]), streams, as_sse)
