"""The flow of docs/arc-compete.md: seven commands, from choosing games to exported recordings."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import ScriptedModel

PAGE = Path(__file__).parents[2] / "docs" / "arc-compete.md"


def commands_of_the_page() -> list[list[str]]:
    """The lines of the flow, as they stand on the page, without their comments."""
    block = PAGE.read_text().partition("## From the first run")[2].partition("```\n")[2]
    lines = [shlex.split(line, comments=True) for line in block.partition("```")[0].splitlines()]
    return [words[1:] for words in lines if words and words[0] == "assay"]


class Competitor:
    """Types the lines of the page; of RUN1 and RUN2 the ids that were printed before."""

    def __init__(self, assay: Callable[..., Any], agent: list[str], **env: str) -> None:
        self._assay, self._agent, self._env = assay, agent, env
        self._ids: list[str] = []
        self.said: list[str] = []

    def type(self, words: list[str]) -> str:
        known = {f"RUN{n}": run_id for n, run_id in enumerate(self._ids, 1)}
        typed = [known.get(word, word) for word in words]
        if words[:2] == ["arc", "run"]:
            typed[typed.index("claude")] = self._agent[0]
            typed += [*self._agent[1:], "-q"]
        done = self._assay(*typed, env=self._env, timeout=200)
        assert done.code == 0, (typed, done.stderr)
        self._ids += re.findall(r"^Next: assay arc report (\w+)$", done.stdout, re.MULTILINE)
        self.said.append(done.stdout)
        return done.stdout


def follow(competitor: Competitor, tmp_path: Path) -> None:
    """Follow the page from top to bottom, and look at what a competitor wants to know."""
    lines = commands_of_the_page()
    assert len(lines) <= 7
    (tmp_path / "advice.md").write_text("Level 2 is a maze: walk around the wall, from below.\n")
    for words in lines:
        competitor.type(words)
    listed, first, replay, second, verified, compared, exported = competitor.said
    assert "ky01-v1" in listed
    page = Path(first.splitlines()[-1].removeprefix("Why it is stuck: file://"))
    text = page.read_text()
    assert "stuck on level 2 of 5" in text
    assert text.count('<svg viewBox="0 0 64 64"') == 2
    assert "<li>Level 2:" in text
    assert "<b>Actions</b>: ACTION1" in text
    assert "Thought: Level 2:" in replay
    assert "Score: " in second
    assert verified.count("verified: replayed") == 2
    assert "told the agent different things: none and Level 2 is a maze" in compared
    assert compared.count("replayed |") == 2
    assert "Tokens per level" in compared
    [recording] = exported.splitlines()
    answers = [json.loads(line) for line in (tmp_path / recording).read_text().splitlines()]
    assert answers[0]["data"]["game_id"] == "ky01-v1"


WAY = ["ACTION4"] * 5 + ["ACTION2"] * 3 + ["ACTION3"] * 2


def play(*actions: str, thinking: str = "") -> dict[str, Any]:
    tool = {"tool": "mcp", "server": "arc", "name": "act"}
    calls = [{**tool, "arguments": {"action": action}} for action in actions]
    return {"thinking": thinking, "calls": calls}


@pytest.mark.real
@pytest.mark.usefixtures("known_levels")
def test_the_page_can_be_followed_with_claude_code(
    assay: Callable[..., Any], agent_program: Callable[[str], Path], tmp_path: Path
) -> None:
    steps = [play(action) for action in WAY]
    steps += [play("ACTION1", thinking="Level 2: there is a wall."), play("ACTION1")]
    with ScriptedModel({"steps": [*steps, {"text": "I give up."}]}) as model:
        key = "sk-dummy-0123456789"
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": key}
        words = [f"claude:{agent_program('claude')}", "--model", "claude-sonnet-4-5"]
        words += [word for name in env for word in ("--env", name)]
        follow(Competitor(assay, words, **env, HOME=str(tmp_path)), tmp_path)


@pytest.mark.usefixtures("known_levels")
def test_the_page_can_be_followed_with_any_agent(
    assay: Callable[..., Any], arc: Any, tmp_path: Path
) -> None:
    follow(Competitor(assay, [str(arc.player(tmp_path))]), tmp_path)
