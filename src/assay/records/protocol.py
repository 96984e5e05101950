"""Records of the protocols we speak; exported for people who validate what they send us."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class McpServerConfig(msgspec.Struct, kw_only=True, frozen=True):
    """One server of an `mcpServers` file."""

    command: str | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    type: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET


class Session(msgspec.Struct, kw_only=True, frozen=True):
    """A conversation of the Agent Client Protocol."""

    id: str


class JsonRpcRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A call, or without id a notification."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | UnsetType | None = UNSET
    params: Any | UnsetType = UNSET


class JsonRpcError(msgspec.Struct, kw_only=True, frozen=True):
    """What went wrong with a call."""

    code: int
    message: str
    data: Any | UnsetType = UNSET


class JsonRpcResponse(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to a call."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    result: Any | UnsetType = UNSET
    error: JsonRpcError | UnsetType = UNSET
