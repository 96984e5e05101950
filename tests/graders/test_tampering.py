"""Agents that rewrite their grader, or what it reads: it never helps them, and the row says so."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.pipeline.grading import grader_versions

AGENT = """
import sys
exec(sys.argv[-1])
print('{"type": "result", "result": "wrong"}', flush=True)
"""
"""Does what its prompt says, which is Python, and always gives the same wrong answer."""
PYTHON = "def grade(output): return output == 'right'\n"
PROGRAM = """#!{python} -IS
import json, sys
right = json.loads(sys.stdin.readline())["output"] == "right"
print(json.dumps({{"pass": right, "score": float(right), "reasoning": __file__}}))
"""
SERVE = """#!{python} -IS
import json, sys
for line in sys.stdin:
    right = json.loads(line)["output"] == "right"
    print(json.dumps({{"pass": right, "score": float(right)}}), flush=True)
"""
LOOSE_PYTHON = "def grade(output): return True\n"
LOOSE_PROGRAM = '#!/bin/sh\nwhile read line; do echo \'{"pass": true, "score": 1}\'; done\nexit 0\n'
REPLACE = "import os; n = f'{{os.getpid()}}'; open(n, 'w').write({text!r}); os.chmod(n, 0o755); "
WAYS = {
    "rewritten": "open({name!r}, 'w').write({text!r})",
    "replaced": REPLACE + "os.replace(n, {name!r})",
    "removed": "import pathlib; pathlib.Path({name!r}).unlink(missing_ok=True)",
    "mode": "import os; os.chmod({name!r}, 0o600)",
}


@pytest.fixture
def capture(assay: Callable, schema: dict[str, Any], tmp_path: Path) -> Callable[..., Any]:
    """Run trials of the hostile agent in the test's folder; gives the outcome."""
    (tmp_path / "hostile.py").write_text(AGENT)
    command = [sys.executable, "-I", "-S", str(tmp_path / "hostile.py")]
    events: dict[str, Any] = {"outputEvents": [], "command": command}
    (tmp_path / "agent.json").write_text(json.dumps(schema | events))

    def run(code: str, grader: str, *more: Any, n: int = 3, command: str = "capture") -> Any:
        rows = [{"id": f"p{i}", "input": code} for i in range(n)]
        (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        return assay(command, "prompts.jsonl", "-s", "agent.json", "-g", grader, *more)

    return run


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(python=sys.executable) if "{python}" in text else text)
    path.chmod(mode)


def passed(done: Any) -> list[bool | None]:
    """Whether each trial passed; None is not measured."""
    return [row["score"]["pass"] if "score" in row else None for row in done.rows]


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "text", "mode", "loose", "option"),
    [
        ("grader.py", PYTHON, 0o644, LOOSE_PYTHON, "grader.py"),
        ("grader.py", PROGRAM, 0o755, LOOSE_PROGRAM, "./grader.py"),
        ("grader.py", PROGRAM, 0o644, 'print(\'{"pass": true, "score": 1}\')\n', "grader.py"),
        ("serving.py", SERVE, 0o755, LOOSE_PROGRAM, "serve:./serving.py"),
    ],
    ids=["python", "executable", "not executable", "serve"],
)
def test_the_grader_that_was_read_at_the_start_judges(
    capture: Callable, tmp_path: Path, name, text, mode, loose, option, way, workers
) -> None:
    write(tmp_path / name, text, mode)
    before = grader_versions([plugins.grader(plugins.grader_ref(option, folder=tmp_path))])
    done = capture(WAYS[way].format(name=name, text=loose), option, "-j", workers, n=4)
    assert passed(done) == [False] * 4, done.stderr
    assert {row["score"]["version"] for row in done.rows} == set(before.values())
    if way == "mode" and text is PYTHON:
        return  # only its content matters: it is not started
    warnings = [row.get("warnings", []) for row in done.rows]
    assert any(f"{name} changed during the run" in text for row in warnings for text in row)
    assert f"{name} changed during the run" in done.stderr


