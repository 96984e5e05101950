"""Errors and warnings of the library: they name arguments of Python, and no options of commands."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import assay as library
from assay.errors import AssayError, InputError
from assay.library import ab, run, wording
from assay.library.wording import OF_EXPERIMENTS, in_python

OPTION = re.compile(r"(?<![\w'\"\[-])(--[a-z][a-z-]+|-[a-zA-Z])(?![\w-])")
COMMANDS_ONLY = {
    **dict.fromkeys(("--executor", "--address", "--head", "--num-cpus", "--port"), "Ray"),
    **dict.fromkeys(("--allocate", "--against", "--accept-changes"), "the gate of `assay trials`"),
    **dict.fromkeys(("--replace", "--to"), "assay baseline"),
    **dict.fromkeys(
        ("--judge", "--export", "--trial", "--doubtful", "--difference", "--compare"),
        "other commands",
    ),
    **dict.fromkeys(("--record", "--replay", "--record-misses", "--fault"), "tapes"),
    **dict.fromkeys(("--prompts", "--append"), "there is no such argument"),
    **dict.fromkeys(("--skip-unsupported", "--redact"), "benchmarks, evidence"),
    **dict.fromkeys(("-p", "-v", "-d", "-R", "-e", "-f", "-q", "-t", "-aq"), "programs of others"),
    "--format": "git",
}
ROOMS = (
    "pipeline run graders adapters benchmarks executors compare records library plugins.py "
    "functions.py plugin.py"
)


def texts():
    """Yield every text of more than a word in the rooms that the library uses, and its place."""
    root = Path(wording.__file__).parents[1]
    for room in ROOMS.split():
        for file in [root / room] if room.endswith(".py") else sorted((root / room).rglob("*.py")):
            tree = ast.parse(file.read_text())
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant)]
            for node in constants:
                if isinstance(node.value, str) and " " in node.value and id(node) not in docs:
                    yield f"{file.relative_to(root)}:{node.lineno}", node.value


def test_no_message_keeps_an_option_of_a_command():
    found = list(texts())
    assert len(found) > 1000
    left = []
    for place, text in found:
        outside = " ".join(in_python(text).split("`")[::2])
        outside = re.sub(r"(npm install|code of) -\w", "", outside)
        options = {option for option in OPTION.findall(outside) if option not in COMMANDS_ONLY}
        left += [f"{place}: say in library/wording.py what stands for {options}"] if options else []
    assert left == []


def test_what_stands_for_an_option_is_an_argument():
    known = {*run.RunOptions.__annotations__, *ab.AbOptions.__annotations__}
    for function in (library.run, library.ab, library.compare):
        known |= {*inspect.signature(function).parameters}
    for kind, name in wording._ARGUMENTS.values():
        assert name in known or kind in ("agent", "words")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for example: -g contains:Paris", 'for example: graders=["contains:Paris"]'),
        (r"for example: -g 'regex:^\d+$'", r'for example: graders=["regex:^\d+$"]'),
        ("as -g judge:agent=a,rubric=b.md, or", 'as graders=["judge:agent=a,rubric=b.md"], or'),
        ("npm install -g @openai/codex", "npm install -g @openai/codex"),
        ("`ulimit -n`, or use a smaller -j", "`ulimit -n`, or use a smaller jobs"),
        ("which --sandbox=no-network needs", 'which sandbox="no-network" needs'),
        ("it needs --sandbox or --container IMAGE", 'it needs sandbox or container="IMAGE"'),
        ("as in --simple 'PROGRAM {}'", 'as in agent={"simple": "PROGRAM {}"}'),
        ("use --shell, with the prompt", 'use agent={"shell": …}, with the prompt'),
        ("resume with -k 5 or more, or use -o", "resume with k=5 or more, or use .to(FILE)"),
        ("--isolate and --memory work", "isolate=True and memory_bytes work"),
        ("the agent said: unknown option '--model'", "the agent said: unknown option '--model'"),
        ("fix the line, or use --overwrite", "fix the line, or use .to(FILE, overwrite=True)"),
    ],
)
def test_options_become_arguments(text, expected):
    assert in_python(text) == expected


def test_an_experiment_has_no_file():
    text = "choose another folder with -o, and continue with --resume"
    expected = "choose another folder with output, and continue with the same call"
    assert in_python(text, OF_EXPERIMENTS) == expected


def test_errors_name_the_arguments_of_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "out.jsonl"
    library.run(["x"], agent=str.upper).to(output).collect()
    with pytest.raises(AssayError) as caught:
        library.run(["y"], agent=str.upper).to(output).collect()
    assert caught.value.hint.endswith("or use another .to(FILE)")
    with pytest.raises(AssayError, match="does not support model"):
        library.run(["x"], agent={"simple": "echo {}"}, model="x").collect()
    with pytest.raises(AssayError) as caught:
        library.run(["x"], agent={"simple": "echo"}).collect()
    assert caught.value.hint.startswith('write {} where the prompt belongs, as in agent={"simple":')
    assert caught.value.__notes__ == [f"  {caught.value.hint}"]
    with pytest.raises(InputError) as caught:
        library.run(["x"], agent=str.upper, graders=["regex:("]).collect()
    assert "-g" not in f"{caught.value}{caught.value.hint}"
    with pytest.raises(InputError) as caught:
        library.run(["x"], agent="claude", mcp="gone.json").collect()
    assert str(caught.value).startswith("gone.json: No such file")
    assert caught.value.hint == "check the path that mcp names"
    with pytest.raises(InputError) as caught:
        library.ab(["x"], agent="demo", treatment={"skill": "gone"}, graders=["contains:x"])
    assert str(caught.value).startswith("the experiment: arm gone: gone is not a skill")
    treatment = {"agent": "demo"}
    with pytest.raises(AssayError) as caught:
        library.ab(["x"], agent={"simple": "echo {}"}, treatment=treatment, model="x", k=1)
    assert "--" not in f"{caught.value}{caught.value.hint}"
