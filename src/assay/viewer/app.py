"""The addresses of the viewer; everything that knows Starlette stands here and in serve.py."""

from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from assay.report.page import page_end, page_head
from assay.viewer.desk import Desk
from assay.viewer.prompts import Query

_MOST_BODY = 10_000


class _Said(msgspec.Struct):
    number: int
    label: str | None
    runs: str = ""


def make_app(desk: Desk) -> Starlette:
    """Build the application; the guard stands in front of it."""
    pages = _Pages(desk)
    asked = ("overview", "state", "prompts", "prompt", "row", "game", "raw", "sheet")
    return Starlette(
        routes=[
            Route("/", pages.index),
            *(Route(f"/api/{name}", getattr(pages, name)) for name in asked),
            Route("/api/label", pages.label, methods=["POST"]),
        ]
    )


class _Pages:
    """One method for each address."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._page = page_head("assay", live=True) + page_end()

    def index(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    def overview(self, request: Request) -> Response:
        return _json(self._desk.overview(_runs(request)))

    def state(self, request: Request) -> Response:
        return _json(self._desk.state())

    def prompts(self, request: Request) -> Response:
        try:
            query = msgspec.convert(dict(request.query_params), Query, strict=False)
        except msgspec.ValidationError as error:
            return PlainTextResponse(str(error), 400)
        return _json(self._desk.prompts(_runs(request), query))

    def prompt(self, request: Request) -> Response:
        return _json(self._desk.prompt(_runs(request), request.query_params.get("id", "")))

    def row(self, request: Request) -> Response:
        run, prompt_id, _ = _place(request)
        line = self._desk.line(_runs(request), run, prompt_id)
        return Response(line or b"null", media_type="application/json")

    def game(self, request: Request) -> Response:
        return _json(self._desk.game(_runs(request), *_place(request)))

    def raw(self, request: Request) -> Response:
        return _json(self._desk.raw(_runs(request), *_place(request)))

    def sheet(self, request: Request) -> Response:
        return _json(self._desk.sheet(_runs(request)))

    async def label(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY:
                return PlainTextResponse("too long", 413)
        try:
            said = msgspec.json.decode(body, type=_Said)
        except msgspec.MsgspecError as error:
            return PlainTextResponse(str(error), 400)
        return _json(self._desk.set_label(said.runs, said.number, said.label))


def _runs(request: Request) -> str:
    return str(request.query_params.get("runs", ""))


def _place(request: Request) -> tuple[str, str, int]:
    words = request.query_params
    number = words.get("n", "1")
    return words.get("run", ""), words.get("id", ""), int(number) if number.isdigit() else 1


def _json(answer: Any) -> Response:
    """Give an answer; null says that there is no such thing, which is no fault of the asker."""
    return Response(msgspec.json.encode(answer), media_type="application/json")
