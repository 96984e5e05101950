"""Trials on a real Ray cluster of two nodes: the same rows, nothing lost, nothing left running."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from assay.errors import AssayError
from assay.executors import ray as executor
from assay.executors.ray import RayExecutor
from assay.records.raw_streams import kept_streams

pytestmark = pytest.mark.filterwarnings("ignore")
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
LIMIT_S = 300
START_S = 240
"""A worker of Ray that starts beside 20 other busy processes may take a minute or two."""


@pytest.fixture
def capture(assay: Callable[..., Any], shell_agent: Path, ray_cluster: Any) -> Callable[..., Any]:
    def run(prompts: Path, *words: Any, **more: Any) -> Any:
        return assay(
            *("capture", prompts, "-s", shell_agent, "-q", "-o", "out.jsonl", *words),
            *("--executor", "ray", "--address", ray_cluster.address),
            timeout=LIMIT_S,
            **more,
        )

    return run


def kill_node(ray_cluster: Any) -> None:
    """Kill the second node's raylet and its workers, as a machine that loses power would."""
    raylet = psutil.Process(ray_cluster.second.all_processes["raylet"][0].process.pid)
    for process in (raylet, *raylet.children()):
        process.kill()
    ray_cluster.remove_node(ray_cluster.second, allow_graceful=False)


def streams(place: Path) -> dict[str, bytes]:
    return {stream.name: stream.read() for stream in kept_streams(place)}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times, sizes that depend on them, and places."""
    row = json.loads(json.dumps(row).replace(str(row.get("cwd")), "WORKSPACE"))
    for name in ("timing", "raw"):
        row.pop(name)
    for step in row["trajectory"]:
        step.pop("timestamp")
    return row


def differing(one: Any, other: Any, where: str = "") -> list[str]:
    """Name each field that differs, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        found = [differing(one.get(name), other.get(name), f"{where}.{name}") for name in names]
        return [text for texts in found for text in texts]
    return [] if one == other else [f"{where}: {one!r} != {other!r}"]


def test_rows_are_those_of_a_local_run(
    capture: Any, assay: Any, shell_agent: Path, prompts: Any, read_rows: Any, tmp_path: Path
) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template/t.txt").write_text("template")
    (tmp_path / "template/run.sh").write_text("echo")
    (tmp_path / "template/run.sh").chmod(0o755)
    (tmp_path / "g.py").write_text(
        "from pathlib import Path\n"
        "def grade(output, cwd):\n"
        "    found = Path(cwd, 'made').exists() and Path(cwd, 'link').is_symlink()\n"
        "    return {'pass': found, 'score': 1.0 if found else 0.0}\n"
    )
    texts = [
        "cat t.txt; echo; printf x > made; ln -s /etc/hosts link; R",
        "exit 3",
        "say later >&2; R",
    ]
    file = prompts(*texts)
    given = ("--workspace-template", "template", "-g", "g.py", "-j", 4, "--keep-workspaces", "all")
    there = capture(file, *given)
    assert there.code == 0, there.stderr
    here = assay("capture", file, "-s", shell_agent, "-q", "-o", "here.jsonl", *given)
    assert here.code == 0, here.stderr
    remote = sorted(read_rows(tmp_path / "out.jsonl"), key=lambda row: row["id"])
    local = sorted(read_rows(tmp_path / "here.jsonl"), key=lambda row: row["id"])
    for ours, theirs in zip(remote, local, strict=True):
        assert differing(shown(ours), shown(theirs)) == []
    assert remote[0]["score"]["pass"] is True
    assert Path(remote[0]["cwd"], "run.sh").stat().st_mode & 0o111
    for ours, theirs in zip(remote, local, strict=True):
        assert streams(tmp_path / ours["raw"]) == streams(tmp_path / theirs["raw"])