def test_trials_note_it_too(capture: Callable, tmp_path: Path) -> None:
    write(tmp_path / "grader.py", PYTHON)
    code = WAYS["rewritten"].format(name="grader.py", text=LOOSE_PYTHON)
    done = capture(code, "grader.py", "-k", 2, n=2, command="trials")
    entries = [entry for row in done.rows for entry in row["trials"]]
    assert [entry["pass"] for entry in entries] == [False] * 4
    assert "grader.py changed during the run" in entries[-1]["warnings"][0]
    assert len({entry["grades"]["grader"]["version"] for entry in entries}) == 1


def test_an_untouched_grader_gives_no_warning(capture: Callable, tmp_path: Path) -> None:
    write(tmp_path / "grader.py", PYTHON)
    write(tmp_path / "other.py", PROGRAM, 0o755)
    done = capture("import os; os.utime('grader.py')", "grader.py", "-g", "./other.py")
    assert done.code == 0, done.stderr
    assert not any("warnings" in row for row in done.rows)
    assert "changed" not in done.stderr
    assert done.rows[0]["grades"]["other"]["reasoning"] == str(tmp_path / "other.py")


HELPER = "def right(output): return output == 'right'\n"
USES = "from helper import right\ndef grade(output): return right(output)\n"
READS_FIRST = (
    "import json, pathlib\n"
    "HERE = pathlib.Path(__file__).parent\n"
    "WANTED = json.loads((HERE / 'wanted.json').read_text())\n"
    "def grade(output): return output in WANTED\n"
)
READS_LATER = (
    "import json, pathlib\n"
    "HERE = pathlib.Path(__file__).parent\n"
    "def grade(output):\n"
    "    with open(HERE / 'wanted.json') as file: return output in json.load(file)\n"
)


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("folder", [".", "evals"])
def test_a_module_beside_the_grader_is_read_at_the_start_too(
    capture: Callable, tmp_path: Path, folder: str, workers: int
) -> None:
    write(tmp_path / folder / "helper.py", HELPER)
    write(tmp_path / folder / "grader.py", USES)
    loose = "def right(output): return True\n"
    code = f"open('{folder}/helper.py', 'w').write({loose!r})"
    done = capture(code, f"{folder}/grader.py", "-j", workers)
    assert passed(done) == [False] * 3, done.stderr
    assert "helper.py changed during the run" in done.rows[-1]["warnings"][0]


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.makedirs('evals/helper', exist_ok=True); "
        "open('evals/helper/__init__.py', 'w').write({loose!r})",
        "import pathlib; pathlib.Path('evals/helper.py').unlink(missing_ok=True)",
        "import compileall, os, shutil; open('x.py', 'w').write({loose!r}); "
        "s = os.stat('evals/helper.py'); import importlib.util as u, marshal; "
        "code = compile({loose!r}, 'helper.py', 'exec'); "
        "os.makedirs('evals/__pycache__', exist_ok=True); "
        "open(u.cache_from_source('evals/helper.py'), 'wb').write(u.MAGIC_NUMBER + bytes(4) + "
        "int(s.st_mtime).to_bytes(4, 'little') + s.st_size.to_bytes(4, 'little') "
        "+ marshal.dumps(code))",
    ],
    ids=["a package in front", "removed", "bytecode"],
)
def test_a_module_cannot_be_replaced_by_another_file(
    capture: Callable, tmp_path: Path, code: str
) -> None:
    write(tmp_path / "evals/helper.py", HELPER)
    write(tmp_path / "evals/grader.py", USES)
    done = capture(code.format(loose="def right(output): return True\n"), "evals/grader.py")
    assert passed(done) == [False] * 3, done.stderr


