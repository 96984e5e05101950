"""Neutral tools in each agent's words."""

import shlex
import subprocess

import pytest

from assay.testing.model import ScriptedModel
from assay.testing.model.exchange import Conversation, OfferedTool, choose_tool
from assay.testing.model.script import Call


def offer(provider: str, *tools: OfferedTool) -> Conversation:
    return Conversation(provider, "m", True, (), tools)


def tool(name: str, *properties: str, required: tuple[str, ...] = (), **more) -> OfferedTool:
    schema = {"properties": {p: {"type": "string"} for p in properties}, "required": required}
    return OfferedTool(name, schema, **more)


AGENTS = {
    "claude": offer(
        "anthropic",
        tool("Bash", "command", "description"),
        tool("Write", "file_path", "content"),
        tool("Read", "file_path"),
        tool("Edit", "file_path", "old_string", "new_string"),
    ),
    "codex": offer(
        "responses", tool("exec_command", "cmd"), OfferedTool("apply_patch", custom=True)
    ),
    "gemini": offer(
        "gemini",
        tool("run_shell_command", "command"),
        tool("write_file", "file_path", "content"),
        tool("read_file", "file_path"),
        tool("replace", "file_path", "instruction", "old_string", "new_string",
             required=("instruction",)),
    ),
    "opencode": offer(
        "chat",
        tool("bash", "command", "description", required=("command", "description")),
        tool("write", "content", "filePath"),
        tool("read", "filePath"),
        tool("edit", "filePath", "oldString", "newString"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("agent", "name", "arguments"),
    [
        ("claude", "Bash", {"command": "ls"}),
        ("codex", "exec_command", {"cmd": "ls"}),
        ("gemini", "run_shell_command", {"command": "ls"}),
        ("opencode", "bash", {"command": "ls", "description": "scripted"}),
    ],
)
def test_shell(agent, name, arguments) -> None:
    use = choose_tool(Call(tool="shell", command="ls"), AGENTS[agent])
    assert (use.name, use.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("agent", "name", "path", "old"),
    [
        ("claude", "Edit", "file_path", "old_string"),
        ("gemini", "replace", "file_path", "old_string"),
        ("opencode", "edit", "filePath", "oldString"),
    ],
)
def test_edit(agent, name, path, old) -> None:
    use = choose_tool(Call(tool="edit_file", path="a", old="x", new="y"), AGENTS[agent])
    assert use.name == name
    assert (use.arguments[path], use.arguments[old]) == ("a", "x")


def test_patches_where_the_agent_edits_by_patch() -> None:
    write = choose_tool(Call(tool="write_file", path="a", content="x\n\ny\n"), AGENTS["codex"])
    assert write.input == "*** Begin Patch\n*** Add File: a\n+x\n+\n+y\n*** End Patch"
    edit = choose_tool(Call(tool="edit_file", path="a", old="x\n", new="y\n"), AGENTS["codex"])
    assert edit.input == "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"


def test_shell_does_what_no_tool_does(tmp_path) -> None:
    plain = offer("responses", tool("exec_command", "cmd"))
    path, content = str(tmp_path / "new dir" / "it's"), "a 'quoted' $text\nwith no end"
    for call, said in (
        (Call(tool="write_file", path=path, content=content), ""),
        (Call(tool="edit_file", path=path, old="$text", new='"more"'), ""),
        (Call(tool="read_file", path=path), "a 'quoted' \"more\"\nwith no end"),
    ):
        command = choose_tool(call, plain).arguments["cmd"]
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert ran.stdout == said


def test_nothing_offered_gives_the_usual_name() -> None:
    names = {}
    for provider in ("anthropic", "responses", "chat", "gemini"):
        names[provider] = choose_tool(Call(tool="shell", command="ls"), offer(provider)).name
    assert list(names.values()) == ["Bash", "exec_command", "bash", "run_shell_command"]


def test_list_shaped_command_and_further_arguments() -> None:
    schema = {"properties": {"command": {"type": "array"}}}
    call = Call(tool="shell", command="ls -l", arguments={"timeout": 5})
    use = choose_tool(call, offer("chat", OfferedTool("shell", schema)))
    assert use.arguments == {"command": ["bash", "-lc", "ls -l"], "timeout": 5}
    assert shlex.split(use.arguments["command"][2]) == ["ls", "-l"]


@pytest.mark.parametrize(
    ("provider", "name", "namespace"),
    [
        ("anthropic", "mcp__s__t", None),
        ("responses", "t", "mcp__s"),
        ("chat", "s_t", None),
        ("gemini", "mcp_s_t", None),
    ],
)
def test_mcp_names(provider, name, namespace) -> None:
    call = Call(tool="mcp", server="s", name="t", arguments={"a": 1})
    use = choose_tool(call, offer(provider))
    assert (use.name, use.namespace, use.arguments) == (name, namespace, {"a": 1})
    offered = offer(provider, OfferedTool("s_t"))
    assert choose_tool(call, offered).name == "s_t"


def test_another_call_for_one_provider(client) -> None:
    call = {"name": "Task", "arguments": {"a": 1}, "byProvider": {"chat": {"name": "task"}}}
    with ScriptedModel({"steps": [{"calls": [call]}]}) as model:
        chat = client(model, "chat").ask(stream=False).json
        claude = client(model).ask(stream=False).json
    assert chat["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "task"
    assert claude["content"][0]["name"] == "Task"
