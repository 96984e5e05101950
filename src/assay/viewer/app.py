"""The viewer's server: routes, the guard in front of them, and serving on the loopback address."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from assay.errors import AssayError, InputError
from assay.records.private import private_folder, write_private
from assay.records.rows import UNREADABLE, explain
from assay.report.page import page_end, page_head, policy
from assay.viewer.prompts import Query
from assay.viewer.service import ViewerService

_MOST_BODY = 10_000
_MOST_DIGITS = 9
_TOKEN = re.compile(r"[A-Za-z0-9_-]{24,64}")


class _LabelRequest(msgspec.Struct):
    number: int
    label: str | None
    runs: str = ""


def make_app(service: ViewerService) -> Starlette:
    """Build the application; the guard stands in front of it."""
    pages = _Pages(service)
    names = (
        "overview",
        "state",
        "prompts",
        "around",
        "prompt",
        "row",
        "game",
        "raw",
        "requests",
        "request",
        "sheet",
        "search",
        "why",
    )
    return Starlette(
        routes=[
            Route("/", pages.index),
            *(Route(f"/api/{name}", getattr(pages, name)) for name in names),
            Route("/api/label", pages.label, methods=["POST"]),
        ],
        exception_handlers={_BadRequest: _refused, AssayError: _refused, OSError: _refused},
    )


class _BadRequest(ValueError):
    """A request that has no answer; the text says why."""


def _refused(request: Request, error: Exception) -> Response:
    """Say what is wrong with the request, or with the files that it is about."""
    return PlainTextResponse(str(error), 400)


class _Pages:
    """One method for each route."""

    def __init__(self, service: ViewerService) -> None:
        self._service = service
        self._page = page_head("assay", live=True) + page_end()

    def index(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    def overview(self, request: Request) -> Response:
        return _json(self._service.overview(_runs(request)))

    def state(self, request: Request) -> Response:
        return _json(self._service.state(_runs(request)))

    def prompts(self, request: Request) -> Response:
        return _json(self._service.prompts(_runs(request), _query(request)))

    def around(self, request: Request) -> Response:
        prompt_id = request.query_params.get("id", "")
        return _json(self._service.around(_runs(request), _query(request), prompt_id))

    def prompt(self, request: Request) -> Response:
        return _json(self._service.prompt(_runs(request), request.query_params.get("id", "")))

    def row(self, request: Request) -> Response:
        run, prompt_id, _ = _place(request)
        line = self._service.line(_runs(request), run, prompt_id)
        return Response(line or b"null", media_type="application/json")

    def game(self, request: Request) -> Response:
        return _json(self._service.game(_runs(request), *_place(request)))

    def raw(self, request: Request) -> Response:
        return _json(self._service.raw(_runs(request), *_place(request)))

    def requests(self, request: Request) -> Response:
        return _json(self._service.requests(_runs(request), *_place(request)))

    def request(self, request: Request) -> Response:
        number = _number(request, "request")
        return _json(self._service.request(_runs(request), *_place(request), number))

    def search(self, request: Request) -> Response:
        asked = request.query_params
        found = self._service.search(_runs(request), asked.get("q", ""), asked.get("after", ""))
        return _json(found)

    def why(self, request: Request) -> Response:
        return _json(self._service.why(_runs(request)))

    def sheet(self, request: Request) -> Response:
        return _json(self._service.sheet(_runs(request)))

    async def label(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY:  # counted as it arrives: Content-Length may be missing
                return PlainTextResponse("too long", 413)
        try:
            change = msgspec.json.decode(body, type=_LabelRequest)
        except UNREADABLE as error:
            return PlainTextResponse(explain(error, _LabelRequest), 400)
        return _json(self._service.set_label(change.runs, change.number, change.label))


def _query(request: Request) -> Query:
    try:
        return msgspec.convert(dict(request.query_params), Query, strict=False)
    except msgspec.ValidationError as error:
        raise _BadRequest(explain(error, Query)) from error


def _runs(request: Request) -> str:
    return str(request.query_params.get("runs", ""))


def _place(request: Request) -> tuple[str, str, int]:
    params = request.query_params
    return params.get("run", ""), params.get("id", ""), _number(request, "n")


def _number(request: Request, name: str) -> int:
    number = request.query_params.get(name) or "1"
    # int() takes blanks, underscores and digits of all scripts, and refuses thousands of them.
    if not number.isascii() or not number.isdigit() or len(number) > _MOST_DIGITS:
        what = "a trial" if name == "n" else "a request"
        msg = f"{name} is {number[:20]!r}; it must be the number of {what}, from 1"
        raise _BadRequest(msg)
    return int(number)


def _json(answer: Any) -> Response:
    """Return an answer as JSON; null means that there is no such thing, which is not an error."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