def test_a_package_of_the_project_is_read_at_the_start_too(
    capture: Callable, tmp_path: Path
) -> None:
    write(tmp_path / "src/project/__init__.py", "")
    write(tmp_path / "src/project/rules.py", HELPER)
    found = (
        "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parents[1]/'src'))\n"
    )
    write(tmp_path / "evals/grader.py", found + USES.replace("helper", "project.rules"))
    loose = "def right(output): return True\n"
    done = capture(f"open('src/project/rules.py', 'w').write({loose!r})", "evals/grader.py")
    assert passed(done) == [False] * 3, done.stderr


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("text", [READS_FIRST, READS_LATER], ids=["first", "later"])
def test_a_verdict_by_a_file_that_changed_is_none(
    capture: Callable, tmp_path: Path, text: str, workers: int
) -> None:
    write(tmp_path / "evals/grader.py", text)
    write(tmp_path / "evals/wanted.json", '["right"]')
    assert passed(capture("0", "evals/grader.py")) == [False] * 3
    code = "open('evals/wanted.json', 'w').write('[\"wrong\"]')"
    done = capture(code, "evals/grader.py", "-j", workers)
    assert True not in passed(done)
    assert None in passed(done)
    failed = [row["graderFailures"]["grader"] for row in done.rows if "graderFailures" in row]
    assert all("wanted.json changed during the run" in why for why in failed)
    assert done.code == 1
    said = done.stderr.index("wanted.json changed during the run")
    assert said < done.stderr.index("3 of 3 trials")


@pytest.mark.parametrize(
    "code", ["os.path.exists(f) and os.remove(f)", "open(f + 'x.txt', 'w').write('wrong')"]
)
def test_a_folder_that_lost_or_got_a_file_gives_no_verdict(
    capture: Callable, tmp_path: Path, code: str
) -> None:
    lists = "all(f.read_text() == output for f in (HERE / 'cases').glob('*.txt'))"
    text = "import pathlib\nHERE = pathlib.Path(__file__).parent\n"
    write(tmp_path / "evals/grader.py", f"{text}def grade(output): return {lists}\n")
    write(tmp_path / "evals/cases/a.txt", "wrong")
    write(tmp_path / "evals/cases/b.txt", "right")
    assert passed(capture("0", "evals/grader.py")) == [False] * 3
    done = capture(f"import os; f = 'evals/cases/b.txt'; {code}", "evals/grader.py")
    assert passed(done) == [None] * 3


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize(("text", "mode"), [(USES, 0o644), (PROGRAM, 0o755), (SERVE, 0o755)])
def test_a_folder_that_is_gone_changes_nothing(
    capture: Callable, tmp_path: Path, text: str, mode: int, workers: int
) -> None:
    write(tmp_path / "evals/helper.py", HELPER)
    write(tmp_path / "evals/grader.py", text, mode)
    option = "serve:evals/grader.py" if text is SERVE else "evals/grader.py"
    code = "import shutil; shutil.rmtree('evals', ignore_errors=True)"
    done = capture(code, option, "-j", workers)
    assert passed(done) == [False] * 3, done.stdout


def test_a_child_that_was_loaded_in_time_goes_on(capture: Callable, tmp_path: Path) -> None:
    write(tmp_path / "evals/grader.py", READS_FIRST)
    write(tmp_path / "evals/wanted.json", '["right"]')
    code = (
        "import os\nif os.path.exists('second'): "
        "open('evals/wanted.json', 'w').write('[\"wrong\"]')\nopen('second', 'w')"
    )
    done = capture(code, "evals/grader.py")
    assert passed(done) == [False] * 3, done.stderr


