"""Terminal, JSON, Markdown, page and JUnit say the same of an experiment, whatever became of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_ab import AGENT, Project
from tests.cli.test_reuse import Team
from tests.report.test_html import blocks

type Assay = Callable[..., Any]
type Made = tuple[Any, Path]
"""What the last command printed, and the folder of its run."""


def unhealthy(assay: Assay, folder: Path) -> Made:
    project = Project(folder)
    words = ("ab", "prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "1")
    env = project.env | {"LIKE_LOST": "3? 7?"}
    return assay(*words, "-g", "contains", "--retries", "0", env=env), project.run


def reused(assay: Assay, folder: Path) -> Made:
    team = edited(assay, folder, "2")
    return team.ab(), newest(folder)


def promising(assay: Assay, folder: Path) -> Made:
    team = edited(assay, folder, "this one helps")
    return team.ab(), newest(folder)


def confirmed(assay: Assay, folder: Path) -> Made:
    team = edited(assay, folder, "this one helps")
    assert team.ab().code == 0
    return team.ab("--confirm"), newest(folder)


def judged(assay: Assay, folder: Path) -> Made:
    team = edited(assay, folder, "this one helps")
    row = json.loads((newest(folder) / "control.jsonl").read_text().splitlines()[0])
    version = row["trials"][0]["grades"]["contains"]["version"]
    errors = {"sensitivity": 0.9, "specificity": 0.8, "variance": 0.001, "df": 49}
    kept = {"graderVersions": [f"contains:{version}"], "nLabels": 99, "nPrompts": 50}
    (folder / "judge.json").write_text(json.dumps(kept | {"errors": errors}))
    return team.ab("--reuse", "none"), newest(folder)


def edited(assay: Assay, folder: Path, text: str) -> Team:
    """Somebody who has measured a useless template, and edits it."""
    team = Team(folder, assay)
    team.edit("1")
    assert team.ab().code == 0
    team.edit(text)
    return team


def newest(folder: Path) -> Path:
    runs = (folder / "experiments").glob("*/*/verdict.json")
    return max(runs, key=lambda path: json.loads(path.read_text())["ended"]).parent


# What every form says, and what none says.
CASES = {
    unhealthy: ("UNHEALTHY (relnotes: 25% of the planned trials are not measured)", "better than"),
    reused: (
        "control: 28 of 36 trials reused, up to 1 hour old; 8 trials run again agree",
        "is better than",
    ),
    promising: ("tpl is promising, and not confirmed (edit 2 against this control)", "tpl helps"),
    confirmed: ("tpl helps, which is confirmed (both arms were run anew", "tpl is promising"),
    judged: ("corrected for the judge's errors by judge.json: sensitivity 0.90", "not in the"),
}


@pytest.mark.parametrize("make", CASES)
def test_all_forms_say_the_same(assay: Assay, tmp_path: Path, make: Callable[..., Made]) -> None:
    done, run = make(assay, tmp_path)
    verdict = json.loads((run / "verdict.json").read_text())
    ((arm, code),) = verdict["verdicts"].items()
    expected = {"reused": "not-enough-data", "judged": "promising"}
    assert code == expected.get(make.__name__, make.__name__)
    assert done.code == (4 if code == "unhealthy" else 0), done.stderr
    junit = assay("report", run / f"{arm}.jsonl", "-f", "junit").stdout
    forms = {
        "terminal": done.stdout,
        "json": "\n".join([*verdict["proof"]["words"], *verdict["sentences"]]),
        "markdown": (run / "verdict.md").read_text(),
        "page": blocks((run / "report.html").read_text())["index"].decode(),
        "junit": junit,
    }
    wanted, unwanted = CASES[make]
    plain = {name: " ".join(text.replace("\\", "").split()) for name, text in forms.items()}
    assert {name for name, text in plain.items() if wanted not in text} == set()
    assert {name for name, text in plain.items() if unwanted in text} == set()
    assert f'name="experiment: {arm}: {code}"' in junit
    assert ('<error type="unhealthy"' in junit) == (code == "unhealthy")


def test_an_early_end_shows_one_interval_in_all_forms(assay: Assay, tmp_path: Path) -> None:
    team = Team(tmp_path, assay)
    team.edit("this one helps")
    done = team.ab("--until", "decided", "--effect", "0.3")
    run = newest(tmp_path)
    verdict = json.loads((run / "verdict.json").read_text())
    decided, pair = verdict["decisions"]["tpl"], verdict["pairs"][0]["verdict"]
    assert pair["interval"] == decided["interval"]
    low, high = (decided["interval"][end] for end in ("low", "high"))
    for text in (done.stdout, (run / "verdict.md").read_text()):
        shown = re.search(r"interval (\S+) to (\S+) at every look", " ".join(text.split()))
        assert shown is not None
        ends = [float(end) for end in shown.groups()]
        assert ends == pytest.approx([100 * low, 100 * high], abs=1)
