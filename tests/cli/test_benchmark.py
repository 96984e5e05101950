"""--benchmark: a package of somebody else, installed by pip, brings prompts, world and grader."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[1] / "packages" / "ledger"
AGENT = """
set -- $1
echo begun >> begun
for n in $(seq $1); do echo $2 >> "$LEDGER"; done
test $1 != 2 || exit 3
echo '{"type":"result","result":"wrote '$1'"}'
"""
"""Writes as many lines as it is asked for; asked for two, it crashes afterwards."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the package as a user would, and give the environment in which it is found."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(target), str(PACKAGE)], check=True
    )
    return {"PYTHONPATH": str(target)}


@pytest.fixture
def run(assay: Callable[..., Any], agent: Callable[..., Path], installed: dict[str, str]) -> Any:
    schema = agent(command=["/bin/sh", "-c", AGENT, "agent"])
    return lambda *words: assay(*words, "-s", schema, env=installed)


def cut_row(path: Path, text: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if text not in line))


def rows_of(path: Path) -> dict[str, Any]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_capture_takes_prompts_world_and_grader_of_the_package(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = run("capture", "--benchmark", "ledger:count=2,word=pear", "-g", "contains:1", "-o", out)
    assert done.code == 0, done.stderr
    rows = rows_of(out)
    assert list(rows) == ["lines-1", "lines-2"]
    first, second = rows.values()
    assert first["metadata"]["evidence"] == {"ledger": ["pear"]}
    assert first["source"] == "ledger"
    assert first["output"] == "wrote 1"
    assert (first["score"]["pass"], first["score"]["score"]) == (True, 1)
    assert first["grades"]["ledger-kept"]["version"] == "7"
    assert set(first["grades"]) == {"ledger-kept", "contains"}
    # The benchmark has failed trials graded too: by its own grader and by those given with -g.
    assert second["failure"]["cause"] == "agent_crash"
    assert second["grades"]["ledger-kept"]["reasoning"] == "2 lines"


def test_capture_resumes_a_benchmark(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ("capture", "--benchmark", "ledger", "-o", out)
    assert run(*words).code == 0
    whole = rows_of(out)
    cut_row(out, '"id":"lines-2"')
    done = run(*words, "--resume")
    assert done.code == 0, done.stderr
    assert (tmp_path / "begun").read_text() == "begun\n" * 4
    assert rows_of(out).keys() == whole.keys() == {"lines-1", "lines-2", "lines-3"}
    other = run("capture", "--benchmark", "ledger:word=plum", "-o", out, "--resume")
    assert other.code == 1
    assert 'row "lines-1" was made from another prompt' in other.stderr


def test_filter_and_limit_choose_among_its_prompts(run: Any) -> None:
    large = run("capture", "--benchmark", "ledger:count=5", "--filter", "size=large")
    assert [row["id"] for row in large.rows] == ["lines-3", "lines-4", "lines-5"]
    one = run("capture", "--benchmark", 'ledger:{"count": 5}', "--limit", "1")
    assert [row["id"] for row in one.rows] == ["lines-1"]


def test_trials_of_a_benchmark_resume(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ("trials", "--benchmark", "ledger:count=2", "-k", "2", "-o", out)
    done = run(*words, "-j", "2", "--progress")
    assert done.code == 0, done.stderr
    assert "2 prompts from benchmark ledger; 2 trials of each, 4 trials to run" in done.stderr
    cut_row(out, '"id":"lines-1"')
    assert run(*words, "--resume").code == 0
    assert (tmp_path / "begun").read_text() == "begun\n" * 6
    for row in rows_of(out).values():
        assert (row["passRate"], row["nMeasured"], row["source"]) == (1, 2, "ledger")
        assert [trial["score"] for trial in row["trials"]] == [1, 1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--benchmark", "nope"],
            1,
            "no benchmark called 'nope'\n  There are: arc, harbor, inspect-log, ledger",
        ),
        (
            ["--benchmark", "ledger:size=3"],
            1,
            "no option 'size'\n  its options are: count, word, fault",
        ),
        (
            ["--benchmark", 'ledger:{"x": 1}'],
            1,
            "no option 'x'\n  its options are: count, word, fault",
        ),
        (["--benchmark", "ledger:count=many"], 1, "count=many: count must be a whole number"),
        (["--benchmark", "ledger:{count"], 1, "ledger: options that begin with { must be JSON"),
        (
            ["--benchmark", "ledger:fault=raise"],
            1,
            "benchmark 'ledger' cannot give its prompts: LookupError: the ledger is not open yet",
        ),
        (
            ["--benchmark", "ledger:fault=repeat"],
            1,
            'benchmark ledger, prompt 2: id "lines-1" was used before, at benchmark ledger, '
            "prompt 1",
        ),
        (["a.jsonl", "--benchmark", "ledger"], 2, "leave out the prompt file 'a.jsonl'"),
        (["--stdin", "--benchmark", "ledger"], 2, "leave out --stdin"),
    ],
)
@pytest.mark.parametrize("command", ["capture", "trials"])
def test_what_is_wrong_is_said(
    run: Any, command: str, words: list[str], code: int, said: str
) -> None:
    done = run(command, *words)
    assert done.code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_prompt_file_is_a_benchmark_too(run: Any, prompts: Callable[..., Path]) -> None:
    path = prompts("1 a", "3 b")
    plain = run("capture", path).rows
    named = run("capture", "--benchmark", f"prompts:path={path}").rows
    assert [row["id"] for row in named] == ["p0", "p1"]
    assert [row["specHash"] for row in named] == [row["specHash"] for row in plain]