_SAFE_SITES = ("", "same-origin", "none")


class Guard:
    """Wraps the application: checks every request, and puts the same headers on every answer."""

    def __init__(self, app: Any, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        self._headers = [
            (b"content-security-policy", f"{policy(live=True)}; frame-ancestors 'none'".encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse the request, or pass it on with the token taken off the path."""
        if scope["type"] != "http":  # web sockets and lifespan events are not served
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *self._headers]}
            await send(message)

        why = self._refusal(scope)
        if why is not None:
            start = {"type": "http.response.start", "status": 403}
            await send_guarded({**start, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        rest = scope["path"][1 + len(self._token) :]
        await self._app({**scope, "path": rest, "raw_path": rest.encode()}, receive, send_guarded)

    def _refusal(self, scope: Any) -> str | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        # Against DNS rebinding: a foreign name that resolves to this machine is refused.
        if host not in self._hosts:
            return "this viewer answers only to its own address"
        # Against requests from other sites: Origin where the browser sends it, Sec-Fetch-Site where
        # it does not; following a link to the viewer is allowed.
        origin = headers.get(b"origin")
        if origin is not None and origin != f"http://{host}":
            return "another site may not ask"
        site = headers.get(b"sec-fetch-site", "")
        is_visit = headers.get(b"sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if site not in _SAFE_SITES and not is_visit:
            return "another site may not ask"
        given = scope["path"][1:].partition("/")[0]
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return "the address lacks its secret: use the one that `assay view` printed"
        return None


HOST = "127.0.0.1"


class _Address(msgspec.Struct):
    """Where something was shown the last time; nothing if it never was."""

    token: str = ""
    port: int = 0


def _listener(port: int, before: _Address) -> socket.socket:
    """Listen on the port that was asked for; on any free one, but first on that of last time."""
    for wanted in (before.port, port) if port == 0 and before.port else (port,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, wanted))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if wanted == before.port and port == 0:
                continue  # somebody else has it now
            msg = f"cannot listen on {HOST}:{port}: {error.strerror}"
            raise InputError(msg, hint="choose another --port, or 0 for any free port") from error
        return listener
    msg = f"cannot listen on {HOST}"
    raise InputError(msg)


def _address_file(shown: Sequence[Path]) -> Path:
    names = "\n".join(sorted(str(path.resolve()) for path in shown))
    return private_folder("view") / f"{hashlib.sha256(names.encode()).hexdigest()[:24]}.json"


def _kept_address(shown: Sequence[Path]) -> _Address:
    """Read the address of last time, if nobody else can have read or written it."""
    if not shown:
        return _Address()
    try:
        path = _address_file(shown)
        about = path.lstat()
        ours = about.st_uid == os.getuid() and not about.st_mode & 0o077
        kept = msgspec.json.decode(path.read_bytes(), type=_Address)
    except (OSError, msgspec.MsgspecError):
        return _Address()
    good = ours and _TOKEN.fullmatch(kept.token) and 0 < kept.port < 65536
    return kept if good else _Address()


def _keep_address(shown: Sequence[Path], address: _Address) -> None:
    if shown:
        with contextlib.suppress(OSError):  # the viewer works without it
            write_private(_address_file(shown), msgspec.json.encode(address))


def serve(
    service: ViewerService, port: int, ready: Callable[[str], None], shown: Sequence[Path] = ()
) -> None:
    """Serve until interrupted; ready is called with the address, which contains the token.

    The address is kept for what is shown, so that a link to it works after a restart, too.
    """
    before = _kept_address(shown)
    listener = _listener(port, before)
    bound = listener.getsockname()[1]
    token = before.token or secrets.token_urlsafe(18)
    _keep_address(shown, _Address(token, bound))
    hosts = frozenset({f"{HOST}:{bound}", f"localhost:{bound}"})
    config = uvicorn.Config(
        Guard(make_app(service), token, hosts),
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
    )
    server = _Server(config, partial(ready, f"http://{HOST}:{bound}/{token}/"))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says that it is ready once it listens and Ctrl-C stops it.

    Before that, a Ctrl-C could be lost: Python ignores one that arrives in a callback of an import.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
