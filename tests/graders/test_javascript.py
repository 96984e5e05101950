"""Graders and comparisons in TypeScript and JavaScript, by bun and by Node.js."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROWS = [
    {"id": "a", "input": "i", "output": "It is Paris.", "hint": "paris"},
    {"id": "b", "input": "i", "output": "no idea", "hint": "paris"},
]


def seed_example(start: str) -> str:
    """Return the module of the seed document that contains this; it is not copied here."""
    places = [folder / "shared" / "seeds" for folder in Path(__file__).parents]
    seed = next((seed for place in places for seed in place.glob("002_*.txt")), None)
    if seed is None:
        pytest.skip("the seed document is not here: put it beside the checkout, at ../shared/seeds")
    blocks = re.findall(r"```typescript\n(.*?)```", seed.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if start in block and "export const grade" in block]
    return found


@pytest.fixture(params=["bun", "node"])
def runtime(request, bun, new_node) -> dict[str, str]:
    """An environment in which one of the two runtimes is found, and not the other."""
    return only(request.param, bun if request.param == "bun" else new_node)


def only(name: str, folder: Path) -> dict[str, str]:
    """PATH with one runtime and the usual programs, without another one."""
    usual = Path(os.environ["PYTEST_TMP"]) / f"bin-{name}"
    if not usual.exists():
        part = usual.with_name(f"{usual.name}-{os.getpid()}-{time.monotonic_ns()}")
        part.mkdir(parents=True)
        for place in ("/usr/bin", "/bin", "/usr/local/bin"):
            for file in Path(place).iterdir():
                link = part / file.name
                if file.name not in ("node", "bun", "nodejs") and not link.is_symlink():
                    link.symlink_to(file)
        part.rename(usual) if not usual.exists() else shutil.rmtree(part)
    return {"PATH": f"{folder}:{usual}"}


@pytest.fixture(autouse=True)
def links(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path_factory.getbasetemp()))


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def module(tmp_path):
    def write(text: str, name: str = "grader.ts") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def passes(done) -> list[bool]:
    return [row["score"]["pass"] for row in done.rows]


def test_the_seeds_grader_runs_unchanged(assay, rows, module, runtime) -> None:
    module(seed_example("// my-grader.ts"), "my-grader.ts")
    done = assay("grade", rows, "--grader", "./my-grader.ts", env=runtime)
    assert done.code == 0, done.stderr
    assert passes(done) == [True, False]
    assert done.rows[1]["score"]["reasoning"] == "Missing hint content"
    assert done.rows[0]["grades"].keys() == {"my-grader"}


def test_the_seeds_git_grader_runs_unchanged(assay, module, tmp_path, bun) -> None:
    module(seed_example("// git-grader.ts"), "git-grader.ts")
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / "a.test.ts").write_text(
        "import { expect, test } from 'bun:test'\ntest('one', () => expect(1).toBe(1))\n"
    )
    row = {"id": "a", "input": "i", "output": "done", "cwd": str(work)}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(ROWS[0]) + "\n")
    done = assay("grade", "r.jsonl", "-g", "./git-grader.ts", env=only("bun", bun))
    assert done.code == 0, done.stderr
    assert passes(done) == [True, False]
    outcome = done.rows[0]["score"]["outcome"]
    assert outcome["filesCreated"] == ["a.test.ts"]
    assert outcome["testsPassed"] is True
    assert done.rows[1]["score"]["reasoning"] == "No cwd"
    assert "1 pass" in done.stderr  # what `bun test` prints cannot get between the answers


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "g.ts",
            "export const grade = ({ output }: { output: string }) => ({ pass: P, score: 1 })",
        ),
        ("g.mts", "export async function grade({ output }) { return { pass: P, score: 1 } }"),
        ("g.js", "export const grade = async ({ output }) => ({ pass: P, score: 1 })"),
        ("g.mjs", "export default ({ output }) => ({ pass: P, score: 1 })"),
        ("g.cjs", "exports.grade = ({ output }) => ({ pass: P, score: 1 })"),
        ("g2.cjs", "module.exports = ({ output }) => ({ pass: P, score: 1 })"),
        ("g3.js", "module.exports = { grade: ({ output }) => P }"),
        ("g4.mjs", "export default { grade: ({ output }) => ({ pass: P, score: 1 }) }"),
    ],
)
def test_all_kinds_of_modules_and_exports(assay, rows, module, runtime, name, text) -> None:
    module(text.replace("P", "output.includes('Paris')"), name)
    done = assay("grade", rows, "-g", name, env=runtime)
    assert done.code == 0, done.stderr
    assert passes(done) == [True, False]


def test_the_function_receives_the_seeds_fields(assay, module, runtime, tmp_path) -> None:
    full = {"metadata": {"category": "x"}, "trajectory": [{"type": "message", "content": "m"}]}
    row = {**ROWS[0], **full, "cwd": str(tmp_path), "reference": "not in the seed"}
    turns = {"id": "b", "input": ["one", "two"], "output": "o"}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(turns) + "\n")
    module(
        "export const grade = (given) => ({ pass: true, score: 0.5, reasoning: 'r', "
        "outcome: { given, arguments: Object.keys(given) } })"
    )
    done = assay("grade", "r.jsonl", "-g", "./grader.ts", env=runtime)
    first, second = (row["score"]["outcome"] for row in done.rows)
    assert first["arguments"] == ["input", "output", "hint", "trajectory", "metadata", "cwd"]
    assert first["given"] == {k: row[k] for k in first["arguments"]}
    assert second["given"]["input"] == ["one", "two"]
    assert second["arguments"] == ["input", "output"]


WRONG = {
    "throws": ("throw new TypeError('oops')", r"TypeError: oops \(grader.ts:1:\d+\)"),
    "throws a text": ("throw 'oops'", "Grader threw oops"),
    "rejects": ("return Promise.reject(new Error('late'))", "Error: late"),
    "throws later": (
        "setTimeout(() => { throw new Error('tick') }, 1); return new Promise(() => {})",
        "Error: tick",
    ),
    "a text": ("return 'yes'", "Invalid grader result: 'yes'; return {"),
    "nothing": ("", "returned nothing"),
    "score 7": ("return { pass: true, score: 7 }", r"<= 1.0 - at `\$.score`"),
    "NaN": ("return { pass: true, score: NaN }", r"got `null` - at `\$.score`"),
    "no pass": ("return { score: 1 }", "missing required field `pass`"),
    "no JSON": ("return { pass: true, score: 10n }", "cannot be written as JSON"),
    "exit": ("process.exit(0)", r"called process.exit\(0\)"),
    "loop": ("while (true) {}", "gave no answer in 2 s"),
    "abort": ("process.kill(process.pid, 'SIGKILL')", "code 137 and gave no answer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_broken_grader_leaves_its_row_ungraded_and_judges_the_next(
    assay, rows, module, runtime, case
) -> None:
    body, said = WRONG[case]
    ok = "return { pass: true, score: 1 }"
    module(
        f"export const grade = ({{ output }}) => {{ if (output == 'no idea') {ok}; "
        f"console.log('noise'); {body} }}"
    )
    # Two seconds only where they pass: a busy machine may need more to start a runtime again.
    limit = 2 if case == "loop" else 60
    done = assay("grade", rows, "-g", "./grader.ts", "--grader-timeout", limit, env=runtime)
    assert done.code == 1
    broken, judged = done.rows
    assert re.search(said, broken["graderFailures"]["grader"])
    assert "score" not in broken
    assert judged["score"]["pass"] is True
    assert "Traceback" not in done.stderr


def test_an_error_after_the_verdict_is_named(assay, rows, module, runtime) -> None:
    module(
        "export const grade = async ({ output }) => { if (output == 'no idea') "
        "await new Promise((done) => setTimeout(done, 300)); "
        "setTimeout(() => { throw new Error('late') }, 0); return { pass: true, score: 1 } }"
    )
    rows.write_text(rows.read_text() * 4)
    done = assay("grade", rows, "-g", "./grader.ts", env=runtime)
    failures = [row["graderFailures"]["grader"] for row in done.rows if "graderFailures" in row]
    assert all("late" in why for why in failures), failures
    assert "late" in done.stderr


NOT_LOADED = {
    "syntax": ("export const grade = () => {\n  return foo bar\n", r"grader.ts:2"),
    "no export": ("export const score = 1", "exports no function `grade`, only: score"),
    "nothing": ("const grade = 1", "exports no function `grade`, only: nothing"),
    "no function": ("export const grade = 1", "exports no function `grade`, only: grade"),
    "throws": ("throw new Error('at load'); export const grade = () => 1", "Error: at load"),
    "exits": ("process.exit(3); export const grade = () => 1", r"process.exit\(3\)"),
    "hangs": ("await new Promise(() => setInterval(() => 0, 9)); export const grade = 1", "in 2 s"),
    "package": (
        "import x from 'no-such-package'; export const grade = x",
        "install no-such-package in the grader's folder",
    ),
}


@pytest.mark.parametrize("case", NOT_LOADED)
def test_a_module_that_cannot_be_loaded_is_refused_before_the_first_agent(
    assay, rows, module, prompts, shell_agent, tmp_path, runtime, case
) -> None:
    text, said = NOT_LOADED[case]
    module(text)
    given = ("-g", "./grader.ts", "--grader-timeout", 2 if case == "hangs" else 60)
    ran = assay(
        "capture", prompts(f"touch {tmp_path}/ran; R"), "-s", shell_agent, *given, env=runtime
    )
    graded = assay("grade", rows, *given, env=runtime)
    for done in (ran, graded):
        assert done.code == 1
        assert not done.stdout
        assert "the grader cannot be loaded" in done.stderr
        assert re.search(said, done.stderr), done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_missing_runtime_is_found_before_the_first_agent(
    assay, module, prompts, shell_agent, tmp_path
) -> None:
    module("export const grade = () => true")
    ran = prompts(f"touch {tmp_path}/ran; R")
    done = assay(
        "trials", ran, "-s", shell_agent, "-g", "grader.ts", env=only("none", Path("/nowhere"))
    )
    assert done.code == 1
    assert "grader.ts needs bun or Node.js, and neither is installed" in done.stderr
    assert "npm install -g bun" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_node_that_runs_no_typescript_says_what_is_needed(assay, rows, module, tmp_path) -> None:
    old = tmp_path / "old" / "node"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho v22.17.1\n")
    old.chmod(0o755)
    module("export const grade = () => true")
    done = assay("grade", rows, "-g", "./grader.ts", env=only("old", old.parent))
    assert done.code == 1
    assert "Node.js 22.17.1 cannot run TypeScript" in done.stderr
    assert "Node.js 22.18 or later" in done.stderr


@pytest.mark.skipif(not shutil.which("node"), reason="no Node.js on PATH")
def test_the_systems_node_runs_javascript(assay, rows, module) -> None:
    module("export const grade = ({ output }) => output.includes('Paris')", "g.mjs")
    node = Path(shutil.which("node") or "").parent
    (Path(os.environ["PYTEST_TMP"]) / "sys").mkdir(exist_ok=True)
    link = Path(os.environ["PYTEST_TMP"]) / "sys" / "node"
    if not link.is_symlink():
        link.symlink_to(node / "node")
    done = assay("grade", rows, "-g", "./g.mjs", env=only("sys", link.parent))
    assert passes(done) == [True, False], done.stderr


def test_what_a_module_prints_goes_to_stderr_only(assay, rows, module, runtime) -> None:
    module(
        "import { writeSync } from 'node:fs'\nimport { spawnSync } from 'node:child_process'\n"
        "console.log('at load')\n"
        "export const grade = () => {\n"
        "  console.log('{\"value\": 1}'); process.stdout.write('plain')\n"
        "  writeSync(1, 'direct\\n')\n"
        "  spawnSync('sh', ['-c', 'echo from a child; cat'], { stdio: 'inherit' })\n"
        "  return { pass: true, score: 1 }\n}\n"
    )
    done = assay("grade", rows, "-g", "./grader.ts", env=runtime)
    assert done.code == 0, done.stderr
    assert passes(done) == [True, True]
    for said in ("at load", '{"value": 1}', "plain", "direct", "from a child"):
        assert said in done.stderr


def test_one_process_serves_all_rows_of_a_worker(assay, module, tmp_path, runtime) -> None:
    lines = [json.dumps({"id": str(n), "input": "i", "output": "o"}) + "\n" for n in range(300)]
    (tmp_path / "r.jsonl").write_text("".join(lines))
    module(
        "let n = 0; export const grade = () => ({ pass: true, score: 1, "
        "reasoning: `${process.pid} ${++n}` })"
    )
    done = assay("grade", "r.jsonl", "-g", "./grader.ts", env=runtime)
    said = [row["score"]["reasoning"].split() for row in done.rows]
    assert len({pid for pid, _ in said}) == 1
    assert [int(n) for _, n in said] == list(range(1, 301))


def test_the_version_is_the_hash_of_the_source(assay, rows, module, runtime) -> None:
    versions = []
    for text in ("export const grade = () => true", "export const grade = () => true // same"):
        module(text)
        done = assay("grade", rows, "-g", "./grader.ts", env=runtime)
        versions.append(done.rows[0]["score"]["version"])
    assert len(set(versions)) == 2


def test_a_program_with_an_interpreter_line_stays_a_program(assay, rows, tmp_path) -> None:
    path = tmp_path / "program.js"
    path.write_text('#!/bin/sh\ncat > /dev/null; echo \'{"pass": true, "score": 1}\'\n')
    path.chmod(0o755)
    assert passes(assay("grade", rows, "-g", "./program.js")) == [True, True]


def test_a_timeout_kills_the_whole_tree(assay, rows, module, runtime, tag) -> None:
    module(
        "import { spawnSync } from 'node:child_process'\nexport const grade = () => {\n"
        f"  spawnSync('sh', ['-c', 'sleep 600; : {tag}']); return true }}\n"
    )
    done = assay("grade", rows, "-g", "./grader.ts", "--grader-timeout", 1, env=runtime)
    assert done.code == 1
    assert "no answer in 1 s" in done.rows[0]["graderFailures"]["grader"]
    assert tag not in subprocess.run(["ps", "-ef"], capture_output=True, text=True).stdout


# What an agent does to the grader's files during the run.

FROZEN = """import { wanted } from './lib/wanted'
import { answer } from 'a-package'
export const grade = async ({ output }) => {
  const late = await import('./late.mjs')
  return { pass: output.includes(wanted) && answer === 42, score: 1, reasoning: late.said }
}
"""


@pytest.fixture
def tree(module, tmp_path) -> Path:
    module(FROZEN, "evals/grader.mjs")
    module("export const wanted: string = 'right'", "evals/lib/wanted.ts")
    module("export const wanted = 'right'", "evals/lib/wanted.mjs")
    module("export const said = 'as it was'", "evals/late.mjs")
    module(
        '{"name": "a-package", "type": "module", "exports": "./index.js"}',
        "node_modules/a-package/package.json",
    )
    module("export const answer = 42", "node_modules/a-package/index.js")
    text = (tmp_path / "evals/grader.mjs").read_text()
    (tmp_path / "evals/grader.mjs").write_text(text.replace("./lib/wanted", "./lib/wanted.mjs"))
    return tmp_path / "evals"


TAMPER = {
    "nothing": ("true", False),
    "the module": ("echo 'export const grade = () => true' > evals/grader.mjs", True),
    "its module": ("echo 'export const wanted = \"\"' > evals/lib/wanted.mjs", True),
    "a late module": ("echo 'export const said = \"other\"' > evals/late.mjs", True),
    "settings": ('echo \'{"type": "commonjs", "imports": {}}\' > evals/package.json', False),
    "bunfig": (
        "echo 'preload = [\"./evil.js\"]' > bunfig.toml; "
        "echo 'JSON.stringify = () => `{\"value\":true}`' > evil.js",
        False,
    ),
    "all removed": ("rm -rf evals", True),
}


@pytest.mark.parametrize("case", TAMPER)
def test_an_agent_cannot_change_its_grader(
    assay, tree, prompts, shell_agent, runtime, case
) -> None:
    script, warned = TAMPER[case]
    given = prompts(f"{script}; say wrong", "say right", "say wrong")
    done = assay("capture", given, "-s", shell_agent, "-g", "evals/grader.mjs", env=runtime)
    assert done.code == 0, done.stderr
    assert passes(done) == [False, True, False]
    assert {row["score"]["reasoning"] for row in done.rows} == {"as it was"}
    warnings = done.rows[0].get("warnings", [])
    assert any("changed during the run" in text for text in warnings) == warned
    assert list(done.rows[0]["identity"]["graders"]) == ["grader"]


def test_a_data_file_that_an_agent_changes_stops_the_verdict(
    assay, module, prompts, shell_agent, runtime
) -> None:
    module(
        "import { readFileSync } from 'node:fs'\n"
        "export const grade = ({ output }) => output === "
        "JSON.parse(readFileSync(new URL('./wanted.json', import.meta.url))).text\n",
        "evals/g.mjs",
    )
    module('{"text": "right"}', "evals/wanted.json")
    given = prompts('echo \'{"text": "wrong"}\' > evals/wanted.json; say wrong')
    done = assay("capture", given, "-s", shell_agent, "-g", "evals/g.mjs", env=runtime)
    assert done.code == 1
    assert "wanted.json changed during the run" in done.rows[0]["graderFailures"]["g"]


# The other commands.


def test_capture_trials_calibrate_and_validate_refs_take_a_module(
    assay, module, prompts, tmp_path, shell_agent, runtime
) -> None:
    module(seed_example("// my-grader.ts"), "g.ts")
    given = prompts(
        {"id": "a", "input": "say paris", "hint": "paris", "reference": "paris"},
        {"id": "b", "input": "say rome", "hint": "paris", "reference": "rome"},
    )
    common = ("-g", "./g.ts")
    captured = assay(
        "capture", given, "-s", shell_agent, *common, "-o", "c.jsonl", "-j", 2, env=runtime
    )
    assert captured.code == 0, captured.stderr
    rows = {r["id"]: r for r in map(json.loads, (tmp_path / "c.jsonl").read_text().splitlines())}
    assert [rows[i]["score"]["pass"] for i in "ab"] == [True, False]
    trials = assay("trials", given, "-s", shell_agent, *common, "-k", 2, "-j", 2, env=runtime)
    assert sorted(row["passRate"] for row in trials.rows) == [0.0, 1.0]
    module("export const grade = () => ({ pass: true, score: 0.5, reasoning: 'loose' })", "l.ts")
    again = assay("calibrate", "c.jsonl", "-g", "./l.ts", env=runtime)
    assert "**Re-scored:** PASS (0.5)" in again.stdout, again.stderr
    refs = assay("validate-refs", given, *common, env=runtime)
    assert [row["pass"] for row in refs.rows] == [True, False]


def test_the_seeds_comparison_graders_run_unchanged(
    assay, module, prompts, tmp_path, shell_agent, runtime
) -> None:
    given = prompts({"id": "a", "input": "say paris", "hint": "paris"})
    for name in ("with-mcp", "vanilla"):
        assay("capture", given, "-s", shell_agent, "-g", "contains", "-o", f"{name}.jsonl")
    for name in ("claude", "gemini"):
        assay("trials", given, "-s", shell_agent, "-g", "contains", "-k", 2, "-o", f"{name}.jsonl")
    pairs = {
        "{ ComparisonGrader }": ("vanilla", "with-mcp"),
        "{ TrialsComparisonGrader }": ("gemini", "claude"),
    }
    for start, (loser, winner) in pairs.items():
        module(seed_example(start), "judge.ts")
        done = assay(
            *("compare", f"{loser}.jsonl", f"{winner}.jsonl", "--format", "json"),
            *("--strategy", "custom", "--grader", "./judge.ts"),
            env=runtime,
        )
        assert done.code == 0, done.stderr
        tables = json.loads(done.stdout)["headToHead"]
        (pair,) = tables.get("pairwise") or tables["overall"]
        assert (pair["runA"], pair["aWins"], pair["bWins"]) == (loser, 0, 1)


def test_a_comparison_gets_the_seeds_fields_and_its_faults_are_named(
    assay, module, prompts, shell_agent, runtime
) -> None:
    given = prompts({"id": "a", "input": "say paris", "hint": "paris", "metadata": {"c": 1}})
    for name in "xy":
        assay("capture", given, "-s", shell_agent, "-g", "contains", "-o", f"{name}.jsonl")
    module(
        "export default ({ id, input, hint, runs }) => { throw new Error(JSON.stringify("
        "[id, input, hint, Object.keys(runs), Object.keys(runs.x)])) }",
        "judge.ts",
    )
    files = ("compare", "x.jsonl", "y.jsonl", "--strategy", "custom", "-g", "./judge.ts")
    done = assay(*files, env=runtime)
    assert done.code == 1
    fields = '["output","trajectory","score","duration","toolErrors"]'
    assert f'["a","say paris","paris",["x","y"],{fields}]' in done.stderr
    module("export const grade = () => ({ rankings: 'first' })", "judge.ts")
    done = assay(*files, env=runtime)
    assert done.code == 1
    assert "is not a ranking" in done.stderr
    module("export const grade = (", "judge.ts")
    done = assay(*files, env=runtime)
    assert done.code == 1
    assert "cannot be loaded" in done.stderr


def test_the_program_that_serves_modules_is_part_of_the_package() -> None:
    from importlib.resources import files

    assert files("assay.graders").joinpath("serve_module.mjs").is_file()


def test_what_a_trial_changes_does_not_judge_the_next(assay, module, runtime, tmp_path) -> None:
    """A careless merge lets the first agent put `pass` on all objects."""
    grader = module(
        "let n = 0\n"
        "const merge = (into, from) => {\n"
        "  for (const key of Object.keys(from)) {\n"
        "    const value = from[key]\n"
        "    if (typeof value === 'object') merge((into[key] ??= {}), value)\n"
        "    else into[key] = value\n"
        "  }\n"
        "}\n"
        "export const grade = ({ trajectory }) => {\n"
        "  merge({}, trajectory[0] ?? {})\n"
        "  const found = {}\n"
        "  return { pass: found.passed === true, score: 0, reasoning: String(++n) }\n"
        "}\n",
        "grader.mjs",
    )
    hostile = json.loads('[{"type": "message", "__proto__": {"passed": true}}]')
    rows = [
        {"id": f"r{n}", "input": "q", "output": "a", "trajectory": hostile if n == 1 else []}
        for n in range(4)
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = assay("grade", path, "-g", grader, env=runtime)
    assert [row["score"]["pass"] for row in done.rows] == [False, True, False, False], done.stderr
    assert [row["score"]["reasoning"] for row in done.rows] == ["1", "2", "1", "2"]


POLLUTIONS = {
    "a name of all objects": '{"__proto__": {"passed": true}}',
    "a method of all objects": '{"__proto__": {"hasOwnProperty": 1}}',
    "a function of Object": '{"constructor": {"keys": 1, "entries": 1}}',
    "a method of all arrays": '{"list": {"__proto__": {"includes": 1, "some": 1, "map": 1}}}',
    "a method of all texts": '{"text": {"__proto__": {"replace": 1, "trim": 1}}}',
    "a method of all functions": '{"constructor": {"__proto__": {"call": 1}}}',
}


@pytest.mark.parametrize("after", ["", "if (output === 'hostile') throw new Error('x')"])
@pytest.mark.parametrize("name", POLLUTIONS)
def test_what_all_objects_share_is_restored_for_the_next_trial(
    assay, module, runtime, tmp_path, name, after
) -> None:
    """Also when a method is replaced, or the function throws after that."""
    grader = module(
        "const merge = (into, from) => {\n"
        "  for (const key in from) {\n"
        "    if (typeof from[key] === 'object') merge(into[key], from[key])\n"
        "    else into[key] = from[key]\n"
        "  }\n"
        "}\n"
        "export const grade = ({ output, trajectory }) => {\n"
        "  const { type, ...hostile } = trajectory[0] ?? {}\n"
        "  merge({ list: [], text: 'x' }, hostile)\n"
        f"  {after}\n"
        "  const clean = !{}.hasOwnProperty('x') && [1].includes(1) && ' x '.trim() === 'x'\n"
        "  return { pass: clean && Object.keys({}).length === 0 && !{}.passed, score: 0 }\n"
        "}\n",
        "grader.mjs",
    )
    # As own properties: that is what JSON.parse makes of them.
    hostile = [{"type": "message", **json.loads(POLLUTIONS[name])}]
    rows = [
        {
            "id": f"r{n}",
            "input": "q",
            "output": "hostile" if n == 1 else "a",
            "trajectory": hostile if n == 1 else [],
        }
        for n in range(4)
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = assay("grade", path, "-g", grader, env=runtime)
    verdicts = [row.get("score", {}).get("pass") for row in done.rows]
    assert [verdicts[0], *verdicts[2:]] == [True, True, True], done.stderr