def test_a_raylet_dies_the_driver_dies_and_one_row_per_trial_is_left(
    ray_cluster: Any,
    start: Any,
    assay: Any,
    capture: Any,
    shell_agent: Path,
    prompts: Any,
    read_rows: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
    tmp_path: Path,
) -> None:
    n = 200
    # Each agent leaves a process behind that has left its session.
    file = prompts(*["setsid sleep 600 & sleep 0.1; R"] * n)
    words = ("capture", file, "-s", shell_agent, "-q", "-o", "out.jsonl", "--isolate", "-j", 8)
    words += ("--retries", 2, "--executor", "ray", "--address", ray_cluster.address)
    output = tmp_path / "out.jsonl"

    def n_rows() -> int:
        return output.read_bytes().count(b"\n") if output.exists() else 0

    driver = start(*words)
    assert eventually(lambda: n_rows() >= 20, START_S), (
        driver.stderr.read() if driver.poll() else ""
    )
    before = n_rows()
    ray_cluster.remove_node(ray_cluster.second, allow_graceful=False)
    assert eventually(lambda: n_rows() >= before + 20, START_S)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert eventually(lambda: not alive(), 60), "agents outlived their driver"
    again = capture(file, "--isolate", "-j", 8, "--retries", 2, "--resume")
    assert again.code == 0, again.stderr
    rows = read_rows(output)
    assert sorted(row["id"] for row in rows) == sorted(f"p{i}" for i in range(n))
    assert all(row["output"] == "ok" and "failure" not in row for row in rows)
    # What killed trials left in their workspaces on the nodes is gone.
    assert {Path(row["cwd"]).name for row in rows} == {f"prompt-p{i}" for i in range(n)}
    assert eventually(lambda: not alive(), 30)


def there(ray_cluster: Any) -> tuple[Any, ...]:
    return ("-j", 4, "--executor", "ray", "--address", ray_cluster.address)


def wait_in(folder: Path) -> str:
    """A shell command that says that it has started, and waits to be let go."""
    return f"touch {folder}/started/$$; until test -e {folder}/go; do sleep 0.1; done"


def test_trials_of_a_dead_node_are_run_again_when_asked(
    ray_cluster: Any,
    start: Any,
    assay: Any,
    shell_agent: Path,
    prompts: Any,
    read_rows: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "started").mkdir()
    file = prompts(*[f"{wait_in(tmp_path)}; R"] * 4)
    words = ("capture", file, "-s", shell_agent, "-q", "--isolate", *there(ray_cluster))
    never = start(*words, "-o", "never.jsonl")
    once = start(*words, "-o", "once.jsonl", "--retries", 1)
    assert eventually(lambda: len(list((tmp_path / "started").iterdir())) == 8, START_S)
    kill_node(ray_cluster)
    (tmp_path / "go").touch()
    assert once.wait(START_S) == 0
    rows = read_rows(tmp_path / "once.jsonl")
    assert [row["output"] for row in rows] == ["ok"] * 4
    retried = [row["retried"] for row in rows if "retried" in row]
    assert never.wait(START_S) == 0
    rows = read_rows(tmp_path / "never.jsonl")
    lost = [row["failure"] for row in rows if "failure" in row]
    assert 0 < len(lost) < 4
    assert len(retried) == 4 - len(lost)
    earlier = [failure for failures in retried for failure in failures]
    assert {failure["cause"] for failure in (*lost, *earlier)} == {"worker_lost"}
    again = assay(*words, "-o", "never.jsonl", "--resume", timeout=LIMIT_S)
    assert again.code == 0, again.stderr
    rows = read_rows(tmp_path / "never.jsonl")
    assert sorted(row["id"] for row in rows) == [f"p{n}" for n in range(4)]
    assert all(row["output"] == "ok" and "failure" not in row for row in rows)
    ran = len(list((tmp_path / "started").iterdir()))
    assert ran == 8 + len(retried) + len(lost)
    assert eventually(lambda: not alive(), 30)


