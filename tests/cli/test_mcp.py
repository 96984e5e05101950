"""`assay mcp`: the official SDK's client asks it, in both revisions of the protocol."""

import json
import os
import signal
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.library.regressed import write_runs


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_official_client_asks_why_a_prompt_regressed(tmp_path, mode, version):
    write_runs(tmp_path)
    both = {"runs": ["before", "after"]}

    async def talk():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "assay", "mcp"], cwd=tmp_path
        )
        async with Client(stdio_client(server), mode=mode) as client:
            assert client.protocol_version == version
            assert "list_runs" in client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {
                *("list_runs", "verdict", "failures", "trial", "divergence", "query"),
            }
            assert all(tool.annotations.read_only_hint for tool in tools.values())
            said = await client.call_tool("verdict", both)
            assert "regressed: relnotes" in said.content[0].text
            said = await client.call_tool("divergence", {"prompt": "relnotes", **both})
            assert "git tag --list" in said.content[0].text
            said = await client.call_tool("trial", {"run": "none", "prompt": "relnotes"})
            assert said.is_error
            first = (await client.list_resources()).resources[0]
            read = await client.read_resource(first.uri)
            assert read.contents[0].text.startswith("# Comparison")

    anyio.run(talk)


def test_only_the_protocol_is_on_stdout_and_the_end_of_stdin_is_the_end(assay, tmp_path):
    write_runs(tmp_path)
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_runs"}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "what?\n"
    done = assay("mcp", "new:after.jsonl", "--budget", "1", cwd=tmp_path, stdin=text)
    assert (done.code, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, None]
    said = answers[1]["result"]["content"][0]["text"]
    assert "left of the budget for experiments: $1.00" in said
    assert "run new: 16 trials" in said


def test_a_signal_is_an_ordinary_end(start, tmp_path):
    ours, theirs = os.pipe()
    process = start("mcp", cwd=tmp_path, stdin=ours)
    os.close(ours)
    os.write(theirs, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert json.loads(process.stdout.readline())["result"] == {}
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    os.close(theirs)


def test_a_path_that_is_not_there_is_refused(assay, tmp_path):
    done = assay("mcp", "none.jsonl", cwd=tmp_path, stdin="")
    assert done.code == 1
    assert "none.jsonl: no such file" in done.stderr
