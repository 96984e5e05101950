"""The protocol itself: both ways to agree on a version, and what is refused."""

import json

import pytest
from mcp_types import _v2025_11_25 as old
from mcp_types import _v2026_07_28 as new

from assay.mcp import McpServer, answer_line, text_content, tool

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Echo(McpServer):
    name = "echo"
    instructions = "Say something."
    has_resources = True

    def tools(self):
        return [tool("echo", "Says it again", {"text": {"type": "string"}}, ["text"])]

    def call(self, name, arguments):
        return super().call(name, arguments) if name != "echo" else text_content(arguments["text"])

    def resources(self):
        return [{"uri": "echo://hello", "name": "hello"}]

    def read(self, uri):
        if uri != "echo://hello":
            return super().read(uri)
        return [{"uri": uri, "mimeType": "text/plain", "text": "hello"}]


def ask(method, params=None, **more):
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}, **more}
    return answer_line(Echo(), json.dumps(message))


REQUESTS = [
    ("tools/list", {}, "ListToolsResult"),
    ("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, "CallToolResult"),
    ("resources/list", {}, "ListResourcesResult"),
    ("resources/templates/list", {}, "ListResourceTemplatesResult"),
    ("resources/read", {"uri": "echo://hello"}, "ReadResourceResult"),
]


@pytest.mark.parametrize(("method", "params", "record"), REQUESTS)
def test_answers_are_what_each_revision_says(method, params, record):
    getattr(old, record).model_validate(ask(method, params)["result"])
    result = ask(method, params | {"_meta": META})["result"]
    getattr(new, record).model_validate(result)
    assert result["resultType"] == "complete"
    assert ("ttlMs" in result) == (method != "tools/call")


def test_a_client_finds_out_what_the_server_speaks():
    result = ask("server/discover", {"_meta": META})["result"]
    found = new.DiscoverResult.model_validate(result)
    assert {"2026-07-28", "2025-11-25"} <= {*found.supported_versions}
    assert found.instructions == "Say something."
    assert found.capabilities.resources is not None
    for asked, given in [("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05")] + [
        (asked, "2025-11-25") for asked in ("2026-07-28", "1999-01-01", None)
    ]:
        hello = ask("initialize", {"protocolVersion": asked})["result"]
        assert old.InitializeResult.model_validate(hello).protocol_version == given


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/list", {"_meta": {**META, next(iter(META)): "2031-01-01"}}, -32022),
        ("tools/list", {"_meta": {**META, next(iter(META)): 20260728}}, -32602),
        ("tools/list", {"_meta": {next(iter(META)): "2026-07-28"}}, -32602),
        ("server/discover", {}, -32602),
        ("initialize", {"_meta": META}, -32601),
        ("ping", {"_meta": META}, -32601),
        ("prompts/list", {"_meta": META}, -32601),
        ("tools/call", {"name": "none", "_meta": META}, -32602),
        ("tools/call", {"name": ["echo"]}, -32602),
        ("tools/call", {"name": "echo", "arguments": [1]}, -32602),
        ("resources/read", {"uri": "echo://bye", "_meta": META}, -32602),
        ("resources/read", {}, -32602),
    ],
)
def test_what_is_refused(method, params, code):
    error = ask(method, params)["error"]
    assert error["code"] == code
    if code == -32022:
        assert error["data"]["requested"] == "2031-01-01"
        assert "2026-07-28" in error["data"]["supported"]


def test_ids_and_params_of_other_kinds_are_refused():
    for wrong in (None, True, 1.5, [], {}):
        assert ask("ping", id=wrong)["error"]["code"] == -32600
    assert ask("ping", id="a")["id"] == "a"
    assert ask("tools/list", params=[1])["error"]["code"] == -32602
    assert answer_line(Echo(), "[]")["error"]["code"] == -32600
