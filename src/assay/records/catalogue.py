"""Every record on disk by the name users know it by, and its JSON Schema."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from assay.records import adapter_schema
from assay.records.adapter_schema import AdapterSchema
from assay.records.capture import AnyStep, Grade
from assay.records.explanation import Explanation
from assay.records.problems import REMARKS
from assay.records.recording import RawOutput
from assay.records.reports import (
    AgentStatus,
    AtifExample,
    BalanceAnalysis,
    CalibrationSample,
    DoctorFinding,
    DpoExample,
    ExportSummary,
    KtoExample,
    LabelReport,
    LabelRow,
    ProgressEvent,
    SampleReport,
    SftExample,
    ShareGptExample,
    Summary,
    TableRow,
    TriggerReport,
    Validation,
)
from assay.records.spec import Prompt
from assay.records.trial import NUMBER, CaptureRow, FinishedTrial, TrialEntry, TrialResult

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


_DIALECT = "https://json-schema.org/draft/2020-12/schema"

RECORDS: dict[str, Any] = {
    "PromptInput": Prompt,
    "PromptCase": Prompt,
    "AdapterSchema": AdapterSchema,
    "RawOutput": RawOutput,
    "TrajectoryStep": AnyStep,
    "CaptureResult": CaptureRow,
    "GraderResult": Grade,
    "TrialEntry": TrialEntry,
    "TrialResult": TrialResult,
    "SummaryResult": Summary,
    "CalibrationSample": CalibrationSample,
    "ValidationResult": Validation,
    "BalanceAnalysis": BalanceAnalysis,
    "FinishedTrial": FinishedTrial,
    "CalibrationReport": SampleReport,
    "LabelRow": LabelRow,
    "LabelReport": LabelReport,
    "Explanation": Explanation,
    "TriggerReport": TriggerReport,
    "AgentsReport": list[AgentStatus],
    "DoctorReport": list[DoctorFinding],
    "ProgressEvent": ProgressEvent,
    "ExportSummary": ExportSummary,
    "SftExample": SftExample,
    "DpoExample": DpoExample,
    "KtoExample": KtoExample,
    "ShareGptExample": ShareGptExample,
    "AtifExample": AtifExample,
    "TableRow": TableRow,
    "McpServerConfig": (StdioServer, HttpServer),
    "Session": Session,
    "JsonRpcRequest": JsonRpcRequest,
    "JsonRpcResponse": (JsonRpcResult, JsonRpcFailure),
    "JsonRpcError": JsonRpcError,
}
"""Several types are several forms of one record."""


_ALWAYS = {
    "CaptureRow": ("id", "input", "output", "trajectory", "timing", "toolErrors"),
    "Timing": ("start", "end", "total"),
    "Thought": ("type", "content", "timestamp"),
    "Message": ("type", "content", "timestamp"),
    "ToolCall": ("type", "name", "status"),
    "Plan": ("type", "entries", "timestamp"),
    "TrialEntry": (NUMBER, "output"),
    "TrialResult": ("id", "input", "k", "trials"),
    "Validation": ("id", "reference"),
}
"""The fields of every row that the seed writes, where our reader requires fewer or more; its
`extract` may leave out metadata."""
_OPEN = frozenset({"CaptureRow", "TrialResult", "RawOutput"})
"""Rows that carry the unknown fields of a user's prompt."""


_BY_HAND = frozenset(name for name, kind in vars(adapter_schema).items() if isinstance(kind, type))
"""Parts of a file that people write, with remarks for themselves."""


def json_schema(name: str, kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one record, in the form that the seed exports."""
    whole = {"anyOf": [_form(one) for one in kind]} if isinstance(kind, tuple) else _form(kind)
    return {"$schema": _DIALECT, **whole, "title": name}


def _form(kind: Any) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    defs = schema.pop("$defs", {})
    for name in _omitting(msgspec.inspect.type_info(kind)) & defs.keys():
        for field in defs[name].get("properties", {}).values():
            _drop_null(field)
    form: dict[str, Any] = _seed_form(schema, defs)
    return form


def _omitting(node: Any) -> set[str]:
    """Name the records that are written without the fields that have their default value."""
    found: set[str] = set()
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting += node
        if not isinstance(node, msgspec.Struct) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, msgspec.inspect.StructType) and _leaves_out_nulls(node.cls):
            found.add(node.cls.__name__)
        waiting += [getattr(node, name) for name in node.__struct_fields__]
    return found


def _leaves_out_nulls(kind: Any) -> bool:
    # People write adapter schemas, and leave out what they do not need.
    return kind.__name__ in _BY_HAND or bool(kind.__struct_config__.omit_defaults)


def _drop_null(field: dict[str, Any]) -> None:
    """A field whose default is null is left out of such a record, and never null."""
    if "default" in field and field["default"] is None:
        del field["default"]
        field["anyOf"] = [choice for choice in field["anyOf"] if choice != {"type": "null"}]


def _seed_form(node: Any, defs: dict[str, Any]) -> Any:
    """Inline the definitions, and allow no other fields than those named."""
    if isinstance(node, list):
        return [_seed_form(item, defs) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:  # what stands beside a reference outranks what it refers to
        node = {**defs[node["$ref"].removeprefix("#/$defs/")], **node}
        del node["$ref"]
    schema = {key: _seed_form(value, defs) for key, value in node.items() if key != "properties"}
    if "properties" in node:
        fields = node["properties"].items()
        schema["properties"] = {name: _seed_form(value, defs) for name, value in fields}
    if schema.get("type") == "object":
        _close(schema)
    elif schema.get("type") == "array" and "prefixItems" not in schema:
        schema.setdefault("items", {})
    elif schema.get("type") == "integer":  # JSON has only numbers
        schema["type"] = "number"
    return _simplest(schema)


def _close(schema: dict[str, Any]) -> None:
    if "properties" not in schema:
        schema["propertyNames"] = {"type": "string"}
        schema.setdefault("additionalProperties", {})
        return
    schema["additionalProperties"] = schema.get("title") in _OPEN
    if schema.get("title") in _BY_HAND:
        schema["patternProperties"] = {REMARKS: {}}
    if schema.get("title") in _ALWAYS:
        schema["required"] = list(_ALWAYS[schema["title"]])


def _simplest(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a choice of one by that one, and tell kinds apart by their constant alone."""
    if schema.pop("discriminator", None):
        schema["oneOf"] = schema.pop("anyOf")
    if len(schema.get("enum", ())) == 1:
        schema["const"] = schema.pop("enum")[0]
        schema["type"] = "string" if isinstance(schema["const"], str) else "number"
    choices = schema.get("anyOf", ())
    if choices and all(choice == choices[0] for choice in choices):
        return {**schema.pop("anyOf")[0], **schema}
    return schema
