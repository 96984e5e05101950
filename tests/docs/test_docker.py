"""Dockerfile, compose file and the page about them: what can be checked without a registry."""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import BUN

from assay.adapters.vendor import KNOWN

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "containers" / "Dockerfile"
COMPOSE = ROOT / "compose.yaml"
SEEDS_COMPOSE = ROOT / "docker-compose.test.yml"
PAGE = (ROOT / "docs" / "docker.md").read_text()
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# Of the Compose specification: what a service, a build and the file itself may say.
SERVICE = {
    *("annotations", "attach", "build", "cap_add", "cap_drop", "cgroup", "command", "configs"),
    *("container_name", "depends_on", "deploy", "dns", "entrypoint", "env_file", "environment"),
    *("expose", "extends", "extra_hosts", "group_add", "healthcheck", "hostname", "image", "init"),
    *("labels", "logging", "mem_limit", "network_mode", "networks", "platform", "ports"),
    *("privileged", "profiles", "pull_policy", "read_only", "restart", "secrets", "security_opt"),
    *("shm_size", "stdin_open", "stop_signal", "tmpfs", "tty", "ulimits", "user", "volumes"),
    *("working_dir",),
}
BUILD = {"context", "dockerfile", "args", "target", "tags", "cache_from", "labels", "platforms"}
FILE = {"name", "services", "volumes", "networks", "configs", "secrets", "include"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Give the instructions of a Dockerfile, comments left out and lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """Give the instructions of each stage by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions(text):
        if word == "FROM":
            found[rest.split(" AS ")[1]] = []
        found[list(found)[-1]].append((word, rest))
    return found


def faults(text: str) -> list[str]:
    """Name what a linter of Dockerfiles would object to."""
    found: list[str] = []
    parts = stages(text)
    for name, stage in parts.items():
        users = [rest for word, rest in stage if word == "USER"]
        if not users or users[-1] in ("root", "0"):
            found.append(f"{name}: the last user is root")
        for word, rest in stage:
            found += [f"{name}: {fault}" for fault in _faults(word, rest, set(parts))]
    return found


def _faults(word: str, rest: str, known: set[str]) -> list[str]:
    found = []
    if word == "FROM":
        image = rest.split()[0]
        tag = image.partition(":")[2]
        if image not in known and (not tag or tag == "latest"):
            found.append(f"{image} has no fixed version")
    if word in ("ARG", "ENV") and SECRET.search(rest):
        found.append(f"{word} {rest} holds a secret")
    if word == "ADD":
        found.append("ADD instead of COPY")
    small = "--no-install-recommends" in rest and "rm -rf /var/lib/apt/lists" in rest
    if word == "RUN" and "apt-get install" in rest and not small:
        found.append("apt-get leaves more than is needed")
    if word == "RUN" and "npm install" in rest:
        packages = [w for w in shlex.split(rest.partition("&&")[0]) if not w.startswith("-")][2:]
        found += [f"{p} has no fixed version" for p in packages if not re.search(r".@\S+$", p)]
    if word in ("ENTRYPOINT", "CMD") and not rest.startswith("["):
        found.append(f"{word} goes through a shell")
    if word == "WORKDIR" and not rest.startswith("/"):
        found.append("WORKDIR is relative")
    if "sudo" in rest or "curl -k" in rest:
        found.append(f"{word} uses sudo or an unchecked download")
    return found


def copied() -> list[str]:
    return [
        source
        for word, rest in instructions(DOCKERFILE.read_text())
        if word == "COPY"
        for source in rest.split()[:-1]
    ]


def test_the_dockerfile_follows_the_rules() -> None:
    text = DOCKERFILE.read_text()
    assert faults(text) == []
    assert list(stages(text)) == ["agents", "assay"]
    node = re.search(r"^FROM node:(\d+)-", text, re.MULTILINE)
    assert node is not None
    assert int(node[1]) >= 24
    for agent in KNOWN:
        assert f"ARG {agent.name.upper()}={agent.tested[0]}\n" in text


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("FROM node AS a\nUSER x", "no fixed version"),
        ("FROM node:latest AS a\nUSER x", "no fixed version"),
        ("FROM node:24 AS a", "root"),
        ("FROM node:24 AS a\nUSER x\nUSER root", "root"),
        ("FROM node:24 AS a\nENV OPENAI_API_KEY=x\nUSER x", "secret"),
        ("FROM node:24 AS a\nRUN npm install -g @openai/codex\nUSER x", "no fixed version"),
        ("FROM node:24 AS a\nRUN apt-get install -y git\nUSER x", "more than is needed"),
        ("FROM node:24 AS a\nADD . /x\nUSER x", "ADD"),
        ("FROM node:24 AS a\nCMD assay\nUSER x", "shell"),
    ],
)
def test_a_bad_dockerfile_is_noticed(bad: str, words: str) -> None:
    assert any(words in fault for fault in faults(bad))


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source


@pytest.mark.install
def test_the_package_is_built_from_what_is_copied(tmp_path: Path) -> None:
    for source in copied():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", "--no-deps"]
    subprocess.run([*pip, ".", "-w", "out"], cwd=tmp_path, check=True)
    assert list((tmp_path / "out").glob("assay-*.whl"))


def load(text: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def test_the_compose_file_follows_the_specification() -> None:
    content = load(COMPOSE.read_text())
    assert {key for key in content if not key.startswith("x-")} <= FILE
    images = {s["image"] for s in content["services"].values() if "build" in s}
    for name, service in content["services"].items():
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
        assert service.keys() <= SERVICE, service.keys() - SERVICE
        assert "build" in service or service["image"] in images
        assert not service.get("privileged")
        assert service["cap_drop"] == ["ALL"]
        assert service["init"] is True
        for volume in service["volumes"]:
            source, target, *mode = volume.split(":")
            assert source.startswith("./"), "relative to the compose file, or it is a named volume"
            assert target.startswith("/")
            assert mode in ([], ["ro"])


def test_what_compose_builds_is_there() -> None:
    build = load(COMPOSE.read_text())["services"]["assay"]["build"]
    assert build.keys() <= BUILD
    assert (ROOT / build["context"] / build["dockerfile"]).samefile(DOCKERFILE)
    assert build["target"] in stages(DOCKERFILE.read_text())
    declared = {
        rest.split("=")[0] for word, rest in instructions(DOCKERFILE.read_text()) if word == "ARG"
    }
    assert build["args"].keys() <= declared


def test_the_seeds_compose_file_has_our_services_and_builds_what_it_runs() -> None:
    ours, seeds = load(COMPOSE.read_text()), load(SEEDS_COMPOSE.read_text())
    ours["services"]["test"]["build"] = ours["services"]["assay"]["build"]
    assert seeds == ours


@pytest.mark.install
def test_podman_compose_reads_the_seeds_file(tmp_path: Path, podman_program: None) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, "--target", tmp_path, "podman-compose==1.6.0"], check=True)
    program = [sys.executable, "-m", "podman_compose", "-f", SEEDS_COMPOSE, "config"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "ASSAY_AGENT": "demo", "ASSAY_UID": "7"}
    done = subprocess.run(program, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    test = load(done.stdout)["services"]["test"]
    assert "--schema=demo" in test["command"]
    assert str(test["build"]["args"]) in ("['UID=7']", "{'UID': '7'}")


def test_the_image_has_the_bun_that_the_tests_run() -> None:
    assert f"ARG BUN={BUN.partition('@')[2]}\n" in DOCKERFILE.read_text()
    (agents,) = [
        rest for word, rest in stages(DOCKERFILE.read_text())["agents"]
        if word == "RUN" and "npm install" in rest
    ]  # fmt: skip
    assert "bun@${BUN}" in shlex.split(agents)


def test_results_and_prompts_are_mounted_where_commands_look_for_them() -> None:
    workdir = [rest for word, rest in stages(DOCKERFILE.read_text())["assay"] if word == "WORKDIR"][
        -1
    ]
    for service in load(COMPOSE.read_text())["services"].values():
        targets = dict(volume.split(":")[:2] for volume in service["volumes"])
        assert targets == {"./evals": f"{workdir}/evals", "./results": f"{workdir}/results"}
        assert "./evals:" + targets["./evals"] + ":ro" in service["volumes"]


def test_keys_are_named_and_have_no_value() -> None:
    wanted = {"ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY"}
    for service in load(COMPOSE.read_text())["services"].values():
        assert set(service["environment"]) == wanted, "a value would stand behind a name"
        assert all(f"`{name}`" in PAGE for name in wanted)
    assert not re.search(r"sk-[A-Za-z0-9]", COMPOSE.read_text() + DOCKERFILE.read_text() + PAGE)


def interpolated(text: str, **values: str) -> str:
    """Replace ${NAME:-default} as compose does."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: values.get(m[1]) or m[2], text)


def test_the_command_of_the_service_test_runs_and_goes_on(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    assert assay("init", "evals").code == 0
    words = load(interpolated(COMPOSE.read_text(), ASSAY_AGENT="demo"))["services"]["test"][
        "command"
    ]
    for _ in range(2):
        done = assay(*words)
        assert done.code == 0, done.stderr
    assert len((tmp_path / "results" / "demo.jsonl").read_text().splitlines()) == 8
    default = load(interpolated(COMPOSE.read_text()))["services"]["test"]["command"]
    assert "--schema=claude" in default


def command_lines() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_every_command_line_of_the_page_names_a_service_or_a_file_that_exists() -> None:
    services = load(COMPOSE.read_text())["services"]
    run = [line for line in command_lines() if "compose" in line and "run" in line]
    assert {"assay", "test"} == {line[line.index("--rm") + 1] for line in run}
    assert all(line[line.index("--rm") + 1] in services for line in run)
    for line in command_lines():
        if line[:2] == ["docker", "build"]:
            assert (ROOT / line[line.index("-f") + 1]).samefile(DOCKERFILE)
            assert line[-1] == "."
            if "--target" in line:
                assert line[line.index("--target") + 1] in stages(DOCKERFILE.read_text())


def test_every_assay_command_of_the_page_is_one_of_ours() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in command_lines():
        if "--rm" in line and line[line.index("--rm") + 1] == "assay":
            words = line[line.index("--rm") + 2 :]
            help_page = subprocess.run(
                ["assay", words[0], "--help"], env=os.environ | {"PATH": path},
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            for option in (word for word in words if word.startswith("-")):
                assert re.search(rf"(^|\s){re.escape(option)}\b", help_page), line