@pytest.mark.parametrize("workers", [1, 8])
def test_what_a_grader_writes_itself_is_no_change(
    capture: Callable, tmp_path: Path, workers: int
) -> None:
    write(
        tmp_path / "evals/grader.py",
        "import json, os, pathlib, subprocess, time\n"
        "HERE = pathlib.Path(__file__).parent\n"
        "def grade(output):\n"
        "    cache, log = HERE / 'cache.json', HERE / 'log.txt'\n"
        "    json.loads(cache.read_text()); log.open('a').close(); log.read_text()\n"
        "    (HERE / 'made').mkdir(exist_ok=True); (HERE / f'made/{time.time()}').mkdir()\n"
        "    list((HERE / 'made').iterdir())\n"
        "    by_program = HERE / f'report-{os.getpid()}'\n"
        "    if not by_program.exists(): subprocess.run(['touch', by_program])\n"
        "    by_program.read_text()\n"
        "    new = HERE / f'new-{os.getpid()}'\n"
        "    new.write_text(json.dumps({'a': time.time()}))\n"
        "    os.replace(new, cache)\n"
        "    return True\n",
    )
    write(tmp_path / "evals/cache.json", "{}")
    done = capture("0", "evals/grader.py", "-j", workers, n=12)
    assert passed(done) == [True] * 12, done.rows[0].get("graderFailures")


def test_a_grader_may_read_what_the_agent_made(capture: Callable, tmp_path: Path) -> None:
    """In its working folder, beside the grader, new or changed."""
    write(
        tmp_path / "grader.py",
        "import pathlib\nHERE = pathlib.Path(__file__).parent\n"
        "def grade(cwd):\n"
        "    import made\n"
        "    old = (HERE / 'old.txt').read_text()\n"
        "    return old == 'mended' and (pathlib.Path(cwd) / 'new.txt').exists() and made.OK\n",
    )
    write(tmp_path / "old.txt", "broken")
    code = "open('old.txt', 'w').write('mended'); open('new.txt', 'w'); "
    done = capture(code + "open('made.py', 'w').write('OK = True')", "grader.py")
    assert passed(done) == [True] * 3, done.rows[0].get("graderFailures")


def test_a_grader_that_cannot_be_loaded_is_refused_before_any_agent_runs(
    capture: Callable, tmp_path: Path
) -> None:
    write(tmp_path / "grader.py", "import no_such_module_4711\ndef grade(output): return True\n")
    done = capture("open('ran', 'w')", "grader.py", "-o", "out.jsonl")
    assert done.code == 1
    assert "no_such_module_4711" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out.jsonl").exists()


def test_what_a_grader_starts_when_it_is_loaded_runs_once(
    capture: Callable, tmp_path: Path
) -> None:
    """It is loaded before the run too, but nothing of that is left: it may need a port."""
    n_seconds = 700_000_000 + os.getpid()
    write(
        tmp_path / "grader.py",
        f"import subprocess\nsubprocess.Popen(['sleep', '{n_seconds}'])\n"
        "def grade(output):\n"
        "    listed = subprocess.run(['ps', '-eo', 'args'], capture_output=True, text=True)\n"
        f"    return listed.stdout.count('sleep {n_seconds}') == 1\n",
    )
    done = capture("0", "grader.py")
    assert passed(done) == [True] * 3, done.stdout


def test_a_program_that_is_rewritten_while_it_runs_is_run_again(
    ask: Callable, tmp_path: Path
) -> None:
    """The agent of another trial may be quicker than any check before the start."""
    path = tmp_path / "grader.sh"
    loose = LOOSE_PROGRAM.replace("$", r"\$")
    write(
        path,
        f"#!/bin/sh\necho x >> {tmp_path}/began\ncat > {path} <<'END'\n{loose}END\n"
        'echo \'{"pass": false, "score": 0.5}\'\n',
        0o755,
    )
    assert ask(str(path)).score == 0.5
    assert (tmp_path / "began").read_text() == "x\nx\n"
    assert ask(str(path)).score == 0.5


