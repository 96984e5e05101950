"""Environment variables: each works, stands in the help of its command, and is checked."""

import json
import re
import subprocess
from pathlib import Path

import click
import pytest

from assay.cli.group import cli

ROOT = Path(__file__).parents[2]
READ = re.compile(r"""environ(?:\.get\(|\[)\s*["']([A-Z][A-Z_]+)["']""")
OF_OTHERS = {
    "CLAUDE_CONFIG_DIR",
    "CODEX_API_KEY",
    "CODEX_HOME",
    "GEMINI_API_KEY",
    "GEMINI_CLI_HOME",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "HOME",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENCODE_CONFIG",
    "OPENCODE_CONFIG_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "PATH",
    "PYTEST_XDIST_WORKER_COUNT",
    "SHELL",
    "TERM",
    "TMPDIR",
    "PYTHON_DOTENV_DISABLED",
    "RAY_ADDRESS",
}
"""Variables of agents and of the system, which mean the same to Assay as to them."""
SHOWN = {
    "COMPARE_QUALITY": ["compare"],
    "COMPARE_LATENCY": ["compare"],
    "COMPARE_RELIABILITY": ["compare"],
    "COMPARE_CAPABILITY": ["compare"],
    "COMPARE_CONSISTENCY": ["compare"],
    "COMPARE_BOOTSTRAP_ITERATIONS": ["compare"],
    "ASSAY_EDITOR_URL": ["report", "view"],
    "ASSAY_PRICES": ["capture", "trials", "extract"],
    "GITHUB_ACTOR": ["trials"],
    "NO_COLOR": ["compare", "agents", "doctor", "demo"],
    "XDG_CACHE_HOME": ["capture", "trials", "run", "view"],
}
WEIGHTS = [name for name in SHOWN if name.startswith("COMPARE_")][:5]


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two runs of 40 prompts whose durations differ."""
    names = []
    for number, name in enumerate(("a.jsonl", "b.jsonl")):
        rows = []
        for i in range(40):
            total = 100 + (i * 37 % 91) * (number + 1)
            graded = (i + number) % 3 > 0
            rows.append(
                {
                    "id": f"p{i}",
                    "input": "x",
                    "output": "y",
                    "trajectory": [],
                    "metadata": {},
                    "timing": {"start": 0, "end": total, "total": total, "sessionCreation": 0},
                    "toolErrors": False,
                    "score": {"pass": graded, "score": float(graded)},
                }
            )
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        names.append(name)
    return names


@pytest.mark.parametrize("name", SHOWN)
def test_each_variable_stands_in_the_help_of_its_commands(name):
    context = click.Context(cli)
    for word in SHOWN[name]:
        command = cli.get_command(context, word)
        assert command is not None
        assert name in command.get_help(click.Context(command)), word


def test_no_variable_that_the_program_reads_is_missing_here():
    sources = subprocess.run(
        ["grep", "-rhE", "environ", "--include=*.py", str(ROOT / "src" / "assay")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    read = set(READ.findall(sources))
    assert read
    assert read <= SHOWN.keys() | OF_OTHERS


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("value", ["abc", "nan", "-inf", "1_0", "٣"])
def test_a_weight_that_is_no_number_is_refused(assay, runs, name, value):
    done = assay("compare", *runs, env={name: value})
    assert (done.code, done.stdout) == (2, "")
    assert f"{name}={value!r} is not a weight" in done.stderr


def test_a_negative_weight_is_said_and_not_used(assay, runs):
    usual, told = assay("compare", *runs), assay("compare", *runs, env={"COMPARE_QUALITY": "-3"})
    assert told.code == 0
    found, usual_found = json.loads(told.stdout), json.loads(usual.stdout)
    del found["meta"]["generatedAt"], usual_found["meta"]["generatedAt"]
    assert found == usual_found
    assert "note: COMPARE_QUALITY=-3 is negative; its default is used" in told.stderr


@pytest.mark.parametrize("value", ["abc", "0", "99", "1e3", "-5", "10000000"])
def test_a_wrong_number_of_iterations_is_refused(assay, runs, value):
    done = assay("compare", *runs, env={"COMPARE_BOOTSTRAP_ITERATIONS": value})
    assert (done.code, done.stdout) == (2, "")
    assert "COMPARE_BOOTSTRAP_ITERATIONS" in done.stderr
    assert "from 100 to 1000000" in done.stderr


def test_a_weight_decides_who_wins(assay, runs):
    fast = {"COMPARE_QUALITY": "0", "COMPARE_LATENCY": "1", "COMPARE_RELIABILITY": "0"}
    told = json.loads(assay("compare", *runs, env=fast).stdout)
    usual = json.loads(assay("compare", *runs).stdout)
    assert told["headToHead"]["pairwise"] != usual["headToHead"]["pairwise"]


@pytest.mark.parametrize("strategy", ["weighted", "statistical"])
def test_the_number_of_iterations_changes_the_intervals(assay, runs, strategy):
    words = ["compare", *runs, "-s", strategy]
    told = json.loads(assay(*words, env={"COMPARE_BOOTSTRAP_ITERATIONS": "100"}).stdout)
    usual = json.loads(assay(*words).stdout)
    assert told["meta"]["bootstrapIterations"] == 100
    for run in ("a", "b"):
        here, there = (page["performance"][run]["confidenceIntervals"] for page in (told, usual))
        assert here["latencyMean"] != there["latencyMean"]
        assert here["latencyMean"] == pytest.approx(there["latencyMean"], rel=0.1)
    methods = {
        pair["amounts"]["latencyMs"]["differenceInterval"]["method"] for pair in told["pairs"]
    }
    assert all(method.startswith("BCa bootstrap, 100 resamples") for method in methods)


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_a_table_of_prices_that_is_missing_is_refused_before_anything_runs(
    assay, prompts, tmp_path, command
):
    words = [command, prompts("x"), "-s", "demo", "-o", "out.jsonl"]
    done = assay(*words, env={"ASSAY_PRICES": "abc"})
    assert done.code == 2
    assert "ASSAY_PRICES=abc: No such file" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "wrong.json").write_text("{}")
    wrong = assay(*words, env={"ASSAY_PRICES": "wrong.json"})
    assert wrong.code == 1
    assert "a price table is" in wrong.stderr
