"""What `import assay` has: a name that goes or moves breaks the programs of users."""

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import assay
import assay.compare.report
import assay.run.process
from assay.library import reading
from assay.records import capture
from assay.records.trial import Trial, for_reading

NAMES = """
    AssayError AssayWarning AsyncRun ExperimentVerdict Grade PairVerdict Progress Run Trial Trials
    Verdict
    ab arun compare grade read run
"""


def test_the_public_names_are_these():
    assert sorted(assay.__all__) == sorted(NAMES.split())


def test_a_room_of_the_same_name_does_not_hide_a_function():
    assert inspect.isfunction(assay.run)
    assert inspect.isfunction(assay.compare)
    assert inspect.ismodule(sys.modules["assay.run"])


def test_dir_lists_the_public_names():
    assert set(dir(assay)) == {*NAMES.split(), "__version__"}


@pytest.mark.parametrize("name", NAMES.split())
def test_every_name_is_documented(name):
    value = getattr(assay, name)
    assert value.__doc__
    assert name in pydoc.render_doc(value)


def test_the_stub_for_type_checkers_has_the_same_names():
    stub = Path(assay.__file__).with_suffix(".pyi").read_text()
    names = {line.rpartition(" ")[2] for line in stub.splitlines() if " as " in line}
    assert names == set(NAMES.split())
    assert Path(assay.__file__).with_name("py.typed").is_file()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'rum'"):
        _ = assay.rum


def test_a_public_name_cannot_be_replaced():
    with pytest.raises(AttributeError, match=r"replace it in assay\.library"):
        assay.read = None


def test_import_loads_nothing_else():
    program = "import sys; before = {*sys.modules}; import assay; print({*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "{'assay'}"


def test_type_checkers_know_the_functions(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import assay\n"
        "for trial in assay.run(['x'], agent='demo', timeout_s=3.0):\n"
        "    reveal_type(trial.passed)\n"
        "    reveal_type((trial.hint, trial.usage.cost_usd, trial.failure, trial.errors))\n"
        "    reveal_type([grade.reasoning for grade in trial.grades.values()])\n"
        "    reveal_type([step.parent for step in trial.steps])\n"
        "    model: str | None = trial.agent.model if trial.agent is not None else None\n"
        "def judge(trial: assay.Trial) -> assay.Grade:\n"
        "    return assay.Grade(pass_=trial.hint is not None, score=1.0)\n"
        "assay.grade([trial for trial in assay.read('a')], [judge])\n"
        "assay.run(['x'], agent='demo', timout_s=3.0)\n"
        "reveal_type(assay.compare('a', 'b').interval)\n"
    )
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert 'Revealed type is "bool | None"' in done.stdout, done.stdout + done.stderr
    assert 'Revealed type is "tuple[float, float] | None"' in done.stdout
    assert 'Unexpected keyword argument "timout_s"' in done.stdout
    shown = re.findall('Revealed type is "(.*)"', done.stdout)
    assert (
        shown[1]
        == "tuple[str | None, float | None, assay.records.capture.Failure | None, list[str]]"
    )
    assert shown[2:4] == ["list[str | None]"] * 2
    assert "Found 1 error" in done.stdout


def types_of_fields(kind: type, stub: dict[str, Any] | None = None) -> dict[str, str]:
    """As text, without the names of modules."""
    return {
        name: re.sub(r"\b(stub|assay[.\w]*|msgspec)\.", "", inspect.formatannotation(hint))
        for name, hint in get_type_hints(kind, stub).items()
    }


def test_types_of_a_trial_are_those_of_its_row_with_none_for_what_is_unknown():
    stub: dict[str, Any] = {"__name__": "stub"}
    exec(Path(reading.__file__).with_suffix(".pyi").read_text(), stub)
    timing = capture.Timing(start=0, end=0)
    made = Trial(id="", input="", output="", trajectory=[], metadata={}, timing=timing)
    read = for_reading(made)
    classes = {
        name: kind
        for name, kind in stub.items()
        if isinstance(kind, type) and kind.__module__ == "stub"
    }
    for name, kind in classes.items():
        row = types_of_fields(Trial if name == "Trial" else getattr(capture, name))
        expected = {field: text.replace("UnsetType", "None") for field, text in row.items()}
        for field in expected if name == "Trial" else ():
            if getattr(read, field) is not None:
                expected[field] = expected[field].removesuffix(" | None")
        assert types_of_fields(kind, stub) == expected
    used = {*re.findall(r"\w+", str(types_of_fields(Trial)))}
    for name in used & {*vars(capture)}:
        kind = getattr(capture, name)
        assert name in classes or "UnsetType" not in str(getattr(kind, "__annotations__", ""))