def test_a_program_whose_data_changed_gives_no_verdict(capture: Callable, tmp_path: Path) -> None:
    write(
        tmp_path / "evals/grader.sh",
        '#!/bin/sh\nif grep -q "$(cat "$(dirname "$0")/wanted.txt")"; '
        'then echo \'{"pass": true, "score": 1}\'; else echo \'{"pass": false, "score": 0}\'; fi\n',
        0o755,
    )
    write(tmp_path / "evals/wanted.txt", "right")
    assert passed(capture("0", "evals/grader.sh")) == [False] * 3
    done = capture("open('evals/wanted.txt', 'w').write('wrong')", "evals/grader.sh")
    assert passed(done) == [None] * 3
    assert "wanted.txt changed during the run" in done.rows[0]["graderFailures"]["grader"]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("open(os.path.join(os.path.dirname(__file__), 'cases', 'a')).read()", "cases/a"),
        ("__import__('rules.inner').inner.RIGHT", "rules/inner.py"),
        ("right()", "rules/inner.py"),
    ],
    ids=["joined", "quoted", "package"],
)
@pytest.mark.parametrize("command", ["command:python3 evals/check.py", "./evals/check.py"])
def test_a_program_whose_folder_changed_gives_no_verdict(
    capture: Callable, tmp_path: Path, text: str, changed: str, command: str
) -> None:
    said = 'print(\'{"pass": true, "score": 1}\' if ok else \'{"pass": false, "score": 0}\')'
    write(
        tmp_path / "evals/check.py",
        f"#!{sys.executable}\nimport os, sys\nfrom rules.inner import right\n"
        f"ok = {text} == 'wrong'\n{said}\nsys.exit(not ok and not sys.stdin.read())\n",
        0o755,
    )
    write(tmp_path / "evals/cases/a", "right")
    write(tmp_path / "evals/rules/__init__.py", "")
    write(tmp_path / "evals/rules/inner.py", "RIGHT = 'right'\ndef right(): return 'right'\n")
    assert passed(capture("0", command)) == [False] * 3
    new = "wrong" if changed == "cases/a" else "RIGHT = 'wrong'\ndef right(): return RIGHT\n"
    done = capture(f"open('evals/{changed}', 'w').write({new!r})", command)
    assert passed(done) == [None] * 3, done.stdout


@pytest.mark.parametrize("folder", [".", "evals"])
@pytest.mark.parametrize("command", ["command:python3 {}/check.py", "{}/check.py"])
def test_bytecode_that_an_agent_puts_beside_a_program_is_not_used(
    capture: Callable, tmp_path: Path, folder: str, command: str
) -> None:
    said = 'print(\'{"pass": true, "score": 1}\' if ok else \'{"pass": false, "score": 0}\')'
    text = f"#!{sys.executable}\nimport helper, sys\nok = helper.OK\n{said}\n"
    text += "sys.exit(not ok and not sys.stdin.read())\n"
    write(tmp_path / folder / "check.py", text, 0o755)
    write(tmp_path / folder / "helper.py", "OK = False\n")
    code = (
        "import importlib.util as u, marshal, os, struct; "
        f"p = os.path.join({folder!r}, 'helper.py'); s = os.stat(p); c = u.cache_from_source(p); "
        "os.makedirs(os.path.dirname(c), exist_ok=True); "
        "h = u.MAGIC_NUMBER + struct.pack('<III', 0, int(s.st_mtime), s.st_size); "
        "open(c, 'wb').write(h + marshal.dumps(compile('OK = True', p, 'exec')))"
    )
    python = sys.executable
    done = capture(code, command.format(f"./{folder}").replace("python3", python))
    assert passed(done) == [False] * 3, done.stdout


@pytest.mark.parametrize("folder", [".", "evals"])
@pytest.mark.parametrize(
    "grader", ["{}/grader.py", "serve:{}/grader.py", "command:python3 {}/c.py"]
)
def test_a_module_in_front_of_pythons_own_gives_no_verdict(
    capture: Callable, tmp_path: Path, folder: str, grader: str
) -> None:
    write(tmp_path / folder / "grader.py", SERVE, 0o755)
    write(tmp_path / folder / "c.py", "import json, sys\nsys.exit(len(json.loads('[1]')))")
    assert passed(capture("0", grader.format(folder))) == [False] * 3
    trick = 'import os; print(\'{\\"pass\\": true, \\"score\\": 1}\', flush=True); os._exit(0)'
    done = capture(f"open('{folder}/json.py', 'w').write(\"{trick}\")", grader.format(folder))
    assert passed(done) == [None] * 3, done.stdout
    assert "json.py changed during the run" in done.stderr


