"""assay.ab gives what `assay ab` gives, as an object."""

import json
from pathlib import Path

import pytest

import assay as library
from assay.errors import AssayError, InputError, UsageError

PROMPTS = [{"id": f"p{n}", "input": f"What is {n} + 25?", "hint": str(n + 25)} for n in range(8)]
SAME = ("name", "valid", "verdicts", "proof", "effect", "decisions", "inputs", "experiment")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    return tmp_path


def upper(text):
    return text.upper()


def test_it_says_what_the_command_says(assay, folder):
    verdict = library.ab(
        "prompts.jsonl",
        agent={"shell": 'echo "$PROMPT"'},
        treatment={"agent": "demo"},
        graders=["contains"],
        k=2,
        jobs=4,
        output="ours",
    )
    arguments = ["--shell", 'echo "$PROMPT"', "--with", "agent=demo", "-g", "contains"]
    arguments += ["-k", "2", "-j", "4", "-o", "theirs", "--json"]
    done = assay("ab", "prompts.jsonl", *arguments)
    assert done.code == 0, done.stderr
    reported = json.loads(done.stdout.splitlines()[-1])
    assert {name: verdict.data[name] for name in SAME} == {name: reported[name] for name in SAME}
    ours, theirs = verdict.data["pairs"][0], reported["pairs"][0]
    assert ours["passRate"] == theirs["passRate"]
    assert ours["verdict"]["code"] == theirs["verdict"]["code"]
    assert verdict.decision == next(iter(reported["verdicts"].values()))
    # The times of a prompt are those of either run.
    assert verdict.sentence.split(" Takes ")[0] == reported["sentences"][0].split(" Takes ")[0]
    assert verdict.sentence == ours["verdict"]["words"]
    assert verdict.difference == theirs["passRate"]["difference"]
    assert verdict.valid
    assert verdict.report.is_file()
    assert {path.name for path in verdict.folder.iterdir()} >= {"resolved.json", "verdict.json"}
    # The command continues what the library began, and the other way round.
    done = assay("ab", "prompts.jsonl", *arguments[:-3], "-o", "ours", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["effort"]["nTrials"] == 32


def test_functions_and_lists(folder):
    seen = []
    call = {
        "agent": upper,
        "treatment": {"agent": lambda text: "it is 42"},
        "graders": [lambda trial: trial.output == "it is 42"],
        "k": 2,
        "margin": 0.1,
    }
    verdict = library.ab(PROMPTS, **call, progress=seen.append)
    assert (verdict.decision, verdict.difference) == ("better", 1.0)
    assert str(verdict) == verdict.sentence
    assert "helps: 0 % → 100 % of trials pass (+100 points, 95 % interval +" in verdict.sentence
    assert seen[-1].n_done == seen[-1].n_total
    # The same call finds its trials again.
    again = library.ab(PROMPTS, **call)
    assert again.folder == verdict.folder
    assert again.data["effort"]["nTrials"] == 32


def test_a_skill_is_a_treatment(folder):
    skill = folder / "skills" / "sums"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: sums\ndescription: Adds numbers.\n---\nAdd.\n")
    verdict = library.ab(
        PROMPTS[:2], agent="demo", treatment={"skill": "skills/sums"}, graders=["contains"], k=2
    )
    assert verdict.data["verdicts"].keys() == {"sums"}
    assert verdict.interval is not None


def test_an_experiment_file_says_all(folder):
    Path("experiment.toml").write_text(
        'prompts = "prompts.jsonl"\ngraders = ["contains"]\nk = 1\n'
        '[arms.control]\nagent = "demo:flaky"\n[arms.better]\nagent = "demo:better"\n'
    )
    assert library.ab("experiment.toml").data["verdicts"].keys() == {"better"}
    with pytest.raises(UsageError, match="says what is compared"):
        library.ab("experiment.toml", k=3)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"treatment": {"model": "x"}}, UsageError, "needs an agent"),
        ({"agent": "demo"}, UsageError, "nothing to compare"),
        ({"agent": "demo", "treatment": {"luck": "1"}}, UsageError, "not 'luck'"),
        ({"agent": {"acp": ["x"]}, "treatment": {"model": "x"}}, UsageError, "has no agent"),
        ({"agent": "demo", "treatment": {"agent": "nobody"}}, AssayError, "nobody"),
        ({"agent": "demo", "treatment": {"skill": "absent"}}, InputError, "absent"),
        ({"agent": "demo", "treatment": {"model": "x"}, "luck": 1}, TypeError, "luck"),
        (
            {"agent": "demo", "treatment": {"model": ["x", "y"]}},
            InputError,
            "the treatment model is given twice; an arm has one",
        ),
    ],
)
def test_what_is_wrong_is_said(folder, options, kind, words):
    with pytest.raises(kind) as caught:
        library.ab("prompts.jsonl", graders=["contains"], **options)
    assert words in str(caught.value)
    assert not list(Path("experiments").rglob("report.html"))