def test_trials_and_graders_of_a_dead_node_are_lost(
    ray_cluster: Any,
    start: Any,
    shell_agent: Path,
    prompts: Any,
    rows_to_grade: Path,
    read_rows: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "started").mkdir()
    wait, where = wait_in(tmp_path), there(ray_cluster)
    (tmp_path / "slow.sh").write_text(f"#!/bin/bash\n{wait}\n{GRADE}")
    (tmp_path / "slow.sh").chmod(0o755)
    file = prompts(*[f"{wait}; R"] * 4)
    captures = start(
        "capture", file, "-s", shell_agent, "-q", "-o", "out.jsonl", "--isolate", *where
    )
    words = ("grade", rows_to_grade, "-g", "slow.sh", "--grader-timeout", 200)
    grades = start(*words, "-o", "graded.jsonl", *where)
    assert eventually(lambda: len(list((tmp_path / "started").iterdir())) == 8, START_S)
    kill_node(ray_cluster)
    (tmp_path / "go").touch()
    assert captures.wait(START_S) in (0, 1)
    rows = read_rows(tmp_path / "out.jsonl")
    causes = [row.get("failure", {}).get("cause") for row in rows]
    assert len(rows) == 4
    assert 0 < causes.count("worker_lost") < 4
    assert causes.count(None) + causes.count("worker_lost") == 4
    # Of the rows whose graders died it is said, and they are not rerun: judges cost money.
    said = grades.communicate(timeout=START_S)[1]
    graded = read_rows(tmp_path / "graded.jsonl")
    assert [row["id"] for row in graded] == [f"r{n}" for n in range(4)]
    lost = [row for row in graded if "score" not in row]
    assert 0 < len(lost) < 4
    assert all(row["graderFailures"]["slow"].startswith("worker_lost: ") for row in lost)
    assert grades.returncode == 1
    assert f"{len(lost)} grader failure" in said
    assert eventually(lambda: not alive(), 30)


GRADE = """echo '{"pass": true, "score": 1}'\n"""


