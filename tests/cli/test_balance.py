"""assay balance from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_json_to_the_output_and_a_chart_on_stderr(assay: Callable[..., Any], prompts: Any):
    rows = [
        {"id": f"p{i}", "input": "x", "metadata": {"level": "easy" if i < 9 else "hard"}}
        for i in range(10)
    ]
    done = assay("balance", prompts(*rows), "--key", "level", "-t", "60")
    assert done.code == 0
    found = json.loads(done.stdout)
    assert found["categories"] == [
        {"name": "easy", "count": 9, "percentage": 90},
        {"name": "hard", "count": 1, "percentage": 10},
    ]
    assert found["underrepresented"] == ["hard"]
    assert "easy: 9 (90%) " + "█" * 18 in done.stderr
    assert "Underrepresented: hard" in done.stderr


def test_quiet_shows_no_chart(assay: Callable[..., Any], prompts: Any, tmp_path: Path):
    out = tmp_path / "b.json"
    done = assay("balance", prompts("x"), "-q", "-o", out)
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(out.read_text())["totalCases"] == 1


def test_a_bad_prompt_is_named(assay: Callable[..., Any], prompts: Any):
    path = prompts("x", {"id": "b"})
    done = assay("balance", path)
    assert (done.code, done.stdout) == (1, "")
    assert f"{path}:2: missing field `input`" in done.stderr
    assert assay("balance").code == 1  # stdin holds no prompts
    assert assay("balance", path, "-t", "abc").code == 2


def test_a_threshold_that_is_no_number_is_refused(assay: Callable[..., Any], prompts: Any):
    for threshold in ("nan", "abc", "-1"):
        done = assay("balance", prompts({"id": "a", "input": "x"}), f"--threshold={threshold}")
        assert (done.code, done.stdout) == (2, "")
