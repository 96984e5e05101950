"""--benchmark harbor:PATH: task folders in Harbor's format, on the host under --sandbox."""

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.benchmarks.harbor_task import Task

DOCKERFILE = "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data.txt ./\nENV GREETING=hello\n"
TEST = """#!/bin/bash
if [ "$(cat /app/hello.txt)" = "$GREETING" ]; then echo 1; else echo 0; fi \
> /logs/verifier/reward.txt
"""
SOLUTION = '#!/bin/bash\ntest -s data.txt && echo "$GREETING" > /app/hello.txt\n'


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., Path]:
    """Write a task folder below tasks/; solved by writing hello to /app/hello.txt."""

    def write(
        name: str = "hello",
        *,
        toml: str = "",
        instruction: str = "Write hello into /app/hello.txt",
        dockerfile: str | None = DOCKERFILE,
        test: str | None = TEST,
        version: str = "1.4",
        **files: str,
    ) -> Path:
        folder = tmp_path / "tasks" / name
        texts: dict[str, str | None] = {
            "task.toml": f'schema_version = "{version}"\n{toml}',
            "instruction.md": instruction,
            "environment/Dockerfile": dockerfile,
            "environment/data.txt": "some data\n",
            "tests/test.sh": test,
            "solution/solve.sh": SOLUTION,
            **{path.replace("__", "/"): text for path, text in files.items()},
        }
        for path, text in texts.items():
            if text is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        return folder

    return write


