"""Ways in: the arc-play command and the MCP server, both as the single files a player gets."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning

from assay.mcp import answer_line
from assay_arc.client.arc_mcp import GameServer
from assay_arc.client.arc_play import WrongUsage, read_arguments
from assay_arc.world import write_launchers


@pytest.fixture
def bin_folder(tmp_path):
    write_launchers(tmp_path / "bin")
    return tmp_path / "bin"


def run(program, *arguments, env):
    return subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, timeout=20
    )


def test_the_command_plays(serve, bin_folder, tmp_path, solutions):
    game = serve()
    env = {"PATH": os.defpath, **game.plan.player_env}
    arc_play = bin_folder / "arc-play"

    look = run(arc_play, "look", "--png", tmp_path / "look.png", env=env)
    assert look.returncode == 0
    assert "y8-15 20444442" in look.stdout
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")
    act = run(arc_play, "act", "ACTION4", env=env)
    assert act.stdout.splitlines()[0] == "ACTION4"
    assert "changed x8-23 y8-15: 04 -> 40" in act.stdout
    for arguments, code, words in [
        (["act", "ACTION9"], 1, "unknown action"),
        (["click", "1", "2"], 1, "not available"),
        (["click", "1"], 2, "usage"),
        (["dance"], 2, "usage"),
        ([], 2, "usage"),
    ]:
        done = run(arc_play, *arguments, env=env)
        assert done.returncode == code
        assert words in done.stdout + done.stderr
    assert "actions 1," in run(arc_play, "status", env=env).stdout
    assert "level restarted" in run(arc_play, "reset", env=env).stdout
    way = [step[0] for step in solutions["ky01-v1"][0]]
    assert "level 2 of 5" in run(arc_play, "act", *way, "ACTION1", env=env).stdout
    # The level changed before the last action, which therefore was not done.
    assert "actions 11," in run(arc_play, "status", env=env).stdout


def test_without_a_game_the_command_says_so(bin_folder):
    done = run(bin_folder / "arc-play", "look", env={"PATH": os.defpath})
    assert done.returncode == 1
    assert "ARC_PLAY_SOCKET" in done.stderr


def test_the_programs_lead_to_no_game_file(bin_folder):
    for path in bin_folder.iterdir():
        data = path.read_bytes()
        first_line = data.split(b"\n")[0].decode()
        assert str(Path(sys.prefix)) not in first_line
        assert b"baseline" not in data
        assert str(Path(__file__).parents[2]).encode() not in data


def test_the_same_source_gives_the_same_bytes(tmp_path):
    one, two = write_launchers(tmp_path / "a"), write_launchers(tmp_path / "b")
    assert all(one[name].read_bytes() == two[name].read_bytes() for name in one)


@pytest.mark.parametrize(
    ("argv", "request_made"),
    [
        (["look", "--frames"], {"op": "look", "frames": True}),
        (["act", "ACTION6", "3", "4"], {"op": "act", "action": "ACTION6", "x": 3, "y": 4}),
        (["click", "-1", "70"], {"op": "click", "x": -1, "y": 70}),
        (["quit"], {"op": "quit"}),
    ],
)
def test_arguments_become_requests(argv, request_made):
    assert read_arguments(argv)[0] == [request_made]


@pytest.mark.parametrize(
    "argv", [["look", "--what"], ["act"], ["click", "a", "b"], ["reset", "now"]]
)
def test_wrong_arguments_make_no_request(argv):
    with pytest.raises(WrongUsage):
        read_arguments(argv)


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_the_mcp_server_serves_the_official_client(serve, bin_folder, solutions, mode):
    game = serve("so01-v1")

    async def play():
        server = StdioServerParameters(
            command=str(bin_folder / "arc-mcp"), env=game.plan.player_env
        )
        async with Client(stdio_client(server), mode=mode) as client:
            if mode != "2026-07-28":  # then the client asks for nothing before its first request
                assert "64x64" in client.instructions
            assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["look", "act", "click", "reset", "status"]
            look = await client.call_tool("look", {"image": True})
            assert "colours:" in look.content[0].text
            assert look.content[1].mime_type == "image/png"
            bad = await client.call_tool("click", {"x": 900, "y": 1})
            assert bad.is_error
            assert "outside" in bad.content[0].text
            wrong = await client.call_tool("act", {"action": "ACTION1"})
            assert "not available" in wrong.content[0].text
            for _, x, y in solutions["so01-v1"][0]:
                done = await client.call_tool("click", {"x": x, "y": y})
            assert "level 2 of 4" in done.content[0].text
            assert (await client.call_tool("reset", {})).is_error is False
            status = await client.call_tool("status", {})
            assert "resets 1" in status.content[0].text
            if mode == "legacy":
                with pytest.warns(MCPDeprecationWarning):
                    await client.send_ping()

    anyio.run(play)


class FakeGame:
    def ask(self, **request):
        return {"ok": True, "text": str(request), "state": "NOT_FINISHED"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[" * 100_000, -32700),
        ("5", -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"server/discover"}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"close"}}', -32602),
        (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"act","arguments":3}}',
            -32602,
        ),
    ],
)
def test_wrong_rpc_gets_an_error(line, code):
    assert answer_line(GameServer(FakeGame()), line)["error"]["code"] == code


def test_notifications_and_replies_get_no_answer_and_extra_fields_are_dropped():
    assert (
        answer_line(
            GameServer(FakeGame()), '{"jsonrpc":"2.0","method":"notifications/initialized"}'
        )
        is None
    )
    assert answer_line(GameServer(FakeGame()), '{"jsonrpc":"2.0","id":9,"result":{}}') is None
    call = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        '{"name":"status","arguments":{"op":"quit","token":"x"}}}'
    )
    assert (
        answer_line(GameServer(FakeGame()), call)["result"]["content"][0]["text"]
        == "{'op': 'status'}"
    )
