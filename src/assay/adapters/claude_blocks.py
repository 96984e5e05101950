"""What the result of a tool call of Claude Code says, in plain values."""

import re
from typing import Any

_EXIT_CODE = re.compile(r"Exit code (\d+)\b")


def text_of(content: Any) -> Any:
    """Give the text of a result; as it stands where it is more than text."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [
        block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        for block in content
    ]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if len(known) == len(content) else content


def exit_code_of(name: str, output: Any, structured: Any, *, failed: bool) -> int | None:
    """Give the exit code of a shell command, where it can be known.

    A failure tells it in words; a success is 0, unless the CLI gave another code a good meaning
    (grep without a match) or the command still runs.
    """
    if name != "Bash":
        return None
    if failed:
        said = _EXIT_CODE.match(output) if isinstance(output, str) else None
        return int(said.group(1)) if said else None
    if not isinstance(structured, dict) or "stdout" not in structured:
        return None
    other = ("interrupted", "backgroundTaskId", "returnCodeInterpretation")
    return None if any(structured.get(key) for key in other) else 0
