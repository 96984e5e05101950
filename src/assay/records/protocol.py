"""Records of the protocols we speak; exported for people who validate what they send us."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

type _Id = Annotated[str | int | float, Meta(extra_json_schema={"type": ["string", "number"]})]


class Named(msgspec.Struct, kw_only=True, frozen=True):
    """A variable of the environment, or a header."""

    name: str
    value: str


class StdioServer(msgspec.Struct, kw_only=True, frozen=True):
    """An MCP server that is started, and spoken to over stdio."""

    type: Literal["stdio"] | UnsetType = UNSET
    name: str
    command: str
    args: list[str]
    env: list[Named]


class HttpServer(msgspec.Struct, kw_only=True, frozen=True):
    """An MCP server that is reached by its address."""

    type: Literal["http"]
    name: str
    url: str
    headers: list[Named]


class Session(msgspec.Struct, kw_only=True, frozen=True):
    """A conversation of the Agent Client Protocol."""

    id: str
    meta: dict[str, Any] | UnsetType | None = msgspec.field(name="_meta", default=UNSET)


class JsonRpcRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A call that wants an answer."""

    jsonrpc: Literal["2.0"]
    id: _Id
    method: str
    params: Any | UnsetType = UNSET


class JsonRpcError(msgspec.Struct, kw_only=True, frozen=True):
    """What went wrong with a call."""

    code: int
    message: str
    data: Any | UnsetType = UNSET


class JsonRpcResult(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to a call."""

    jsonrpc: Literal["2.0"]
    id: _Id
    result: Any


class JsonRpcFailure(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to a call that went wrong."""

    jsonrpc: Literal["2.0"]
    id: Annotated[
        str | int | float | None, Meta(extra_json_schema={"type": ["string", "number", "null"]})
    ]
    error: JsonRpcError