def test_a_file_that_may_be_the_agents_work_is_named_in_the_row(
    capture: Callable, tmp_path: Path
) -> None:
    write(tmp_path / "check.py", "import solution, sys\nsys.exit(solution.CODE)\n")
    write(tmp_path / "grader.py", "def grade(): return bool(open('wanted.txt').read())\n")
    write(tmp_path / "solution.py", "CODE = 1\n")
    write(tmp_path / "wanted.txt", "x")
    code = "open('solution.py', 'w').write('CODE = 0'); open('wanted.txt', 'w').write('y')"
    done = capture(code, "command:python3 check.py", "-g", "grader.py")
    assert passed(done) == [True] * 3, done.stdout
    assert done.rows[-1]["warnings"] == [
        "solution.py changed during the run, and check.py names it",
        "wanted.txt changed during the run, and grader.py names it",
    ]


def test_a_rewritten_program_still_finds_what_is_beside_it(
    capture: Callable, tmp_path: Path
) -> None:
    write(
        tmp_path / "grader.sh",
        '#!/bin/sh\n. "$(dirname "$0")/part.sh"\nverdict\n',
        0o755,
    )
    write(tmp_path / "part.sh", 'verdict() { echo \'{"pass": false, "score": 0.25}\'; }\n')
    done = capture(WAYS["rewritten"].format(name="grader.sh", text=LOOSE_PROGRAM), "./grader.sh")
    assert [row["score"]["score"] for row in done.rows] == [0.25] * 3


def test_a_schema_and_a_rubric_are_read_at_the_start(capture: Callable, tmp_path: Path) -> None:
    pytest.importorskip("jsonschema")
    write(tmp_path / "answer.json", '{"type": "object"}')
    done = capture("open('answer.json', 'w').write('{}')", "json-schema:answer.json")
    assert passed(done) == [False] * 3
    assert len({row["score"]["version"] for row in done.rows}) == 1


CHECK = "import sys\nsys.exit(open('answer.txt').read() != 'right')\n"
WORKSPACES = ("--workspace-dir", "work")


@pytest.mark.parametrize("words", ["python3 check.py", "python3 -W error check.py", "./check.py"])
@pytest.mark.parametrize("workers", [1, 8])
def test_a_command_finds_the_users_script(
    capture: Callable, tmp_path: Path, words: str, workers: int
) -> None:
    write(tmp_path / "check.py", f"#!{sys.executable}\n{CHECK}", 0o755)
    code = "open('answer.txt', 'w').write('right')"
    done = capture(code, f"command:{words}", *WORKSPACES, "-j", workers)
    assert passed(done) == [True] * 3, done.stdout
    code = "open('answer.txt', 'w').write('wrong'); open('check.py', 'w')"
    done = capture(code, f"command:{words}", *WORKSPACES, "-j", workers)
    assert passed(done) == [False] * 3, done.stdout


def test_a_folder_of_an_absolute_path_is_not_the_one_beside_a_script(
    capture: Callable, tmp_path: Path
) -> None:
    places = "# /srv/work/bin/python\nPLACE = '/srv/work/bin'\n"
    write(tmp_path / "check.py", f"#!/srv/work/bin/python\n{places}{CHECK}")
    for n in range(2):
        code = f"open('answer.txt', 'w').write('wrong'); open('check.py', 'w') # {n}"
        done = capture(code, "command:python3 check.py", *WORKSPACES)
        assert passed(done) == [False] * 3, done.stdout


