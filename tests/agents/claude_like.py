#!/usr/bin/env -S python3 -IS
"""A program that behaves as Claude Code does on its command line, without a model.

It reads what Claude Code would read in its folder and in HOME, lists it in its start event, and
answers by it: the word after "Magic word:" in a skill, in CLAUDE.md or in the name of a server, or
of the model. Without any of them it answers "no idea".
"""

# pathlib, json and re would each double the time that it needs to start.
# ruff: noqa: PTH109, PTH110, PTH112, PTH123, PTH208

import os
import sys
import time
from _json import encode_basestring_ascii as quoted

args = sys.argv[1:]
prompt = sys.stdin.read() if "-p" in args and not sys.stdin.isatty() else ""


def option(name: str) -> str | None:
    return args[args.index(name) + 1] if name in args else None


def emit(**event: object) -> None:
    print(to_json({"session_id": "s-1", **event}), flush=True)


def to_json(value: object) -> str:
    """Write a value as json.dumps does."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {to_json(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower()


def magic_words(text: str) -> list[str]:
    """Give the word after each "Magic word:"."""
    return [part.split()[0] for part in text.split("Magic word: ")[1:]]


def server_names(config: str) -> list[str]:
    import json  # late: few runs have servers

    return list(json.loads(config)["mcpServers"])


if "--version" in args:
    print(os.environ.get("LIKE_VERSION", "2.1.325"), "(Claude Code)")
    sys.exit(0)
if os.environ.get("LIKE_LOGGED_OUT"):
    emit(type="result", subtype="success", is_error=True, api_error_status=401, num_turns=1,
         result="Invalid API key · Please run /login", usage={}, total_cost_usd=0)  # fmt: skip
    sys.exit(1)


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


folders = [f"{home}/.claude/skills" for home in (".", os.environ.get("HOME", "/nowhere"))]
skills = {
    name: read(f"{folder}/{name}/SKILL.md")
    for folder in folders
    for name in (sorted(os.listdir(folder)) if os.path.isdir(folder) else ())
    if os.path.exists(f"{folder}/{name}/SKILL.md") and not os.environ.get("LIKE_BLIND")
}
texts = list(skills.values())
texts += [read("CLAUDE.md")] if os.path.exists("CLAUDE.md") else []
config = option("--mcp-config")
servers = server_names(config) if config else []
texts += [f"Magic word: {name}" for name in servers]
model = option("--model") or "claude-sonnet-4-5"
texts += ["Magic word: opus"] if "opus" in model else []
emit(
    type="system", subtype="init", cwd=os.getcwd(), model=model, skills=sorted(skills),
    tools=["Bash", "Read", *(f"mcp__{name}__look" for name in servers)],
    mcp_servers=[{"name": name, "status": "connected"} for name in servers],
    permissionMode="bypassPermissions", claude_code_version="2.1.325",
)  # fmt: skip
time.sleep(float(os.environ.get("LIKE_S", "0")))
if log := os.environ.get("LIKE_LOG"):
    with open(log, "a") as file:
        file.write(f"{os.getcwd()}\n")
words = [word for text in texts for word in magic_words(text)]
answer = ", ".join(words) or "no idea"
# Of some questions, by their last word, something else becomes of it if there is a magic word.
asked = f"{prompt} {args[-1]}".split()[-1]


def is_among(variable: str) -> bool:
    return bool(words) and asked in os.environ.get(variable, "").split()


once = f"{os.environ.get('LIKE_LOG')}.{quoted(asked)}"  # the first attempt leaves a file
if is_among("LIKE_LOST") or (is_among("LIKE_LOST_ONCE") and not os.path.exists(once)):
    open(once, "w").close()
    emit(type="result", subtype="success", is_error=True, api_error_status=529, num_turns=1,
         result="API Error: 529 overloaded", usage={}, total_cost_usd=0)  # fmt: skip
    sys.exit(1)
answer = "crash" if is_among("LIKE_CRASHES") else "no idea" if is_among("LIKE_FAILS") else answer
uses = [("Skill", {"skill": name}) for name in sorted(skills)]
uses += [(f"mcp__{name}__look", {}) for name in servers]
for number, (tool, given) in enumerate(() if os.environ.get("LIKE_UNUSED") else uses):
    call = f"call-{number}"
    used = {"type": "tool_use", "id": call, "name": tool, "input": given}
    emit(type="assistant", message={"role": "assistant", "model": model, "content": [used]})
    done = {"type": "tool_result", "tool_use_id": call, "content": "Done."}
    emit(type="user", message={"role": "user", "content": [done]})
emit(type="assistant", message={"role": "assistant", "model": model,
     "content": [{"type": "text", "text": answer}]})  # fmt: skip
if os.environ.get("LIKE_DELETES"):
    os.system("rm -rf .claude")
# A thousand tokens of this model cost a cent and a half.
tokens = int(os.environ.get("LIKE_TOKENS", "5"))
emit(type="result", subtype="success", is_error=False, num_turns=1, result=answer,
     usage={"input_tokens": 0, "output_tokens": tokens})  # fmt: skip
