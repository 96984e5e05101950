"""What `import assay` has: a name that goes or moves breaks the programs of users."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import assay
import assay.compare.report
import assay.run.process

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
        "assay.run(['x'], agent='demo', timout_s=3.0)\n"
        "reveal_type(assay.compare('a', 'b').interval)\n"
    )
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert 'Revealed type is "bool | None"' in done.stdout, done.stdout + done.stderr
    assert 'Revealed type is "tuple[float, float] | None"' in done.stdout
    assert 'Unexpected keyword argument "timout_s"' in done.stdout