@pytest.fixture
def run(assay: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run the tasks with an agent in a sandbox; the rows are in done.rows."""

    def capture(agent: Any, *words: Any, sandbox: str = "--sandbox", **more: Any) -> Any:
        words = ("capture", "--benchmark", "harbor:tasks", "-s", agent, *words)
        return assay(*words, "--workspace-dir", "w", *filter(None, [sandbox]), **more)

    return capture


def only(done: Any) -> dict[str, Any]:
    assert len(done.rows) == 1, done
    row: dict[str, Any] = done.rows[0]
    return row


def test_the_solution_passes_and_an_agent_that_does_nothing_fails(run: Any, task: Any) -> None:
    task("hello", toml='[metadata]\ndifficulty = "easy"\n')
    task("other", toml='[solution.env]\nGREETING = "hello"\n')
    solved, idle = run("oracle"), run("nop", "--filter", "hello")
    assert [row["score"]["pass"] for row in solved.rows] == [True, True], solved
    assert [row["grades"]["harbor"]["score"] for row in solved.rows] == [1, 1]
    row = only(idle)
    assert (row["score"]["pass"], row["score"]["score"]) == (False, 0)
    assert row["metadata"]["difficulty"] == "easy"
    assert (solved.code, idle.code) == (0, 0)


def test_an_agent_sees_its_files_and_not_the_tests_nor_the_solution(
    run: Any, task: Any, shell_agent: Path
) -> None:
    folder = task(instruction="")
    look = f"ls /app; cat data.txt; ls -d /tests /solution {folder}; cat {folder}/tests/test.sh"
    cheat = "echo 1 > /logs/verifier/reward.txt; ls /logs"
    (folder / "instruction.md").write_text(f"({look}; {cheat}) > /app/seen 2>&1; R")
    row = only(run(shell_agent))
    seen = Path(row["cwd"], "seen").read_text()
    assert "data.txt\n" in seen
    assert "some data\n" in seen
    assert seen.count("No such file") == 4, seen
    assert seen.endswith("agent\nartifacts\nverifier\n")
    assert row["score"]["pass"] is False  # what it wrote as its reward is not read


def test_no_task_is_seen_where_the_sandbox_shows_the_folders_around_it(
    assay: Callable[..., Any], task: Any, shell_agent: Path
) -> None:
    task(instruction="ls -a /opt/assay-test-tasks > seen 2>&1; R")
    folder = task("other").parent
    place = Path("/opt/assay-test-tasks")
    try:
        shutil.copytree(folder, place)
    except OSError:
        pytest.skip("no right to write to a folder of the system")
    try:
        words = ("capture", "--benchmark", f"harbor:{place}", "--filter", "hello", "--sandbox")
        row = only(assay(*words, "-s", shell_agent, "--workspace-dir", "w"))
    finally:
        shutil.rmtree(place)
    assert Path(row["cwd"], "seen").read_text().split() == [".", ".."]


def test_results_can_be_graded_again(run: Any, task: Any, assay: Callable[..., Any]) -> None:
    task()
    run("oracle", "-o", "out.jsonl")
    [row] = assay("grade", "out.jsonl", "-g", "harbor:tasks").rows
    assert row["grades"]["harbor"]["pass"] is True
    Path(row["cwd"], "hello.txt").unlink()
    [row] = assay("grade", "out.jsonl", "-g", "harbor:tasks").rows
    assert row["grades"]["harbor"]["pass"] is False


def test_work_is_judged_in_the_place_of_the_workspace(
    run: Any, task: Any, shell_agent: Path
) -> None:
    task(instruction="echo hello > /app/hello.txt; pwd > where; R")
    row = only(run(shell_agent))
    assert row["score"]["pass"] is True, row
    assert Path(row["cwd"], "hello.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("script", "passed", "score", "rewards"),
    [
        ("echo 0.4 > /logs/verifier/reward.txt", False, 0.4, {"reward": 0.4}),
        ("echo 3 > /logs/verifier/reward.txt; exit 1", True, 1, {"reward": 3}),
        ("echo -1 > /logs/verifier/reward.txt", False, 0, {"reward": -1}),
        ("echo 1e0 > /logs/verifier/reward.txt", True, 1, {"reward": 1}),
        (
            'echo \'{"reward": 1, "speed": 0.2}\' > /logs/verifier/reward.json; '
            "echo 0 > /logs/verifier/reward.txt",
            True,
            1,
            {"reward": 1, "speed": 0.2},
        ),
        (
            'echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json',
            False,
            0.75,
            {"a": 1, "b": 0.5},
        ),
    ],
)
def test_rewards_are_read_as_harbor_reads_them(
    run: Any, task: Any, script: str, passed: bool, score: float, rewards: dict[str, float]
) -> None:
    task(test=f"#!/bin/sh\n{script}\n")
    grade = only(run("nop"))["score"]
    assert (grade["pass"], grade["score"]) == (passed, score)
    assert grade["outcome"]["rewards"] == rewards
    assert grade["outcome"]["measures"] == rewards


@pytest.mark.parametrize(
    ("script", "toml", "why"),
    [
        ("echo broken >&2; exit 3", "", "no reward (exit code 3): broken"),
        (": > /logs/verifier/reward.txt", "", "no finite number"),
        ("echo nan > /logs/verifier/reward.txt", "", "no finite number"),
        ("echo '{}' > /logs/verifier/reward.json", "", "no finite number"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", "", "cannot be read"),
        ("mkfifo /logs/verifier/reward.txt", "", "cannot be read"),
        (
            "echo 1 > /logs/verifier/reward.txt; sleep 60",
            "[verifier]\ntimeout_sec = 0.5\n",
            "did not end in 0.5 s",
        ),
    ],
)
def test_a_verifier_that_breaks_measures_nothing(
    run: Any, task: Any, script: str, toml: str, why: str
) -> None:
    task(toml=toml, test=f"#!/bin/sh\n{script}\n")
    done = run("nop")
    row = only(done)
    assert "score" not in row, row
    assert why in row["graderFailures"]["harbor"], row["graderFailures"]
    assert done.code == 1


def test_an_agent_that_runs_out_of_time_is_judged_by_what_it_did(
    run: Any, task: Any, shell_agent: Path
) -> None:
    toml = "[agent]\ntimeout_sec = 1.0\n"
    task(toml=toml, instruction="echo hello > hello.txt; sleep 60")
    row = only(run(shell_agent))
    assert row["failure"]["cause"] == "agent_timeout"
    assert row["score"]["pass"] is True


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "run": ({"dockerfile": f"{DOCKERFILE}RUN make\n"}, "needs an image: the Dockerfile has"),
    "base": ({"dockerfile": "FROM node:22\nWORKDIR /app\n"}, "its base image is node:22"),
    "other's base": ({"dockerfile": "FROM me/ubuntu\nWORKDIR /app\n"}, "base image is me/ubuntu"),
    "workdir": ({"dockerfile": "FROM ubuntu\n"}, "working folder is not named"),
    "system": ({"dockerfile": "FROM ubuntu\nWORKDIR /usr/src/app\n"}, "folder is /usr/src/app"),
    "outside": (
        {"dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY data.txt /srv/\n"},
        "copies to /srv/data.txt",
    ),
    "missing": ({"dockerfile": "FROM ubuntu\nWORKDIR /app\nCOPY no .\n"}, "copies no, which"),
    "image": (
        {"dockerfile": None, "toml": '[environment]\ndocker_image = "x:1"\n'},
        "only the image x:1",
    ),
    "compose": ({"environment__docker-compose.yaml": "services: {}"}, "several containers"),
    "gpu": ({"toml": "[environment]\ngpus = 1\n"}, "GPU"),
    "windows": ({"toml": '[environment]\nos = "windows"\n'}, "system windows"),
    "steps": ({"toml": '[[steps]]\nname = "one"\n'}, "several steps"),
    "hosts": ({"toml": '[environment]\nnetwork_mode = "allowlist"\n'}, "some hosts only"),
    "offline": ({"toml": '[agent]\nnetwork_mode = "no-network"\n'}, "--sandbox=no-network"),
    "offline, old": ({"toml": "[environment]\nallow_internet = false\n"}, "no network"),
    "user": ({"toml": '[agent]\nuser = "bob"\n'}, "another user (bob)"),
    "separate": ({"toml": '[verifier]\nenvironment_mode = "separate"\n'}, "environment of its own"),
    "server": (
        {"toml": '[[environment.mcp_servers]]\nname = "a"\nurl = "http://a"\n'},
        "MCP server",
    ),
    "variable": ({"toml": '[verifier.env]\nKEY = "${NO_SUCH_VARIABLE}"\n'}, "NO_SUCH_VARIABLE"),
    "installs": ({"test": "#!/bin/sh\nset -e\napt-get update\n"}, "tests/test.sh installs"),
    "lacks": ({"test": "#!/bin/sh\nuvx -p 3.13 pytest\n"}, "runs uvx, which is not installed"),
    "version": ({"version": "2.0"}, "its schema_version is 2.0"),
    "no Dockerfile": ({"dockerfile": None}, "it has no environment/Dockerfile"),
    "no test": ({"test": None}, "no tests/test.sh"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_task_that_cannot_be_run_is_refused_before_anything_starts(
    run: Any, task: Any, tmp_path: Path, shell_agent: Path, case: str
) -> None:
    about, why = REFUSED[case]
    task("good", instruction=f"touch {tmp_path}/started; R")
    task("bad", **about)
    done = run(shell_agent, "-o", "out.jsonl", env={"PATH": "/usr/bin:/bin"})
    assert done.code == 1
    assert "1 of 2 tasks cannot be run here. bad: " in done.stderr
    assert why in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "w").exists()
    chosen = run(shell_agent, "--filter", "good")
    assert only(chosen)["id"] == "good"


def test_without_a_sandbox_and_an_engine_for_images_no_task_is_run(
    run: Any, task: Any, tmp_path: Path
) -> None:
    task()
    done = run("nop", sandbox="", env={"PATH": str(tmp_path)})
    assert done.code == 1
    assert "needs docker or podman, and neither answers" in done.stderr


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("[agent]\ntimeout_sec = 'x'\n", "$.agent.timeout_sec"),
        ("[agent]\ntimeout_sec = 0\n", "$.agent.timeout_sec"),
        ("[agent]\ntimeout_sec = nan\n", "$.agent.timeout_sec"),
        ("[verifier]\ntimeout_sec = -1\n", "$.verifier.timeout_sec"),
        ("[verifier]\ntimeout_sec = inf\n", "$.verifier.timeout_sec"),
        ("[environment]\ncpus = -1\n", "$.environment.cpus"),
        ("[environment]\nmemory_mb = 0\n", "$.environment.memory_mb"),
        ("[environment]\nmemory = '2X'\n", "$.environment.memory"),
        ("[environment.env]\n'A=B' = 'x'\n", "$.environment.env"),
        ("[agent\n", "task.toml"),
    ],
)
def test_a_task_file_that_cannot_be_read_is_named(run: Any, task: Any, toml: str, why: str) -> None:
    task(toml=toml)
    done = run("nop")
    assert done.code == 1
    assert "tasks/hello/task.toml" in done.stderr
    assert why in done.stderr


def test_an_empty_instruction_is_named(run: Any, task: Any) -> None:
    task(instruction=" \n")
    done = run("nop")
    assert done.code == 1
    assert "tasks/hello/instruction.md: it is empty" in done.stderr


def test_a_solution_that_lacks_a_variable_or_is_missing_is_refused(run: Any, task: Any) -> None:
    folder = task(toml='[solution.env]\nKEY = "${NO_SUCH_VARIABLE}"\n')
    assert only(run("nop"))["score"]["pass"] is False
    done = run("oracle")
    assert done.code == 1
    assert "the environment variable NO_SUCH_VARIABLE is not set" in done.stderr
    (folder / "solution/solve.sh").unlink()
    assert "it has no solution/solve.sh" in run("oracle").stderr


def test_a_folder_without_tasks_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    done = run("nop")
    assert done.code == 1
    assert "has no task in it" in done.stderr


def test_limits_of_the_task_hold_unless_the_operator_gives_others(
    run: Any, task: Any, shell_agent: Path
) -> None:
    task(toml="[environment]\nmemory_mb = 300\n", instruction="R")
    limits = only(run(shell_agent))["metadata"]["limits"]
    assert limits["memoryBytes"] == 300 * 1024 * 1024
    limits = only(run(shell_agent, "--memory", "200M"))["metadata"]["limits"]
    assert limits["memoryBytes"] == 200 * 1024 * 1024


def test_variables_of_the_operator_reach_only_whom_the_task_names(
    run: Any, task: Any, shell_agent: Path
) -> None:
    toml = '[environment.env]\nSHOWN = "${OUR_SHOWN}"\nPLAIN = "${NOT_THERE:-x}"\n'
    toml += '[verifier.env]\nJUDGE = "${OUR_JUDGE}"\n'
    check = '#!/bin/sh\ntest "$JUDGE$PLAIN" = judge1x; echo $((1 - $?)) > /logs/verifier/reward.txt'
    task(toml=toml, test=check, instruction='say "$SHOWN-$PLAIN-$JUDGE-$OUR_JUDGE"')
    row = only(run(shell_agent, env={"OUR_SHOWN": "seen1", "OUR_JUDGE": "judge1"}))
    assert row["output"] == "seen1-x--"
    assert row["score"]["pass"] is True, row


def test_a_changed_task_is_not_taken_for_the_one_that_was_run(
    run: Any, task: Any, tmp_path: Path
) -> None:
    folder = task()
    run("oracle", "-o", "out.jsonl")
    (folder / "tests/test.sh").write_text("#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n")
    done = run("oracle", "-o", "out.jsonl", "--resume")
    assert done.code == 1
    assert "hello" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["score"]["pass"] for row in rows] == [True]


def test_tests_and_solution_are_read_before_the_first_agent_starts(
    run: Any, task: Any, shell_agent: Path, tmp_path: Path
) -> None:
    later = task("b-later", instruction="echo hello > hello.txt; R")
    task("a-first", instruction="echo hello > hello.txt; sleep 1.5; R")

    def edit() -> None:
        until = time.monotonic() + 20
        while not (tmp_path / "w/prompt-a-first").exists() and time.monotonic() < until:
            time.sleep(0.02)
        (later / "tests/test.sh").write_text("#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n")

    editor = threading.Thread(target=edit)
    editor.start()
    done = run(shell_agent)
    editor.join()
    assert {row["id"]: row["score"]["pass"] for row in done.rows} == {
        "a-first": True,
        "b-later": True,
    }


def test_the_verifier_has_no_network_where_the_task_says_so(run: Any, task: Any) -> None:
    check = "#!/bin/sh\nwc -l < /proc/net/dev > /logs/verifier/reward.txt\n"
    task(toml='[verifier]\nnetwork_mode = "no-network"\n', test=check)
    lines = only(run("nop"))["score"]["outcome"]["rewards"]["reward"]
    assert lines == 3  # two of headings and the loopback


def test_a_task_costs_less_than_50_ms_of_cpu_time(run: Any, task: Any) -> None:
    for number in range(22):
        task(f"t{number:02}")

    def used_s(n: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(run("nop", "--limit", n).rows) == n
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    used_s(2)  # loads what later runs find in memory
    each_ms = (used_s(22) - used_s(2)) / 20 * 1000
    assert each_ms < 50, f"{each_ms:.0f} ms"


HARBOR = "harbor==0.25.0"
READ_TRAJECTORIES = """
import json, sys
from harbor.models.trajectories import Trajectory
from harbor.models.verifier.result import VerifierResult
for line in open(sys.argv[1]):
    read = Trajectory.model_validate_json(line)
    result = VerifierResult.model_validate({"rewards": read.extra["rewards"]})
    calls = [call.function_name for step in read.steps for call in step.tool_calls or ()]
    print(json.dumps([read.extra["task"], read.agent.name, len(read.steps), result.rewards, calls]))
"""
READ_TASK = """
import json, sys
from harbor.models.task.config import TaskConfig
read = TaskConfig.model_validate_toml(open(sys.argv[1]).read())
print(json.dumps([read.agent.timeout_sec, read.verifier.timeout_sec, read.environment.memory_mb,
    read.environment.cpus, read.environment.network_mode.value == "no-network", read.metadata]))
"""


@pytest.fixture(scope="session")
def harbor() -> Callable[..., list[Any]]:
    """Run a program with Harbor's own models; give the JSON of each line that it prints."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    folder = root / HARBOR.replace("==", "-")
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # Its models need pydantic, which is here, and toml; the rest of it needs much more.
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
            done = subprocess.run([*pip, HARBOR, "toml"], capture_output=True, text=True)
            if done.returncode:
                unavailable(f"NOTHING IS CHECKED WITH HARBOR'S MODELS: {done.stderr[-1500:]}")
            (folder / "complete").touch()

    def read(program: str, path: Path) -> list[Any]:
        env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
        words = [sys.executable, "-c", program, str(path)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return read


def unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def test_harbors_models_read_the_export_of_a_run(
    run: Any, task: Any, assay: Callable[..., Any], tmp_path: Path, harbor: Any
) -> None:
    task("one")
    task("two", test='#!/bin/sh\necho \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json\n')
    run("oracle", "-o", "out.jsonl")
    run("demo", "-o", "demo.jsonl")
    run("nop", "-o", "nop.jsonl")
    results = ("out.jsonl", "demo.jsonl", "nop.jsonl")
    done = assay("export", "atif", *results, "-o", "atif.jsonl")
    assert done.code == 0, done.stderr
    read = harbor(READ_TRAJECTORIES, tmp_path / "atif.jsonl")
    assert [each[:2] for each in read[:2]] == [["one", "oracle"], ["two", "oracle"]]
    assert [each[3] for each in read] == [
        {"reward": 1},
        {"a": 1, "b": 0.5},
        {"reward": 1},
        {"a": 1, "b": 0.5},
        {"reward": 0},
        {"a": 1, "b": 0.5},
    ]
    assert [each[4] for each in read[2:4]] == [["Write"], ["Write"]]


@pytest.mark.parametrize(
    "toml",
    [
        "",
        "[agent]\ntimeout_sec = 12.5\n[verifier]\ntimeout_sec = 7\n",
        '[environment]\nmemory = "2G"\ncpus = 1.5\nallow_internet = false\n',
        '[environment]\nmemory_mb = 300\nnetwork_mode = "no-network"\nunknown = 1\n',
        '[metadata]\ndifficulty = "hard"\ntags = ["a"]\n',
    ],
)
def test_a_task_file_means_what_harbors_models_say(task: Any, harbor: Any, toml: str) -> None:
    folder = task(toml=toml)
    [told] = harbor(READ_TASK, folder / "task.toml")
    read = Task(folder)
    memory = read.memory_bytes // 1024**2 if read.memory_bytes else None
    config = read.config
    assert told == [
        config.agent.timeout_sec,
        config.verifier.timeout_sec,
        memory,
        config.environment.cpus,
        read.needs_no_network,
        config.metadata,
    ]
