"""Every record on disk by the name users know it by, and its JSON Schema."""

from typing import Any

import msgspec

from assay.records.adapter_schema import AdapterSchema
from assay.records.balance import BalanceAnalysis
from assay.records.calibration import CalibrationSample
from assay.records.capture import Capture
from assay.records.grade import Grade
from assay.records.prompt import Prompt
from assay.records.protocol import (
    JsonRpcError,
    JsonRpcRequest,
    JsonRpcResponse,
    McpServerConfig,
    Session,
)
from assay.records.raw_output import RawOutput
from assay.records.summary import Summary
from assay.records.trajectory import AnyStep
from assay.records.trials import TrialEntry, TrialResult
from assay.records.validation import Validation

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

RECORDS: dict[str, Any] = {
    "PromptInput": Prompt,
    "PromptCase": Prompt,
    "AdapterSchema": AdapterSchema,
    "RawOutput": RawOutput,
    "TrajectoryStep": AnyStep,
    "CaptureResult": Capture,
    "GraderResult": Grade,
    "TrialEntry": TrialEntry,
    "TrialResult": TrialResult,
    "SummaryResult": Summary,
    "CalibrationSample": CalibrationSample,
    "ValidationResult": Validation,
    "BalanceAnalysis": BalanceAnalysis,
    "McpServerConfig": McpServerConfig,
    "Session": Session,
    "JsonRpcRequest": JsonRpcRequest,
    "JsonRpcResponse": JsonRpcResponse,
    "JsonRpcError": JsonRpcError,
}


def json_schema(name: str) -> dict[str, Any]:
    """Give the JSON Schema (2020-12) of one record."""
    schema = msgspec.json.schema(RECORDS[name])
    root = schema.pop("$ref", "").removeprefix("#/$defs/")
    defs: dict[str, Any] = schema.pop("$defs", {})
    body = defs.pop(root) if root and root not in _referred(defs, root) else {}
    if root and not body:
        body = {"$ref": f"#/$defs/{root}"}
    whole = {"$schema": _DIALECT, **schema, **body, "title": name}
    return {**whole, "$defs": defs} if defs else whole


def _referred(defs: dict[str, Any], name: str) -> set[str]:
    """Give name if any definition points at it, so that it must stay among them."""
    found = f'"#/$defs/{name}"'.encode() in msgspec.json.encode(defs)
    return {name} if found else set()
