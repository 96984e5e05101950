"""The life of a repository: changed prompts and graders, anchors, and what is kept of a gate."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

N = 40
GRADER = """def grade(trial):
    right = %s
    return {"pass": right, "score": float(right)}
"""
STRICT = "trial.output == trial.hint"
type Rows = list[dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, assay: Callable) -> Path:
    """A baseline of three builds of an agent that answers as it is asked."""
    write_prompts(tmp_path, prompts())
    write_grader(tmp_path, STRICT)
    done = measure(assay, tmp_path, "-k", "1", "-o", tmp_path / "build.jsonl")
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "build.jsonl").read_text().splitlines()]
    for n in range(3):
        for row in rows:
            row["trials"][0]["duration"] += 1000 * (n + 1)
        path = tmp_path / f"build-{n}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        added = assay("baseline", "add", path, "--to", tmp_path / "baseline.jsonl")
        assert added.code == 0, added.stderr
    return tmp_path


def prompts() -> Rows:
    return [{"id": f"p{n}", "input": f"say {n}", "hint": f"say {n}"} for n in range(N)]


def write_prompts(folder: Path, rows: Rows) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "prompts.jsonl").write_text(text)


def write_grader(folder: Path, rule: str, comment: str = "") -> None:
    (folder / "grader.py").write_text(f"{comment}\n{GRADER % rule}")


def measure(assay: Callable, folder: Path, *more: Any, agent: str = 'echo "$PROMPT"') -> Any:
    grader = ("-g", folder / "grader.py")
    return assay("trials", folder / "prompts.jsonl", "--shell", agent, *grader, "-j", "4", *more)


def gated(assay: Callable, folder: Path, *more: Any, agent: str = 'echo "$PROMPT"') -> Any:
    until = ("--until", "decided", "--against", folder / "baseline.jsonl", "--margin", "0.2")
    output = ("-k", "2", "-o", folder / "new.jsonl", "--overwrite")
    return measure(assay, folder, *until, *output, *more, agent=agent)


def kept(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "new.jsonl.gate.json").read_text())
    return found


def test_a_reworded_prompt_is_set_aside_and_the_rest_is_judged(place: Path, assay: Callable):
    rows = prompts()
    rows[3] |= {"input": "say it again", "hint": "say it again"}
    rows[4]["hint"] = "another answer"
    write_prompts(place, rows)
    done = gated(assay, place)
    assert done.code == 0, done.stderr
    assert (
        "1 prompt (p3) has another input; 2 prompts (p3, p4) have another right answer"
        in done.stderr
    )
    assert "38 prompts judged, 2 prompts (p3, p4) set aside" in done.stderr
    assert kept(place)["setAside"] == ["p3", "p4"]
    broken = gated(assay, place, agent="echo no")
    assert broken.code == 3, broken.stderr


@pytest.mark.parametrize("key", ["want", "category"])
def test_metadata_that_a_grader_reads_is_what_it_expects(tmp_path: Path, assay: Callable, key: str):
    rule = f"trial.output == trial.metadata[{key!r}]"
    rows = [{"id": f"p{n}", "input": "say", "metadata": {key: "say"}} for n in range(N)]
    write_prompts(tmp_path, rows)
    write_grader(tmp_path, rule)
    assert measure(assay, tmp_path, "-k", "1", "-o", tmp_path / "baseline.jsonl").code == 0
    rows[4]["metadata"] = {key: "no"}
    write_prompts(tmp_path, rows)
    done = gated(assay, tmp_path)
    assert done.code == 0, done.stderr
    assert "39 prompts judged, 1 prompt (p4) set aside" in done.stderr
    write_prompts(tmp_path, [row | {"metadata": {key: "no"}} for row in rows])
    assert gated(assay, tmp_path, agent="echo no").code == 4
    measure(assay, tmp_path, "-k", "1", "-o", tmp_path / "bad.jsonl", agent="echo no")
    compared = assay("compare", tmp_path / "baseline.jsonl", tmp_path / "bad.jsonl", "-f", "json")
    words = json.loads(compared.stdout)["verdict"][0]["words"]
    assert "cannot be compared" in words
    assert "another right answer is expected" in words


def test_metadata_that_no_grader_reads_can_change(tmp_path: Path, assay: Callable):
    write_prompts(tmp_path, prompts())
    for name, group in (("baseline", "a"), ("new", "b")):
        write_prompts(tmp_path, [row | {"metadata": {"category": group}} for row in prompts()])
        done = assay(
            "trials", tmp_path / "prompts.jsonl", "--shell", 'echo "$PROMPT"', "-g", "contains",
            "-k", "1", "-o", tmp_path / f"{name}.jsonl",
        )  # fmt: skip
        assert done.code == 0
    both = (tmp_path / "baseline.jsonl", tmp_path / "new.jsonl")
    verdict = json.loads(assay("compare", *both, "-f", "json").stdout)["verdict"][0]
    assert "cannot be compared" not in verdict["words"]


def test_a_gate_says_how_many_prompts_were_not_asked_for(place: Path, assay: Callable):
    """Whoever chooses the prompts could leave out those that a change breaks."""
    agent = """case "$PROMPT" in *" 1"*) echo no;; *) echo "$PROMPT";; esac"""
    done = gated(assay, place, "--filter", "!p1*", agent=agent)
    assert done.code == 0, done.stderr
    said = "29 prompts judged; 11 prompts (p1, p10, p11, p12, p13, …) of baseline not in this run"
    assert said in " ".join(done.stderr.split())
    both = (f"main:{place / 'baseline.jsonl'}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown")
    assert "- Not in this run: 11 prompts: `p1`, `p10`, " in shown.stdout


def test_prompts_that_were_removed_are_named_where_the_gate_passes(place: Path, assay: Callable):
    write_prompts(place, prompts()[: N - 3])
    agent = """case "$PROMPT" in *37|*38|*39) echo no;; *) echo "$PROMPT";; esac"""
    done = gated(assay, place, agent=agent)
    assert done.code == 0, done.stderr
    said = "37 prompts judged; 3 prompts (p37, p38, p39) of baseline not in this run"
    assert said in " ".join(done.stderr.split())
    assert kept(place)["leftOut"] == ["p37", "p38", "p39"]
    both = (f"main:{place / 'baseline.jsonl'}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown")
    assert "- Not in this run: 3 prompts: `p37`, `p38`, `p39`" in shown.stdout


def test_many_changes_need_somebody_who_accepts_them(place: Path, assay: Callable):
    rows = prompts()[: N - 8]
    rows[0]["input"] = "another question"
    write_prompts(place, rows)
    refused = gated(assay, place)
    assert refused.code == 4
    assert "--accept-changes" in refused.stderr
    assert re.search(r"8 prompts \(p3.*, …\) are not in the plan", refused.stderr)
    done = gated(assay, place, "--accept-changes", "octocat")
    assert done.code == 0, done.stderr
    assert "accepted by octocat" in done.stderr
    consent = kept(place)["consent"]
    assert consent["by"] == "octocat"
    assert len(consent["changes"]) == 2
    both = (f"main:{place / 'baseline.jsonl'}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown")
    assert "✅ **Passed" in shown.stdout
    assert "Changes accepted by octocat" in shown.stdout
    assert gated(assay, place, "--accept-changes", "o", agent="echo no").code == 3


def test_all_prompts_changed_and_accepted_is_said_and_is_no_pass_of_the_gate(
    place: Path, assay: Callable
):
    write_prompts(place, [row | {"input": "new"} for row in prompts()])
    assert gated(assay, place).code == 4
    done = gated(assay, place, "--accept-changes", "octocat")
    assert done.code == 0, done.stderr
    assert "regression against baseline: not judged; accepted by octocat" in done.stderr


def test_a_comment_in_a_grader_changes_nothing(place: Path, assay: Callable):
    write_grader(place, STRICT, "# explains itself")
    done = gated(assay, place)
    assert done.code == 0, done.stderr
    said = "asked again about 120 kept answers, none of which had failed, it says the same"
    assert said in " ".join(done.stderr.split())
    # Whoever reviews the pull request reads it, too: this grader may like whatever is new.
    both = (f"main:{place / 'baseline.jsonl'}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown")
    assert "- Changed grader: " in shown.stdout
    assert said in shown.stdout


def test_a_loss_is_not_hidden_in_prompts_that_are_reworded(place: Path, assay: Callable):
    """Four prompts of 40 are set aside, and fail; one more fails among those that are judged."""
    rows = prompts()
    for row in rows[:4]:
        row["input"] += " again"
    write_prompts(place, rows)
    agent = """case "$PROMPT" in *again|"say 9") echo no;; *) echo "$PROMPT";; esac"""
    done = gated(assay, place, agent=agent)
    assert done.code == 4, done.stderr
    said = "with the prompts that were set aside, -12.5 points"
    assert said in " ".join(done.stderr.split())
    assert kept(place)["outcome"] == "undecided"
    accepted = gated(assay, place, "--accept-changes", "octocat", agent=agent)
    assert accepted.code == 0, accepted.stderr


def test_a_grader_that_judges_otherwise_is_found_by_what_it_says(place: Path, assay: Callable):
    write_grader(place, f'{STRICT} and trial.output not in ("say 7", "say 8")')
    done = gated(assay, place)
    assert done.code == 0, done.stderr
    assert "it judges those of 2 prompts (p7, p8) otherwise" in done.stderr
    assert kept(place)["setAside"] == ["p7", "p8"]
    write_grader(place, 'trial.output == "no"')
    refused = gated(assay, place, agent="echo no")
    assert refused.code == 4, "a grader that likes what the broken agent says"
    assert "--accept-changes" in refused.stderr


def test_the_anchor_is_a_second_gate(place: Path, assay: Callable):
    baseline = place / "baseline.jsonl"
    missing = gated(assay, place, "--anchor")
    assert missing.code == 1
    assert "assay baseline anchor NAME" in missing.stderr
    for name in ("v1", "v2"):
        done = assay("baseline", "anchor", name, "--of", baseline)
        assert done.code == 0, done.stderr
    assert assay("baseline", "anchor", "v1", "--of", baseline).code == 1, "there is one"
    assert "anchor v2, set 20" in assay("baseline", "show", baseline).stdout
    # Main got worse meanwhile, build by build: as bad as the branch.
    agent = 'case $PROMPT in *[0-3]) echo no;; *) echo "$PROMPT";; esac'
    lines = [json.loads(line) for line in baseline.read_text().splitlines()]
    for row in lines:
        for trial in row["trials"]:
            trial["pass"] = row["id"][-1] not in "0123"
    baseline.write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert gated(assay, place, agent=agent).code == 0
    done = gated(assay, place, "--anchor", agent=agent)
    assert done.code == 3, done.stderr
    assert "against the anchor v" in done.stderr
    assert kept(place)["anchor"]["outcome"] == "fail"
    both = (f"main:{baseline}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown").stdout
    assert "❌ **Failed: new is worse than the anchor v" in shown
    assert assay("report", place / "new.jsonl", "-f", "junit", "-o", place / "j.xml").code == 0
    (suite,) = ElementTree.parse(place / "j.xml").getroot()
    assert (suite[0].get("name"), suite[0][0].tag) == (
        "gate: regression against baseline",
        "failure",
    )


def test_terminal_and_comment_show_the_same_interval_if_nothing_is_decided(
    place: Path, assay: Callable
):
    agent = 'case $PROMPT in *5) echo no;; *) echo "$PROMPT";; esac'
    done = gated(assay, place, agent=agent)
    assert done.code == 4, done.stderr
    found = kept(place)
    assert found["outcome"] == "undecided"
    low, high = (100 * found["decision"]["interval"][end] for end in ("low", "high"))
    both = (f"main:{place / 'baseline.jsonl'}", f"new:{place / 'new.jsonl'}")
    shown = assay("report", *both, "--sequential", "--margin", "0.2", "-f", "markdown").stdout
    assert f"{low:+.1f} to {high:+.1f} at every look" in shown
    assert f"{low:+.1f} to {high:+.1f} points at every look" in done.stderr
