"""Trials on a real Ray cluster of two nodes: the same rows, nothing lost, nothing left running."""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from assay.records.raw_streams import kept_streams

pytestmark = pytest.mark.filterwarnings("ignore")
NODE = {"num_cpus": 4, "object_store_memory": 80 << 20, "include_dashboard": False}
HEAD = {**NODE, "no_monitor": True, "include_log_monitor": False}
LIMIT_S = 300


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of this file; those of other pytest workers wait for their turn."""
    root = tmp_path_factory.getbasetemp()
    lock = root.parent / "ray.lock" if "PYTEST_XDIST_WORKER" in os.environ else root / "ray.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        made = Cluster(initialize_head=True, head_node_args=HEAD)
        yield made
        made.shutdown()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """The cluster with two nodes; the second one is new if an earlier test has killed it."""
    if not nodes.worker_nodes:
        nodes.second = nodes.add_node(**NODE)
        nodes.wait_for_nodes()
    return nodes


@pytest.fixture
def capture(assay: Callable[..., Any], shell_agent: Path, cluster: Cluster) -> Callable[..., Any]:
    def run(prompts: Path, *words: Any, **more: Any) -> Any:
        return assay(
            *("capture", prompts, "-s", shell_agent, "-q", "-o", "out.jsonl", *words),
            *("--executor", "ray", "--address", cluster.address),
            timeout=LIMIT_S,
            **more,
        )

    return run


def kill_node(cluster: Cluster) -> None:
    """Kill the second node's raylet and its workers, as a machine that loses power would."""
    raylet = psutil.Process(cluster.second.all_processes["raylet"][0].process.pid)
    for process in (raylet, *raylet.children()):
        process.kill()
    cluster.remove_node(cluster.second, allow_graceful=False)


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
    given = ("--workspace-template", "template", "-g", "g.py", "-j", 4)
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
    cluster: Cluster,
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
    file = prompts(*["setsid sleep 600 & sleep 0.3; R"] * n)
    words = ("capture", file, "-s", shell_agent, "-q", "-o", "out.jsonl", "--isolate", "-j", 8)
    words += ("--retries", 2, "--executor", "ray", "--address", cluster.address)
    output = tmp_path / "out.jsonl"

    def n_rows() -> int:
        return output.read_bytes().count(b"\n") if output.exists() else 0

    driver = start(*words)
    assert eventually(lambda: n_rows() >= 20, 120), driver.stderr.read() if driver.poll() else ""
    before = n_rows()
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert eventually(lambda: n_rows() >= before + 20, 120)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert eventually(lambda: not alive(), 60), "agents outlived their driver"
    again = capture(file, "--isolate", "-j", 8, "--retries", 2, "--resume")
    assert again.code == 0, again.stderr
    rows = read_rows(output)
    assert sorted(row["id"] for row in rows) == sorted(f"p{i}" for i in range(n))
    assert all(row["output"] == "ok" and "failure" not in row for row in rows)
    assert eventually(lambda: not alive(), 30)


def test_a_dead_node_is_worker_lost_and_retried_only_when_asked(
    cluster: Cluster,
    start: Any,
    shell_agent: Path,
    prompts: Any,
    read_rows: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "started").mkdir()
    file = prompts(*[f"touch {tmp_path}/started/$$; sleep 15; R"] * 8)
    words = ("capture", file, "-s", shell_agent, "-q", "-o", "out.jsonl", "--isolate", "-j", 8)
    driver = start(*words, "--executor", "ray", "--address", cluster.address)
    assert eventually(lambda: len(list((tmp_path / "started").iterdir())) == 8, 120)
    kill_node(cluster)
    assert driver.wait(120) in (0, 1)
    rows = read_rows(tmp_path / "out.jsonl")
    causes = [row.get("failure", {}).get("cause") for row in rows]
    assert len(rows) == 8
    assert 0 < causes.count("worker_lost") < 8
    assert causes.count(None) + causes.count("worker_lost") == 8
    assert eventually(lambda: not alive(), 30)


def test_ctrl_c_ends_the_agents_on_all_nodes(
    cluster: Cluster,
    start: Any,
    shell_agent: Path,
    prompts: Any,
    alive: Callable[[], list[int]],
    eventually: Any,
) -> None:
    file = prompts(*["setsid sleep 600 & sleep 600"] * 6)
    words = ("capture", file, "-s", shell_agent, "-o", "out.jsonl", "--isolate", "-j", 6)
    driver = start(*words, "--executor", "ray", "--address", cluster.address)
    assert eventually(lambda: len(alive()) >= 6, 120)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    assert eventually(lambda: not alive(), 30)


def test_only_named_variables_travel(
    capture: Any, prompts: Any, read_rows: Any, tmp_path: Path
) -> None:
    file = prompts('say "${ONE:-none} ${TWO:-none}"')
    done = capture(file, "--isolate", "--env", "ONE", env={"ONE": "first", "TWO": "second"})
    assert done.code == 0, done.stderr
    assert read_rows(tmp_path / "out.jsonl")[0]["output"] == "first none"


def test_what_a_node_lacks_is_said_before_anything_runs(
    capture: Any, cluster: Cluster, prompts: Any, tmp_path: Path
) -> None:
    poor = cluster.add_node(**NODE, env_vars={"PATH": "/nowhere"})
    cluster.wait_for_nodes()
    done = capture(prompts("R"), "--isolate")
    assert done.code == 1
    assert "not every node can run the trials" in done.stderr
    assert poor.unique_id is not None
    assert 'Executable not found in $PATH: "bash"' in done.stderr
    in_place = capture(prompts("R"))
    assert in_place.code == 1
    assert "cannot work in your folder" in in_place.stderr
    assert not (tmp_path / "out.jsonl").exists() or not (tmp_path / "out.jsonl").read_bytes()


def test_a_cluster_that_is_not_there_is_said(assay: Any, shell_agent: Path, prompts: Any) -> None:
    words = ("capture", prompts("R"), "-s", shell_agent, "--isolate", "-q")
    done = assay(*words, "--executor", "ray", "--address", "127.0.0.1:1", timeout=LIMIT_S)
    assert done.code == 1
    assert "cannot join the Ray cluster 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    done = assay(*words, "--address", "127.0.0.1:1")
    assert done.code == 2