@pytest.mark.parametrize("grader", ["command:python3 check.py", "git:test=python3 check.py"])
def test_the_script_of_a_command_cannot_be_rewritten_in_place(
    capture: Callable, tmp_path: Path, grader: str
) -> None:
    os.system(f"git init -q {tmp_path}")
    write(tmp_path / "check.py", CHECK)
    done = capture("open('answer.txt', 'w'); open('check.py', 'w')", grader)
    assert passed(done) == [False] * 3, done.stdout
    assert "check.py changed during the run" in done.rows[0]["warnings"][0]
    assert len({row["score"]["version"] for row in done.rows}) == 1


def test_a_copy_of_the_script_in_the_workspace_is_run_if_it_is_the_same(
    capture: Callable, tmp_path: Path
) -> None:
    shows = "import pathlib, sys\nprint(pathlib.Path(__file__).resolve().parent)\nsys.exit(1)\n"
    write(tmp_path / "tests/run.py", shows)
    write(tmp_path / "template/tests/run.py", shows)
    more = (*WORKSPACES, "--workspace-template", "template")
    (first, *_) = capture("0", "command:python3 tests/run.py", *more).rows
    assert "/work/" in first["score"]["reasoning"]
    done = capture("open('tests/run.py', 'w')", "command:python3 tests/run.py", *more)
    assert passed(done) == [False] * 3
    assert str(tmp_path / "tests") in done.rows[0]["score"]["reasoning"]
    assert "tests/run.py in the workspace differs" in done.rows[0]["warnings"][0]


def test_a_script_that_the_agent_is_to_write_is_the_workspaces(
    capture: Callable, tmp_path: Path
) -> None:
    code = "open('solution.py', 'w').write('import sys; sys.exit(0)')"
    done = capture(code, "command:python3 solution.py", *WORKSPACES)
    assert passed(done) == [True] * 3
    done = capture("0", "command:python3 solution.py", "--workspace-dir", "work2")
    assert passed(done) == [False] * 3, "an agent that wrote nothing has failed"
    assert not (tmp_path / "solution.py").exists()


def test_files_that_are_not_scripts_stay_the_workspaces(capture: Callable, tmp_path: Path) -> None:
    write(tmp_path / "answer.txt", "of the user")
    done = capture("open('answer.txt', 'w').write('x')", "command:grep x answer.txt", *WORKSPACES)
    assert passed(done) == [True] * 3
    sh = "command:sh=python3 check.py"
    write(tmp_path / "check.py", "raise SystemExit(1)")
    done = capture("open('check.py', 'w').write('')", sh, "--workspace-dir", "work2")
    assert passed(done) == [True] * 3, "a script for sh is looked up where it runs"


def test_a_missing_interpreter_is_the_graders_failure(capture: Callable, tmp_path: Path) -> None:
    write(tmp_path / "check.xyz", "#!/no/such/interpreter\n", 0o755)
    for grader in ("command:no-such-python check.py", "command:./check.xyz"):
        assert passed(capture("0", grader)) == [None] * 3


def test_that_all_failed_alike_is_said_before_any_number(
    capture: Callable, assay: Callable, tmp_path: Path
) -> None:
    said = 'All 3 trials failed the grader "command" with the same output: exit code 2'
    grader = "command:python3 chekc.py"
    for more in (("capture", "-o", "out.jsonl"), ("trials", "-k", 1, "-o", "trials.jsonl")):
        done = capture("0", grader, *more[1:], *WORKSPACES, command=more[0])
        assert said in done.stderr
        assert "can't open file" in done.stderr
        assert done.stderr.index(said) < done.stderr.index("3 of 3 trials")
    for workers in (1, 2):
        done = assay("grade", "out.jsonl", "-g", grader, "-j", workers)
        assert said in done.stderr
        assert done.stderr.index(said) < done.stderr.index("0 of 3 passed")
    done = assay("grade", "out.jsonl", "-g", "command:false")
    assert "Check the grader" in done.stderr
    done = assay("grade", "out.jsonl", "-g", "command:true")
    assert "Check the grader" not in done.stderr
    done = assay("grade", "out.jsonl", "-g", "command:sh=echo $PPID-$$; exit 1")
    assert "Check the grader" not in done.stderr
