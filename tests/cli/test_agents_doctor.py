"""agents and doctor: what there is, and exactly what is wrong with it."""

import json
import os
from pathlib import Path

import pytest

from assay.adapters.vendor import ACP_AGENTS, KNOWN


@pytest.fixture
def fake(tmp_path):
    """Put programs of these names and bodies on an otherwise bare PATH."""

    def write(**bodies: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, body in bodies.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    return write


def test_agents_are_listed_with_how_to_get_them(assay):
    done = assay("agents", env={"PATH": "/usr/bin:/bin"})
    assert done.code == 0
    for agent in (*KNOWN, *ACP_AGENTS):
        assert agent.install in done.stdout
        assert agent.login in done.stdout
    assert "runs goose acp (ACP)" in done.stdout


def test_an_agent_that_speaks_acp_has_a_name(assay, fake, prompts):
    rows = {row["name"]: row for row in json.loads(assay("agents", "--json").stdout)}
    assert rows["copilot"]["acp"] == ["--acp"]
    assert "account" in rows["cline"]["tried"]
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "log in"}})
    env = fake(goose=f"[ $1 = acp ] || exit 1; read line; echo '{said}'; read line")
    done = assay("doctor", "goose", env=env)
    assert done.code == 1
    assert "not logged in" in done.stdout
    assert "GOOSE_PROVIDER" in done.stdout
    done = assay("capture", prompts({"id": "a", "input": "hi"}), "-s", "goose", "-q", env=env)
    (row,) = done.rows
    assert (row["agent"]["adapter"], row["failure"]["cause"]) == ("goose", "auth")


def test_versions_are_found_and_an_untested_one_is_named(assay, fake):
    tested = next(a for a in KNOWN if a.name == "codex").tested[0]
    env = fake(codex=f"echo codex-cli {tested}", gemini="echo 99.0.1", claude="exit 1")
    rows = {row["name"]: row for row in json.loads(assay("agents", "--json", env=env).stdout)}
    assert (rows["codex"]["version"], rows["codex"]["notes"]) == (tested, [])
    assert "not one of those we test" in rows["gemini"]["notes"][0]
    assert rows["claude"]["notes"] == ["does not report its version"]


def test_doctor_says_not_installed(assay):
    done = assay("doctor", "codex", env={"PATH": "/usr/bin:/bin"})
    assert done.code == 1
    assert "not installed" in done.stdout
    assert "npm install -g @openai/codex" in done.stdout


def test_doctor_without_names_starts_nothing(assay, fake, tmp_path):
    env = fake(claude=f'[ "$1" = --version ] || touch {tmp_path}/started; echo 1.0.0')
    done = assay("doctor", env=env)
    assert done.code == 0
    assert "not started" in done.stdout
    assert not (tmp_path / "started").exists()


def test_doctor_names_a_missing_login(assay, fake):
    line = json.dumps(
        {
            "type": "result",
            "subtype": "success",
            "is_error": True,
            "result": "Invalid API key · Please run /login",
            "api_error_status": 401,
            "terminal_reason": "api_error",
            "session_id": "s",
        }
    )
    env = fake(
        claude=f"[ \"$1\" = --version ] && echo 2.1.325 && exit 0\ncat <<'X'\n{line}\nX\nexit 1"
    )
    done = assay("doctor", "claude", env=env)
    assert done.code == 1
    assert "not logged in" in done.stdout
    assert "ANTHROPIC_API_KEY" in done.stdout


def test_doctor_starts_a_declared_agent(assay, agent):
    done = assay("doctor", agent())
    assert done.code == 0, done.stdout
    broken = assay("doctor", agent(command=[str(Path("/no/such/program"))]))
    assert broken.code == 1
    assert "did not start" in broken.stdout


def test_doctor_says_what_can_be_confined_here(assay, fake):
    said = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"
    done = assay("doctor", env=fake(bwrap=said, docker="exit 1", podman="echo 4.3.1"))
    assert done.code == 0
    assert "!! --sandbox: --sandbox does not work on this machine" in done.stdout
    assert "No permissions to create new namespace" in done.stdout
    assert "ok --container: podman answers; docker does not" in done.stdout
    assert "--memory and --cpus: enforced by" in done.stdout


def test_doctor_tells_how_to_install_a_sandbox(assay, tmp_path):
    done = assay("doctor", env={"PATH": str(tmp_path)})
    assert "apt install bubblewrap" in done.stdout
    assert "apt install podman" in done.stdout
