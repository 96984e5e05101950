"""A scripted agent: answers a few kinds of prompts and prints stream-json like a real one.

Run as a program of its own by the demo adapter, with the standard library alone.
"""

import glob
import json
import os
import random
import re
import sys
import time

CAPITALS = {"france": "Paris", "japan": "Tokyo", "kenya": "Nairobi", "peru": "Lima"}


def main() -> int:
    """Answer the prompt given with -p; return the exit code."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    persona, prompt = options.get("--persona", "steady"), options.get("-p", "")
    # The session id holds the conversation in hex: nothing has to be stored to resume it.
    memory = bytes.fromhex(options.get("--resume", "demo-").removeprefix("demo-")).decode()
    memory = "\n".join(filter(None, [memory, prompt]))
    session = "demo-" + memory.encode().hex()
    emit({"type": "system", "session_id": session, "model": options.get("--model", "demo-1")})
    if re.search(r"\bhang\b", prompt):
        time.sleep(600)
    if re.search(r"\bcrash\b", prompt):
        sys.stderr.write("demo agent: something broke on purpose\n")
        return 3
    say({"type": "thinking", "thinking": f"What kind of question is this: {prompt[:60]}"})
    answer = solve(prompt, memory, persona)
    if persona == "flaky" and random.random() < 0.35:
        answer = "I am not sure."
    say({"type": "text", "text": answer})
    emit(
        {
            "type": "result",
            "session_id": session,
            "version": "demo-1.0",
            "result": answer,
            "total_cost_usd": round(0.0001 * len(memory), 6),
            "usage": {"input_tokens": 40 + len(memory), "output_tokens": 10 + len(answer)},
        }
    )
    return 0


def solve(prompt: str, memory: str, persona: str) -> str:
    """Return the answer by what stands in its folder, else by the few rules this agent knows."""
    if persona == "skilled" and (skill := fitting_skill(prompt)):
        return read_skill(skill)
    if (found := instructed_answer(prompt)) is not None:
        return found
    if sums := re.search(r"(\d+) *([+*-]) *(\d+)", prompt):
        return calculate(int(sums[1]), sums[2], int(sums[3]), persona)
    if word := re.search(r"reverse the word (\w+)", prompt, re.IGNORECASE):
        return word[1][::-1]
    if country := re.search(r"capital of (\w+)", prompt, re.IGNORECASE):
        return CAPITALS.get(country[1].lower(), "I do not know.")
    if note := re.search(r"write (.+) into (\S+)", prompt, re.IGNORECASE):
        return write(note[1], note[2])
    if "remember" in prompt.lower():
        return "Noted."
    if numbers := re.findall(r"\d+", memory):
        return f"It was {numbers[0]}."
    return f"You said: {prompt}"


def instructed_answer(prompt: str) -> str | None:
    """Read skills and instructions in the working folder: "- release notes: Added, Fixed" is the
    answer to whatever asks for release notes."""
    for path in (*sorted(glob.glob(".agents/skills/*/SKILL.md")), "AGENTS.md"):  # noqa: PTH207
        if not os.path.isfile(path):  # noqa: PTH113
            continue
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            rules = re.findall(r"^- (.+?): (.+)$", file.read(), re.MULTILINE)
        for asked, answer in rules:
            if asked.lower() in prompt.lower():
                use("Read", path, f"{len(rules)} rules")
                return str(answer)
    return None


def use(tool: str, path: str, result: str) -> None:
    """Show the use of a tool."""
    call: dict[str, object] = {"type": "tool_use", "id": "call_1", "name": tool}
    say({**call, "input": {"path": path}})
    done = {"type": "tool_result", "tool_use_id": "call_1", "content": result}
    emit({"type": "user", "message": {"content": [done]}})


def calculate(left: int, sign: str, right: int, persona: str) -> str:
    """Do sums; only the better persona is good at large products."""
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    if sign == "*" and value > 10_000 and persona != "better":
        return str(value - 10)
    return str(value)


def write(text: str, name: str) -> str:
    """Use a tool: write a file in the workspace."""
    safe = os.path.basename(name)  # noqa: PTH119
    with open(safe, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text + "\n")
    use("Write", name, f"wrote {safe}")
    return f"I wrote {safe}."


FEW_WORDS = {
    "a",
    "an",
    "and",
    "for",
    "from",
    "in",
    "is",
    "it",
    "of",
    "on",
    "the",
    "to",
    "when",
    "with",
}


def fitting_skill(prompt: str) -> str:
    """Return the SKILL.md in this folder whose description has most words of the prompt, if two."""
    wanted, best, most = words(prompt), "", 1
    for path in sorted(glob.glob(".agents/skills/*/SKILL.md")):  # noqa: PTH207
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            head = file.read().partition("\n---")[0]
        found = re.search(r"^description:(.*(?:\n[ \t].*)*)", head, re.MULTILINE)
        n = len(wanted & words(found[1])) if found else 0
        if n > most:
            best, most = path, n
    return best


def words(text: str) -> set[str]:
    """Return the words that say what a text is about."""
    return set(re.findall(r"[a-z]+", text.lower())) - FEW_WORDS


def read_skill(path: str) -> str:
    """Open a skill the way a real agent does, with a tool."""
    say({"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": path}})
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    done = {"type": "tool_result", "tool_use_id": "call_1", "content": text}
    emit({"type": "user", "message": {"content": [done]}})
    return f"I follow {path}."


def say(block: dict[str, object]) -> None:
    """Print one block of an assistant message."""
    emit({"type": "assistant", "message": {"content": [block]}})


def emit(event: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
