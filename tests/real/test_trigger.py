"""`assay trigger` with the four real agents: fires, near misses, a decoy and a sub-agent."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import Request, ScriptedModel

pytestmark = pytest.mark.real

CASES: list[dict[str, Any]] = [
    {"id": "fire", "input": "FIRE: write the release notes", "shouldTrigger": True},
    {"id": "near", "input": "NEAR: write notes on the release film", "shouldTrigger": False},
    {"id": "decoy", "input": "DECOY: write up what is new", "shouldTrigger": True},
    {"id": "sub", "input": "OUTER: have the notes written", "shouldTrigger": True},
    {"id": "false", "input": "FALSE: read the old notes", "shouldTrigger": False},
]
SKILLS = {"relnotes": "Write release notes.", "news": "Write news."}
N_MORE = 6
"""Tool calls that the script has after a skill was used: an ended trial makes none of them."""


def load(agent: str, skill: str) -> dict[str, Any]:
    """How each agent loads a skill; Codex opens the file."""
    if agent == "claude":
        return {"name": "Skill", "arguments": {"skill": skill}}
    if agent == "codex":
        return {"tool": "shell", "command": f"cat .agents/skills/{skill}/SKILL.md"}
    return {
        "name": "activate_skill" if agent == "gemini" else "skill",
        "arguments": {"name": skill},
    }


def read(agent: str, skill: str) -> dict[str, Any]:
    """Another way: the file is read with the tool that reads any file."""
    if agent in ("claude", "codex"):
        return load(agent, skill)
    return {"tool": "read_file", "path": f".agents/skills/{skill}/SKILL.md"}


def delegate(kind: Any) -> dict[str, Any]:
    """Let a sub-agent do the job INNER."""
    given = json.dumps(kind.task).replace("SUBJOB", "INNER")
    return dict(json.loads(given))


def script(kind: Any) -> dict[str, Any]:
    agent = kind.name
    wait = {"calls": [{"tool": "shell", "command": "sleep 1"}]}
    more = [wait] * N_MORE
    end = {"text": "Done."}

    def thread(word: str, *steps: dict[str, Any]) -> dict[str, Any]:
        return {"when": {"firstUserContains": word}, "steps": [*steps, end], "name": word}

    return {
        "threads": [
            thread("INNER", {"calls": [load(agent, "relnotes")]}),
            thread("FIRE", {"calls": [load(agent, "relnotes")]}, *more),
            thread("NEAR", {"calls": [{"tool": "shell", "command": "ls .agents .claude || true"}]}),
            thread("DECOY", {"calls": [load(agent, "news")]}),
            thread("OUTER", {"calls": [delegate(kind)]}, wait, wait),
            thread("FALSE", {"calls": [read(agent, "relnotes")]}, *more),
        ]
    }


@dataclass(frozen=True)
class Triggered:
    """What `assay trigger` made of the cases."""

    code: int
    stderr: str
    report: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    requests: list[Request]

    @property
    def fired(self) -> dict[str, int]:
        return {case["id"]: case["nFired"] for case in self.report["runs"][0]["cases"]}


@pytest.fixture
def trigger(
    agent_program: Callable[[str], Path],
    tmp_path: Path,
) -> Callable[..., Triggered]:
    """Run `assay trigger` with a real agent against a scripted model."""

    def run(kind: Any, *args: str, given: dict[str, str] | None = None) -> Triggered:
        for name, description in SKILLS.items():
            folder = tmp_path / "skills" / name
            folder.mkdir(parents=True)
            head = f"---\nname: {name}\ndescription: {description}\n---\n"
            (folder / "SKILL.md").write_text(f"{head}# How to {name}\n")
        cases, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
        cases.write_text("".join(json.dumps(case) + "\n" for case in CASES))
        with ScriptedModel(script(kind)) as model:
            env = kind.env(model.url) if given is None else given
            command = [sys.executable, "-m", "assay", "trigger", "skills/relnotes", "--json"]
            command += [
                "--cases",
                str(cases),
                "-s",
                f"{kind.name}:{agent_program(kind.name)}",
                "-k",
                "1",
            ]
            command += ["-o", str(out), "-j", "2", "--with", "skills", "-t", "120000", *args]
            command += kind.words(model.url)
            command += [word for name in env for word in ("--env", name)]
            done = subprocess.run(
                command, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=400, check=False,
            )  # fmt: skip
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            return Triggered(
                code=done.returncode,
                stderr=done.stderr,
                report=json.loads(done.stdout),
                rows={row["id"]: row for row in rows},
                requests=model.requests,
            )

    return run


def test_fires_near_misses_a_decoy_and_a_sub_agent(
    trigger: Callable[..., Triggered], kind: Any
) -> None:
    done = trigger(kind)
    assert done.code == 0, done
    assert done.fired == {"fire": 1, "near": 0, "decoy": 0, "sub": 1, "false": 1}, done
    (run,) = done.report["runs"]
    assert run["instead"] == {"news": 1}
    assert (run["recall"]["nFired"], run["recall"]["nTrials"]) == (2, 3)
    assert (run["falseFires"]["nFired"], run["falseFires"]["nTrials"]) == (1, 2)
    assert run["nNotMeasured"] == 0
    assert run["invalid"] == []
    passes = {name: row["trials"][0]["pass"] for name, row in done.rows.items()}
    assert passes == {"fire": True, "near": True, "decoy": False, "sub": True, "false": False}
    assert [row["trials"][0].get("failure") for row in done.rows.values()] == [None] * len(CASES)
    # A trial ends as soon as it is decided.
    for name, word in (("fire", "FIRE"), ("false", "FALSE")):
        assert done.rows[name]["trials"][0]["metadata"]["endedEarly"] is True, done
        asked = [r for r in done.requests if r.thread == word and r.served == "step"]
        assert len(asked) <= 2, [r.step for r in asked]
    assert run["nEndedEarly"] >= 2


@pytest.mark.parametrize("kind", ["claude"], indirect=True)
def test_a_skill_that_the_agent_does_not_list_makes_it_invalid(
    trigger: Callable[..., Triggered], kind: Any
) -> None:
    # Claude Code takes no skill whose settings switch it off.
    done = trigger(kind, "--filter", "near", "--agent-arg=--disable-slash-commands")
    assert done.code == 4, done
    assert "did not list the skill in 1 of 1 trials" in done.stderr


@pytest.mark.parametrize("kind", ["claude"], indirect=True)
def test_an_agent_that_is_not_logged_in_is_not_measured(
    trigger: Callable[..., Triggered], kind: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    done = trigger(kind, "--filter", "near", given={"CLAUDE_CODE_MAX_RETRIES": "1"})
    assert done.code == 1, done
    assert "claude is not logged in: run `claude` once and log in, or set" in done.stderr
    assert done.report["runs"][0]["nNotMeasured"] == 1
