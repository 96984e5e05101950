"""Wrong arguments are refused before anything runs, and the error says what to give instead."""

import subprocess
import sys

import pytest

import assay as library
from assay.errors import InputError, UsageError
from assay.graders.answer import Contains

PROMPTS = [{"id": "a", "input": "What is 1 + 2?", "hint": "3"}]


def never(text):
    raise AssertionError("an agent was started")


def start(prompts=PROMPTS, **options):
    return library.run(prompts, **{"agent": never, "graders": ["contains"], **options}).collect()


def experiment(prompts=PROMPTS, **options):
    given = {"agent": never, "treatment": {"model": "m"}, "graders": ["contains"], **options}
    return library.ab(prompts, **given)


WRONG_IN_BOTH = {
    "agent": [5, "", {}],
    "graders": [[5], None, "contains", {"contains": 1}],
    "k": [0, "x", True, 1.5],
    "jobs": [-1, 0, "x", None],
    "max_cost": [-1, "x", float("nan")],
    "model": [5],
    "progress": [5],
    "retries": [-1, "x"],
    "env": [[1], {"A": 1}, {"A": "1"}, "A"],
    "filters": ["zzz", [1]],
    "timeout_s": [0, "x"],
    "cpus": [0, "x"],
    "isolate": ["yes"],
    "workspace_template": ["no-such-folder", 5],
    "sandbox": ["strong"],
    "limit": [0],
}
WRONG_IN_RUN = {"memory_bytes": ["x"], "cwd": ["no-such-folder"], "agent": [None, {"simple": None}]}
WRONG_IN_AB = {
    "margin": ["x", 1, -0.1],
    "effect": ["x"],
    "seed": ["x", -1],
    "until": ["never"],
    "treatment": ["skills/x", {"skill": None}, {}, None, {"skil": "x"}],
    "output": [None],
    "fresh": ["no"],
}


def cases(call, wrong):
    return [(call, name, value) for name, values in wrong.items() for value in values]


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        *cases(start, WRONG_IN_BOTH),
        *cases(start, WRONG_IN_RUN),
        *cases(experiment, WRONG_IN_BOTH),
        *cases(experiment, WRONG_IN_AB),
    ],
)
def test_a_wrong_option_is_refused(call, name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        call(**{name: value})
    assert "Traceback" not in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_an_experiment_has_no_other_options():
    with pytest.raises(TypeError, match="did you mean margin"):
        experiment(margn=0.1)


def test_env_is_a_list_of_names():
    with pytest.raises(UsageError, match="list of the names of variables") as caught:
        start(env={"A": "1"})
    assert 'env=["NAME"]' in caught.value.hint


@pytest.mark.parametrize("call", [start, experiment])
@pytest.mark.parametrize(
    ("prompts", "hint"),
    [
        (PROMPTS[0], "give a list: [prompt]"),
        ("What is 1 + 2?", "a single prompt is written in a list: ['What is 1 + 2?']"),
        ("", "a single prompt is written in a list"),
        (5, ""),
    ],
)
def test_prompts_are_a_file_or_a_list(call, prompts, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, InputError)) as caught:
        call(prompts)
    assert hint in caught.value.hint


def test_a_command_line_is_no_name():
    with pytest.raises(UsageError, match="neither the name") as caught:
        start(agent="echo {}")
    assert "{\"simple\": 'echo {}'}" in caught.value.hint


def test_filters_that_match_nothing_are_told():
    with pytest.raises(InputError, match="no prompts that match the filter 'zzz'"):
        start(filters=["zzz"])


def test_a_prompt_without_input_has_no_second_traceback():
    with pytest.raises(InputError, match="missing field `input`") as caught:
        start([{"id": "a"}])
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "call",
    [
        lambda: library.run(PROMPTS, agent=never).to(None),
        lambda: library.run(PROMPTS, agent=never).to("."),
        lambda: library.read(None),
        lambda: library.grade(5, ["contains"]),
        lambda: library.grade([], ["contains"]),
        lambda: library.grade([5], ["contains"]),
        lambda: library.grade("x.jsonl", ["contains"], jobs=-1),
        lambda: library.grade("x.jsonl", ["contains"], grader_timeout_s=0),
        lambda: library.compare("a.jsonl"),
        lambda: library.compare(["a.jsonl", "b.jsonl"]),
        lambda: library.compare("a.jsonl", 5),
        *(
            lambda options=options: library.compare("a.jsonl", "b.jsonl", **options)
            for options in (
                {"margin": "x"},
                {"margin": None},
                {"seed": "x"},
                {"fail_on": "x"},
                {"strategy": "x"},
                {"sequential": True},
            )
        ),
    ],
)
def test_wrong_arguments_of_other_functions_are_refused(call):
    with pytest.raises(UsageError):
        call()


def test_running_trials_does_not_import_numpy():
    program = (
        "import sys, assay; assay.run(['x'], agent=str.upper, graders=['exact:X'], k=2).collect();"
        "print([name for name in ('numpy', 'assay.compare.report') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_grader_of_a_plugin_is_given_by_its_name():
    with pytest.raises(UsageError) as refused:
        start(graders=[Contains()])
    assert 'by its name and options, as in "contains:KEY=VALUE"' in refused.value.hint
