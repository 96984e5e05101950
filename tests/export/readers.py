"""Reads an exported file with the readers of others; prints what they found as JSON. Run in an
environment of its own, which has them."""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

_BYTES = ("traceId", "spanId", "parentSpanId")


def as_protobuf(value: Any) -> Any:
    """Return OTLP JSON, which writes ids in hexadecimal, as the JSON of protobuf, with base64."""
    if isinstance(value, list):
        return [as_protobuf(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in _BYTES else as_protobuf(item)
        for key, item in value.items()
    }


def read_otel(path: str) -> list[Any]:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    traces = []
    for line in Path(path).read_text().splitlines():
        request = ParseDict(as_protobuf(json.loads(line)), ExportTraceServiceRequest())
        spans = [
            span
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        names = {span.span_id: span.name for span in spans}
        assert {len(span.trace_id) for span in spans} == {16}
        assert {len(span.span_id) for span in spans} == {8}
        traces.append(
            [
                [names.get(span.parent_span_id, ""), span.name, [one.name for one in span.events]]
                for span in spans
            ]
        )
    return traces


def read_inspect(path: str) -> Any:
    from inspect_ai.log import read_eval_log

    assert read_eval_log(path, header_only=True).results is not None
    log = read_eval_log(path)
    return json.loads(log.model_dump_json(include={"status", "eval", "results", "samples"}))


def read_every_eval(path: str) -> Any:
    from every_eval_ever.validate import main

    samples = Path(path).with_name(f"{Path(path).stem}_samples.jsonl")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = main([path, str(samples)])
    assert code == 0, said.getvalue()
    return json.loads(Path(path).read_text()), [*map(json.loads, samples.read_text().splitlines())]


def read_junit(path: str) -> Any:
    from junitparser import JUnitXml

    return [
        [suite.name, suite.tests, suite.failures, suite.errors, suite.skipped]
        + [
            [case.name, case.classname, *(type(one).__name__ for one in case.result)]
            for case in suite
        ]
        for suite in JUnitXml.fromfile(path)
    ]


READERS = {
    "every_eval": read_every_eval,
    "inspect": read_inspect,
    "junit": read_junit,
    "otel": read_otel,
}

if __name__ == "__main__":
    print(json.dumps(READERS[sys.argv[1]](sys.argv[2])))