@pytest.fixture
def rows_to_grade(tmp_path: Path) -> Path:
    rows = [
        {"id": f"r{n}", "input": "q", "output": f"Paris {n}", "hint": "Paris", "trajectory": []}
        for n in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_grades_are_those_of_a_local_run_and_the_rest_is_graded_later(
    ray_cluster: Any,
    assay: Any,
    start: Any,
    rows_to_grade: Path,
    alive: Callable[[], list[int]],
    eventually: Any,
    tag: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "helper.py").write_text("WORD = 'helped'\n")
    (tmp_path / "g.py").write_text(
        "import helper, pathlib, subprocess\n"
        "def grade(output):\n"
        f"    if output == 'Paris 2' and not pathlib.Path('{tmp_path}/go').exists():\n"
        f"        subprocess.run(['bash', '-c', 'sleep 600; true {tag}'])\n"
        "    said = f'{helper.WORD} {__file__}'\n"
        "    return {'pass': output != 'Paris 1', 'score': 0.5, 'reasoning': said}\n"
    )
    words = ("grade", rows_to_grade, "-g", "g.py", "-g", "contains")
    where = ("-j", 2, "--executor", "ray", "--address", ray_cluster.address)
    output = tmp_path / "there.jsonl"
    driver = start(*words, "-o", output, *where)
    assert eventually(lambda: alive() and output.read_bytes().count(b"\n") == 2, START_S)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    assert eventually(lambda: not alive(), 30)
    (tmp_path / "go").touch()
    rest = assay(*words, "-o", output, *where, "--resume", timeout=LIMIT_S)
    assert rest.code == 0, rest.stderr
    here = assay(*words, "-o", "here.jsonl", timeout=LIMIT_S)
    assert here.code == 0, here.stderr
    assert output.read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def test_ctrl_c_and_sigterm_end_the_agents_on_all_nodes(
    ray_cluster: Any,
    start: Any,
    shell_agent: Path,
    prompts: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
) -> None:
    file = prompts(*["setsid sleep 600 & sleep 600"] * 2)
    words = ("capture", file, "-s", shell_agent, "--isolate", "-j", 2)
    words += ("--executor", "ray", "--address", ray_cluster.address)
    first, second = (start(*words, "-o", name) for name in ("one.jsonl", "two.jsonl"))
    assert eventually(lambda: len(alive()) >= 4, START_S)
    first.send_signal(signal.SIGINT)
    second.terminate()
    assert (first.wait(60), second.wait(60)) == (130, 130)
    assert eventually(lambda: not alive(), 60)


def test_only_named_variables_travel(
    capture: Any, prompts: Any, read_rows: Any, tmp_path: Path
) -> None:
    file = prompts('say "${ONE:-none} ${TWO:-none}"')
    done = capture(file, "--isolate", "--env", "ONE", env={"ONE": "first", "TWO": "second"})
    assert done.code == 0, done.stderr
    assert read_rows(tmp_path / "out.jsonl")[0]["output"] == "first none"


@pytest.fixture
def poor_nodes(ray_cluster: Any) -> Iterator[Callable[..., None]]:
    """Add nodes that have these variables."""
    added: list[Any] = []

    def add(*variables: dict[str, str]) -> None:
        added.extend(ray_cluster.add_node(**NODE, env_vars=each) for each in variables)
        ray_cluster.wait_for_nodes()

    yield add
    for node in added:
        ray_cluster.remove_node(node, allow_graceful=False)


def test_what_nodes_lack_is_said_before_anything_runs(
    capture: Any,
    assay: Any,
    poor_nodes: Any,
    prompts: Any,
    rows_to_grade: Path,
    ray_cluster: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "other/assay").mkdir(parents=True)
    (tmp_path / "other/assay/__init__.py").write_text("__version__ = '0.0.1'\n")
    poor_nodes({"PATH": "/nowhere"}, {"PYTHONPATH": str(tmp_path / "other")})
    done = capture(prompts("R"), "--isolate")
    assert done.code == 1
    assert "not every node can run the trials" in done.stderr
    assert 'Executable not found in $PATH: "bash"' in done.stderr
    other = "Assay cannot run there: ModuleNotFoundError: No module named 'assay."
    assert other in done.stderr
    words = ("grade", rows_to_grade, "-g", "git", "-o", "graded.jsonl")
    graded = assay(*words, "--executor", "ray", "--address", ray_cluster.address, timeout=LIMIT_S)
    assert graded.code == 1
    assert "not every node can grade" in graded.stderr
    assert "the grader git needs git, which is not installed" in graded.stderr
    assert other in graded.stderr
    for name, found in (("out", done), ("graded", graded)):
        file = tmp_path / f"{name}.jsonl"
        assert not file.exists() or not file.read_bytes()
        assert "Traceback" not in found.stderr


def test_your_own_folder_is_on_no_other_machine(capture: Any, prompts: Any) -> None:
    in_place = capture(prompts("R"))
    assert in_place.code == 1
    assert "cannot work in your folder" in in_place.stderr


def test_a_trial_that_fits_on_no_node_is_refused(capture: Any, prompts: Any) -> None:
    done = capture(prompts("R"), "--isolate", "--cpus", 5)
    assert done.code == 1
    assert "no node of the cluster has the CPUs" in done.stderr


@pytest.fixture
def web_server() -> Iterator[str]:
    """The address of something that is no Ray cluster."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("127.0.0.1", "--address 127.0.0.1 is not the address of a Ray cluster"),
        ("127.0.0.1:65536", "--address 127.0.0.1:65536 is not the address of a Ray cluster"),
        ("ray://127.0.0.1:1", "--address ray://127.0.0.1:1 is not the address of a Ray cluster"),
        ("", "what answers at 127.0.0.1:{port} is not a Ray cluster"),
    ],
)
def test_a_cluster_that_is_not_there_is_said(web_server: str, address: str, why: str) -> None:
    with pytest.raises(AssayError) as refused:
        RayExecutor(address=address or web_server).connect()
    assert refused.value.message == why.format(port=web_server.partition(":")[2])


def test_a_cluster_of_the_environment_that_is_not_there_is_said(
    web_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, why in (
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        (web_server, f"what answers at {web_server} is not a Ray cluster"),
        ("http://x:1", "RAY_ADDRESS=http://x:1 is not the address of a Ray cluster"),
    ):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(AssayError) as refused:
            RayExecutor().connect()
        assert refused.value.message == why


def test_a_dead_cluster_that_ray_remembers_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", dict)
    monkeypatch.setattr("ray._private.utils.read_ray_address", lambda folder: "127.0.0.1:1")
    assert executor._address_here(ray) == ""


def test_options_of_a_cluster_need_one(assay: Any, shell_agent: Path, prompts: Any) -> None:
    done = assay("capture", prompts("R"), "-s", shell_agent, "--address", "127.0.0.1:1")
    assert done.code == 2
    words = ("capture", prompts("R"), "-s", shell_agent, "--isolate", "--executor", "ray")
    done = assay(*words, "--address", "")  # as of a variable that is not set
    assert (done.code, "--address is empty" in done.stderr) == (2, True), done.stderr
    for option in (("--address", "127.0.0.1:1"), ("--env", "NAME")):
        done = assay("grade", "-g", "contains", *option, stdin="{}")
        assert (done.code, "needs --executor ray" in done.stderr) == (2, True), done.stderr


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AssayError) as refused:
        RayExecutor().connect()
    assert refused.value.message == "--executor ray needs ray"
    assert "pip install" in refused.value.hint


def test_a_ray_that_cannot_be_loaded_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('libc is too old')\n")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssayError) as refused:
        RayExecutor().connect()
    said = "--executor ray needs ray, which cannot be loaded: libc is too old"
    assert refused.value.message == said


TOKEN_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
more = {"no_monitor": True, "include_log_monitor": False}
made = Cluster(initialize_head=True, head_node_args={**node, **more})
print(made.address, made.head_node.all_processes["gcs_server"][0].process.pid, flush=True)
sys.stdin.read()
made.shutdown()
"""
IMPATIENT = """
import assay.executors.ray as executor
from assay.cli.main import main
executor._LOOK_S, executor._MOST_SILENT_S = 0.2, 1.0
main()
"""
"""assay that does not wait long for the head of a cluster."""


@pytest.mark.ray
def test_a_cluster_may_demand_a_token_and_go_away(
    assay: Any,
    shell_agent: Path,
    prompts: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
    tmp_path: Path,
) -> None:
    token = {"RAY_AUTH_TOKEN": "0123456789abcdef" * 4, "RAY_AUTH_MODE": "token"}
    words = ("capture", prompts("R"), "-s", shell_agent, "--isolate", "-q", "-o", "out.jsonl")
    with (
        tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder,
        subprocess.Popen(
            [sys.executable, "-c", TOKEN_CLUSTER],
            env={**os.environ, **token, "RAY_worker_niceness": "0", "RAY_TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as cluster,
    ):
        assert cluster.stdout is not None
        address, head = cluster.stdout.readline().split()
        where = ("--executor", "ray", "--address", address)
        refused = assay(*words, *where, env={"HOME": str(tmp_path)}, timeout=LIMIT_S)
        assert refused.code == 1
        assert "set RAY_AUTH_MODE=token here too" in refused.stderr
        assert "Traceback" not in refused.stderr
        done = assay(*words, *where, env=token, timeout=LIMIT_S)
        assert done.code == 0, done.stderr
        words = ("capture", prompts("sleep 600", "sleep 600"), *words[2:-1], "gone.jsonl", *where)
        with subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, *map(str, words)],
            env={**os.environ, **token},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        ) as driver:
            assert eventually(alive, START_S)
            of_ray = psutil.Process(cluster.pid).children(recursive=True)
            os.kill(int(head), signal.SIGKILL)
            said = driver.communicate(timeout=60)[1]
        assert driver.returncode == 1
        assert f"Error: the Ray cluster at {address} does not answer any more\n" in said
        assert "continue with --resume" in said
        assert "Traceback" not in said
        assert eventually(lambda: not alive(), 30)
        cluster.communicate()
    for process in of_ray:  # without a head, Ray does not end all of its own
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_another_python_is_refused(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.60.0", "3.10.1"))
    try:
        with pytest.raises(AssayError) as refused:
            RayExecutor(address=ray_cluster.address).connect()
    finally:
        ray.shutdown()
    assert "Python: 3.10.1" in refused.value.message
    assert "same versions of Python and Ray" in refused.value.hint


def test_what_a_prompt_brings_travels(
    capture: Any, assay: Any, shell_agent: Path, tmp_path: Path, read_rows: Any
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which.txt").write_text(name)
    text = 'say "$(cat which.txt) $(cat more/f.txt) $(cat made)"'
    rows = [
        {"id": name, "input": text, "workspace": name, "files": {"more/f.txt": "file"},
         "setup": "echo set > made", "expect": {"contains": f"{name} file set", "file": "made"}}
        for name in ("one", "two")
    ]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    there = capture(tmp_path / "p.jsonl", "-j", 2)
    assert there.code == 0, there.stderr
    here = assay("capture", tmp_path / "p.jsonl", "-s", shell_agent, "-q", "-o", "here.jsonl")
    assert here.code == 0, here.stderr
    found = sorted(read_rows(tmp_path / "out.jsonl"), key=lambda row: row["id"])
    assert [row["score"]["pass"] for row in found] == [True, True], found
    local = sorted(read_rows(tmp_path / "here.jsonl"), key=lambda row: row["id"])
    for ours, theirs in zip(found, local, strict=True):
        assert differing(shown(ours), shown(theirs)) == []


def test_a_workspace_comes_back_as_far_as_it_can(
    capture: Any, prompts: Any, read_rows: Any, tmp_path: Path, tag: str
) -> None:
    # More than comes back of one workspace, although it takes no space on the disk.
    made = "mkfifo pipe; ln -s / root; ln t.txt hard; truncate -s 2G huge; mkdir d; echo x > d/x"
    file = prompts(f"echo t > t.txt; {made}; R")
    done = capture(file, "--isolate")
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "out.jsonl")
    folder = Path(row["cwd"])
    assert sorted(path.name for path in folder.iterdir()) == ["d", "hard", "root", "t.txt"]
    assert (folder / "hard").read_text() == "t\n"
    assert row["warnings"] == [f"left behind on the node: huge ({2 << 30} bytes: too large)"]


def test_an_agent_that_kills_what_runs_it_has_failed(
    capture: Any, prompts: Any, read_rows: Any, tmp_path: Path, alive: Any, eventually: Any
) -> None:
    file = prompts("setsid sleep 600 & kill -9 $PPID; sleep 600")
    done = capture(file, "--isolate", "--retries", 1)
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["failure"]["cause"] == "agent_crash", row
    assert "SIGKILL" in row["failure"]["message"]
    assert "retried" not in row
    assert done.code == 0, done.stderr
    assert eventually(lambda: not alive(), 30)


def test_a_rate_holds_for_the_whole_cluster(
    capture: Any, prompts: Any, read_rows: Any, tmp_path: Path
) -> None:
    file = prompts(*["date +%s.%N; R"] * 4)
    done = capture(file, "--isolate", "-j", 4, "--rate", "1/s")
    assert done.code == 0, done.stderr
    outputs = [streams(tmp_path / row["raw"])["1.out"] for row in read_rows(tmp_path / "out.jsonl")]
    started = sorted(float(text.split(b"\n")[0]) for text in outputs)
    # A second between starts; how long a node takes to start an agent differs.
    assert started[-1] - started[0] > 1.5


def test_nothing_is_imported_from_the_folder_of_the_driver(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        cluster = RayExecutor(address=ray_cluster.address).connect()
        found = cluster.call(eval, "__import__('sys').path", check=lambda: None)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        ray.shutdown()
    assert str(tmp_path) not in found


def test_an_experiment_runs_on_a_cluster(
    ray_cluster: Any, assay: Any, shell_agent: Path, tmp_path: Path, read_rows: Any
) -> None:
    for name in ("plain", "better"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "answer.txt").write_text("yes" if name == "better" else "no")
    text = 'say "$(cat answer.txt) $(cat f.txt) ${HERE:-there}"'
    rows = [
        {"id": f"p{n}", "input": text, "hint": "yes file there", "files": {"f.txt": "file"}}
        for n in range(2)
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("p.jsonl", "-s", shell_agent, "--workspace-template", "plain", "-g", "contains")
    words += ("--with", "template=better", "-k", 2, "-j", 4, "--name", "answers")
    words += ("--executor", "ray", "--address", ray_cluster.address)
    # A variable of this machine that an agent on another one has not.
    done = assay("ab", *words, env={"HERE": "here"}, timeout=LIMIT_S)
    assert done.code == 0, done.stdout + done.stderr
    found = {file.stem: read_rows(file) for file in tmp_path.glob("experiments/answers/*/*.jsonl")}
    passed = {
        name: [trial["pass"] for row in rows for trial in row["trials"]]
        for name, rows in found.items()
    }
    assert passed == {"control": [False] * 4, "better": [True] * 4}


PROGRAM = """
import sys
import ray, assay
ray.init(address=sys.argv[1], logging_level="ERROR")
assert ray.get(ray.remote(lambda: 7).remote()) == 7
for trial in assay.run(["one", "two"], agent={"shell": 'echo "$PROMPT"'}, graders=["contains:o"]):
    print(trial.output, trial.passed)
loud = "!"
def shout(prompt):
    return prompt.upper() + loud
for trial in assay.run(["hello"], agent=shout, graders=[lambda trial: trial.output.endswith(loud)]):
    print(trial.output, trial.passed)
ray.shutdown()
print(len(assay.run(["three"], agent="demo").collect()))
"""


def test_a_program_that_is_connected_to_ray_runs_trials(ray_cluster: Any, tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, ray_cluster.address]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    *trials, shouted, again = done.stdout.splitlines()
    assert sorted(trials) == ["one True", "two True"]
    assert shouted == "HELLO! True"
    assert again == "1"
