"""--benchmark harbor:PATH as Harbor runs it: each task in an image of its own, made with podman."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.containers import IMAGE, containers, podman, unavailable

__all__ = ["podman"]

INSTALLED = {
    "task.toml": (
        'version = "1.0"\n[metadata]\ndifficulty = "easy"\ncategory = "system"\n'
        "[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n"
        '[environment]\nbuild_timeout_sec = 60.0\ncpus = 1\nmemory = "2G"\nstorage = "10G"\n'
    ),
    "instruction.md": "Install the tool system-wide, and keep its report fresh.\n",
    "environment/Dockerfile": (
        "FROM ubuntu:24.04\nRUN mkdir -p /opt/tool && echo 'echo built' > /opt/tool/tool && "
        "chmod +x /opt/tool/tool\nENV PATH=/opt/tool:$PATH\nWORKDIR /srv/work\n"
        "COPY seed.txt ./\nRUN echo $(cat seed.txt) and more > seed.txt\n"
    ),
    "environment/seed.txt": "seed\n",
    "solution/solve.sh": (
        "#!/bin/bash\nset -e\nsh /opt/tool/tool > /etc/tool.conf\npwd > /var-pwd\n"
        "(trap '' HUP; while cat seed.txt > /tmp/report; do sleep 0.2; done) > /dev/null 2>&1 &\n"
    ),
    "tests/test.sh": (
        "#!/bin/bash\napt-get update\nrm -f /tmp/report\nsleep 1\n"
        "if grep -qx built /etc/tool.conf && grep -qx '/srv/work' /var-pwd && "
        "grep -qx 'seed and more' /tmp/report\nthen echo 1; else echo 0; fi "
        "> /logs/verifier/reward.txt\n"
    ),
}
"""The shape of Terminal-Bench 2: work outside of the working folder, and a process that goes on."""
COMPOSED = {
    "task.toml": 'schema_version = "1.4"\n[verifier.env]\nMODE = "strict"\n',
    "instruction.md": "Put the answer into /data/answer.\n",
    "environment/Dockerfile": (
        "FROM ubuntu:24.04\nARG WHO\nRUN mkdir /data && echo $WHO > /data/who\nWORKDIR /data\n"
    ),
    "environment/docker-compose.yaml": (
        "services:\n  main:\n    build:\n      context: .\n      args: {WHO: ada}\n"
        "    environment:\n      - GREETING=hi\n"
        '    command: ["sh", "-c", "echo up > /data/up; sleep infinity"]\n'
    ),
    "solution/solve.sh": (
        '#!/bin/bash\necho "$GREETING $(cat /data/who) $(cat /data/up)" > /data/answer\n'
    ),
    "tests/test.sh": (
        '#!/bin/bash\ngot=$(cat /data/answer)\nif [ "$got" = "hi ada up" ] && '
        '[ "$MODE" = strict ]; then good=1; else good=0.25; fi\n'
        'echo "{\\"reward\\": $good, \\"style\\": 0.5}" > /logs/verifier/reward.json\n'
    ),
}
"""Docker compose with a single service, and several rewards."""
PREBUILT = {
    "task.toml": f'schema_version = "1.1"\n[environment]\ndocker_image = "{IMAGE}"\n'
    'workdir = "/root/work"\n[environment.env]\nNAME = "from the task"\n',
    "instruction.md": "Write the name into name.txt.\n",
    "environment/Dockerfile": f"FROM {IMAGE}\nRUN false\n",
    "solution/solve.sh": '#!/bin/bash\necho "$NAME" > name.txt\n',
    "tests/test.sh": (
        "#!/bin/bash\ngrep -qx 'from the task' /root/work/name.txt\n"
        "echo $((1 - $?)) > /logs/verifier/reward.txt\n"
    ),
}
"""An image that exists already, so that nothing is built."""
SHAPES = {"installed": INSTALLED, "composed": COMPOSED, "prebuilt": PREBUILT}


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, shape: dict[str, str], **more: str) -> Path:
        folder = tmp_path / "tasks" / name
        for path, text in {**shape, **more}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return write


@pytest.fixture(scope="session")
def engine(podman: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give podman the image that tasks name, and the word apt-get something to mean in it."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "Dockerfile").write_text(
        f"FROM {IMAGE}\nRUN printf '#!/bin/sh\\nmkdir -p /var/lib/apt\\n' > /usr/bin/apt-get "
        "&& chmod +x /usr/bin/apt-get && ln -s /bin/env /usr/bin/env && "
        "mkdir -p /root/work && echo hello > /root/.greeting\n"
    )
    words = ["podman", "build", "-q", "-t", "docker.io/library/ubuntu:24.04"]
    done = subprocess.run([*words, folder], env=os.environ | podman, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    subprocess.run(
        ["podman", "tag", "docker.io/library/ubuntu:24.04", IMAGE],
        env=os.environ | podman,
        check=True,
        capture_output=True,
    )
    return podman


@pytest.fixture
def run(assay: Callable[..., Any], engine: dict[str, str]) -> Callable[..., Any]:
    def capture(agent: Any, *words: Any, **more: Any) -> Any:
        words = ("capture", "--benchmark", "harbor:tasks", "-s", agent, *words)
        return assay(*words, "--workspace-dir", "w", **{"env": engine, **more})

    return capture


def test_tasks_as_published_give_the_reward_that_their_solution_earns(
    run: Any, task: Any, engine: dict[str, str], assay: Any, read_rows: Any, tmp_path: Path
) -> None:
    for name, shape in SHAPES.items():
        task(name, shape)
    task("graphics", PREBUILT, **{"task.toml": "[environment]\ngpus = 2\n"})
    refused = run("oracle")
    assert (refused.code, "--skip-unsupported runs the other tasks" in refused.stderr) == (1, True)
    solved = run("oracle", "--skip-unsupported", "-j", 2, "-o", "solved.jsonl")
    assert solved.code == 0, solved
    assert "Skipped 1 of 4 tasks, which cannot be run here:" in solved.stderr
    assert "1: it needs a GPU or TPU (graphics)" in solved.stderr
    rewards = {
        row["id"]: row["grades"]["harbor"]["outcome"]["rewards"]
        for row in read_rows(tmp_path / "solved.jsonl")
    }
    assert rewards == {
        "composed": {"reward": 1, "style": 0.5},
        "installed": {"reward": 1},
        "prebuilt": {"reward": 1},
    }
    assert containers(engine) == ""
    again = assay("grade", "solved.jsonl", "-g", "harbor:tasks")
    assert [row["score"]["pass"] for row in again.rows] == [True] * 3
    idle = run("nop", "--filter", "difficulty=easy", "--filter", "!composed")
    assert [(row["id"], row["score"]["score"]) for row in idle.rows] == [("installed", 0)]


def test_an_image_is_built_once_for_its_content_and_removed_by_clean(
    run: Any, task: Any, assay: Any, engine: dict[str, str]
) -> None:
    assay("clean", env=engine)  # of other tests
    folder = task("composed", COMPOSED)
    first, second = run("nop"), run("nop")
    (folder / "tests/test.sh").write_text(COMPOSED["tests/test.sh"] + "# changed\n")
    third = run("nop")
    images = [
        row["metadata"]["evidence"]["container"]
        for done in (first, second, third)
        for row in done.rows
    ]
    assert len(images) == 3
    assert len(set(images)) == 1, "tests are no part of the image"
    (folder / "environment/Dockerfile").write_text(
        COMPOSED["environment/Dockerfile"] + "RUN touch /new\n"
    )
    [changed] = run("nop").rows
    assert changed["metadata"]["evidence"]["container"] not in images
    done = assay("clean", "--dry-run", env=engine)
    assert "images of tasks: 2 (" in done.stdout, done
    assert "images of tasks: 2 (" in assay("clean", env=engine).stdout
    left = subprocess.run(
        ["podman", "images"], env=os.environ | engine, capture_output=True, text=True, check=True
    )
    assert "assay-task" not in left.stdout
    # Other tests leave workspaces meanwhile, but no images of tasks.
    assert "images of tasks" not in assay("clean", "--dry-run", env=engine).stdout


def test_an_agent_finds_no_tests_and_cannot_write_its_own_reward(
    run: Any, task: Any, shell_agent: Path
) -> None:
    cheat = (
        "ls -d /tests /solution > seen 2>&1; cat ~/.greeting >> seen; pwd >> seen; mkdir -p /tests;"
        "ln -s /etc /logs/verifier; echo 1 > /logs/verifier/reward.txt; "
        "echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; R"
    )
    task("prebuilt", PREBUILT, **{"instruction.md": cheat})
    [row] = run(shell_agent, "--keep-workspaces", "all").rows
    assert row["score"]["pass"] is False, row
    seen = Path(row["cwd"], "seen").read_text()
    assert seen.count("No such file") == 2, seen
    assert seen.endswith("hello\n/root/work\n")


def test_an_agent_that_the_image_lacks_is_shown_as_it_is_installed_here(
    run: Any, task: Any, agent: Callable[..., Any], engine: dict[str, str], tmp_path: Path
) -> None:
    place = tmp_path / "install/bin"
    place.mkdir(parents=True)
    (place / "interpreter").write_text('#!/bin/sh\nexec sh "$@"\n')
    (place / "my-agent").write_text(
        "#!/usr/bin/env interpreter\necho 'from the task' > name.txt\n"
        """echo '{"type":"result","result":"done"}'\n"""
    )
    for file in place.iterdir():
        file.chmod(0o755)
    task("prebuilt", PREBUILT)
    path = f"{place}:{os.environ['PATH']}"
    [row] = run(agent(command=["my-agent"]), env={**engine, "PATH": path}).rows
    assert row["grades"]["harbor"]["pass"] is True, row
    missing = run(agent(command=["no-such-agent"])).rows
    assert "in the image of the task" in missing[0]["failure"]["message"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"environment/Dockerfile": "FROM ubuntu:24.04\nRUN echo broken >&2; exit 4\n"}, "broken"),
        ({"environment/Dockerfile": "FROM nosuch.invalid/x:1\n"}, "cannot build the image"),
    ],
)
def test_an_image_that_cannot_be_built_measures_nothing(
    run: Any, task: Any, shape: dict[str, str], why: str
) -> None:
    task("installed", INSTALLED, **shape)
    done = run("oracle")
    assert done.rows[0]["failure"]["cause"] == "world"
    assert why in done.rows[0]["failure"]["message"]
    assert "score" not in done.rows[0]


def test_a_verifier_that_gives_no_reward_measures_nothing(run: Any, task: Any) -> None:
    task("prebuilt", PREBUILT, **{"tests/test.sh": "#!/bin/sh\necho broken >&2; exit 3\n"})
    [row] = run("nop").rows
    assert "score" not in row
    assert "no reward (exit code 3): broken" in row["graderFailures"]["harbor"]


def test_an_agent_that_runs_out_of_time_is_judged_and_ended(
    run: Any, task: Any, shell_agent: Path, engine: dict[str, str], alive: Callable[..., Any]
) -> None:
    toml = PREBUILT["task.toml"] + "[agent]\ntimeout_sec = 2.0\n"
    slow = "echo 'from the task' > name.txt; sleep 4711"
    task("prebuilt", PREBUILT, **{"task.toml": toml, "instruction.md": slow})
    [row] = run(shell_agent).rows
    assert (row["failure"]["cause"], row["score"]["pass"]) == ("agent_timeout", True)
    assert containers(engine) == ""


def test_nothing_is_left_when_assay_is_killed(
    start: Callable[..., Any],
    task: Any,
    shell_agent: Path,
    engine: dict[str, str],
    eventually: Callable[..., bool],
) -> None:
    task("prebuilt", PREBUILT, **{"instruction.md": "touch name.txt; sleep 4712"})
    words = ("capture", "--benchmark", "harbor:tasks", "-s", shell_agent, "--workspace-dir", "w")
    process = start(*words, env=engine)
    assert eventually(lambda: [*Path.cwd().glob("nothing")] or containers(engine) != "", 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert eventually(lambda: containers(engine) == "", 30)


def test_a_task_without_network_has_none(run: Any, task: Any, shell_agent: Path) -> None:
    toml = PREBUILT["task.toml"].replace("[environment]", "[environment]\nallow_internet = false")
    look = "cat /proc/net/route > name.txt; R"
    task("prebuilt", PREBUILT, **{"task.toml": toml, "instruction.md": look})
    [row] = run(shell_agent, "--keep-workspaces", "all").rows
    lines = Path(row["cwd"], "name.txt").read_text().splitlines()
    assert len(lines) == 1, lines  # only the heading


SERVICES = {
    "two": ("services:\n  main: {build: .}\n  db: {image: x}\n", "several containers"),
    "volume": ("services:\n  main: {build: ., volumes: ['/etc:/x']}\n", "has volumes"),
    "rights": ("services:\n  main: {build: ., privileged: true}\n", "has privileged"),
    "outside": ("services:\n  main: {build: ../..}\n", "builds in ../.."),
    "broken": ("services: [\n", "cannot be read"),
    "networks": ("services:\n  main: {build: .}\nnetworks: {a: {}}\n", "has networks"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_compose_file_needs_besides_one_container_is_named(
    assay: Any, task: Any, name: str, engine: dict[str, str]
) -> None:
    text, why = SERVICES[name]
    task("composed", COMPOSED, **{"environment/docker-compose.yaml": text})
    words = ("capture", "--benchmark", "harbor:tasks", "-s", "nop", "--container", "task")
    done = assay(*words, env=engine)
    assert done.code == 1
    assert why in done.stderr


def test_the_image_of_tasks_is_for_benchmarks(assay: Any, prompts: Any) -> None:
    done = assay("capture", prompts("x"), "-s", "demo", "--container", "task")
    assert done.code == 2
    assert "--container task is for benchmarks" in done.stderr


HARBOR_RUN = ("harbor==0.24.0", "podman-compose==1.6.0")


@pytest.fixture(scope="session")
def harbor_program() -> Path:
    """The folder with the programs of Harbor and of podman-compose, which it runs."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    folder = root / "harbor-run-0.24.0"
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [folder / "bin/python", "-m", "pip", "install", "-q", *HARBOR_RUN]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                unavailable(f"NOTHING IS COMPARED WITH HARBOR'S RUNNER: {done.stderr[-1500:]}")
            (folder / "complete").touch()
    return folder / "bin"


def test_rewards_are_those_of_harbors_own_runner(
    run: Any, task: Any, engine: dict[str, str], harbor_program: Path, tmp_path: Path
) -> None:
    for name, shape in SHAPES.items():
        task(name, shape)
    env = {**os.environ, **engine, "PATH": f"{harbor_program}:{os.environ['PATH']}"}
    words = ["harbor", "run", "-p", "tasks", "-a", "oracle", "-e", "podman", "-o", "jobs", "-y"]
    done = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    theirs = {
        result["task_name"].rpartition("/")[2]: (result["verifier_result"] or {}).get("rewards")
        for path in tmp_path.glob("jobs/*/*/result.json")
        for result in [json.loads(path.read_text())]
    }
    assert len(theirs) == 3, done.stdout[-3000:]
    ours = {row["id"]: row["grades"]["harbor"]["outcome"]["rewards"] for row in run("oracle").rows}
    assert ours == theirs
