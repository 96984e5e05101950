"""No secret of the environment is in anything that a command writes or prints."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEY = "k3y-Zx81-qq/77"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBKcwggSjAgEAAoIBAQC7VJ\n-----END KEY-----"
PARTS = ("Zx81", "MIIEvQ", "BKcwgg", "azN5LVp4ODE")  # the last one is in base64
SECRETS = {"SOME_API_KEY": KEY, "PEM_KEY": PEM}
PRINTS = (
    "import base64, json, os; "
    "k, p = os.environ['SOME_API_KEY'], os.environ['PEM_KEY']; "
    "print(k, p, json.dumps(json.dumps([k, p])), base64.b64encode(k.encode()).decode())"
)
LEAKING_GRADER = """
import os
def grade(*, output, **_):
    key, pem = os.environ["SOME_API_KEY"], os.environ["PEM_KEY"]
    if output == "raise":
        raise ValueError(f"{key} {pem}")
    return {"pass": False, "score": 0.0, "reasoning": f"{key} {pem}", "outcome": {key: [pem, 1]}}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """An agent that runs its prompt in a shell."""
    path = tmp_path / "shell.json"
    schema = {
        "version": 1,
        "name": "shell",
        "command": ["bash", "-c", 'eval "$1"', "shell"],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "outputEvents": [
            {
                "match": {"path": "$.type", "value": "message"},
                "emitAs": "message",
                "extract": {"content": "$.text"},
            }
        ],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    path.write_text(json.dumps(schema))
    return path


def refuse_secrets(folder: Path, *texts: str) -> None:
    for path in folder.rglob("*"):
        text = str(path) + (path.read_text(errors="replace") if path.is_file() else "")
        assert not [part for part in PARTS if part in text], f"{path}: {text}"
    for text in texts:
        assert not [part for part in PARTS if part in text], text


def result(text: str, **more: Any) -> str:
    return f"echo '{json.dumps({'type': 'result', 'result': text, **more})}'"


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_what_a_grader_quotes_is_masked(
    assay: Callable, shell: Path, prompts: Callable, tmp_path: Path, command: str
) -> None:
    """The agent writes a test that prints a key, and the grader runs it."""
    out = tmp_path / "out"
    code = f"cat > t.py <<'E'\n{PRINTS}; import sys; sys.exit(int(sys.argv[1]))\nE\n" + result("ok")
    for exit_code in ("0", "1"):
        done = assay(
            *(command, prompts(code), "-s", shell, "--progress"),
            *("-g", f"command:{sys.executable} t.py {exit_code}"),
            *("-o", out / f"{exit_code}.jsonl"),
            env=SECRETS,
        )
        assert done.code == 0, done.stderr
        junit = out / f"{exit_code}.xml"
        for report in (junit, out / f"{exit_code}.html"):
            assert assay("report", out / f"{exit_code}.jsonl", "-o", report).code == 0
        assert ("<failure" in junit.read_text()) == (exit_code == "1")
        refuse_secrets(out, done.stdout, done.stderr)
    (row,) = map(json.loads, (out / "1.jsonl").read_text().splitlines())
    assert "[redacted]" in json.dumps(row)


@pytest.mark.parametrize("workers", [1, 2])
def test_grade_alone_masks_what_graders_say(assay: Callable, tmp_path: Path, workers: int) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"id": f"r{i}", "input": "q", "output": text}) + "\n"
            for i, text in enumerate(["a", "raise", "c"])
        )
    )
    grader = tmp_path / "leak.py"
    grader.write_text(LEAKING_GRADER)
    done = assay("grade", rows, "-g", grader, "-j", workers, "--progress", env=SECRETS)
    assert done.code == 1
    assert len(done.rows) == 3
    for text in (done.stdout, done.stderr):
        assert not [part for part in PARTS if part in text], text
    ((key, (_, number)),) = done.rows[0]["outcome"].items()
    assert (key, number) == ("[redacted]****", 1)
    assert "[redacted]" in done.rows[1]["graderFailures"]["leak"]
    assert "[redacted]" in done.rows[1]["errors"][0]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_grader_prints_is_masked_and_made_visible(
    assay: Callable, tmp_path: Path, workers: int
) -> None:
    """By itself, by a program that it starts, and while it is loaded."""
    (tmp_path / "grader.py").write_text(
        "import os, subprocess, sys\nprint('loaded', os.environ['SOME_API_KEY'])\n"
        "def grade(output):\n    print(output, os.environ['PEM_KEY'], file=sys.stderr)\n"
        "    os.write(2, output.encode())\n"
        "    subprocess.run(['sh', '-c', 'printf %s \"${SOME_API_KEY%77}\"; echo 77'])\n"
        "    return True\n"
    )
    row = {"id": "a", "input": "x", "output": "title \x1b]0;evil\x07 \x9b31m \u202e end"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    args = ["grade", "rows.jsonl", "-g", "grader.py", "-o", "graded.jsonl", "-j", workers]
    done = assay(*args, env=SECRETS)
    assert done.code == 0, done.stderr
    assert "loaded [redacted]" in done.stderr
    assert done.stderr.count("title \\u001b]0;evil\\u0007 \\u009b31m \\u202e end") == 2
    refuse_secrets(tmp_path / "graded.jsonl", done.stderr, done.stdout)


def test_validate_refs_masks_what_graders_say(assay: Callable, tmp_path: Path) -> None:
    rows = tmp_path / "prompts.jsonl"
    answers = ("a", "raise")
    rows.write_text(
        "".join(json.dumps({"id": a, "input": "q", "reference": a}) + "\n" for a in answers)
    )
    (tmp_path / "leak.py").write_text(LEAKING_GRADER)
    done = assay("validate-refs", rows, "-g", tmp_path / "leak.py", env=SECRETS)
    assert "[redacted]" in done.stdout
    assert "[redacted]" in done.stderr
    for text in (done.stdout, done.stderr):
        assert not [part for part in PARTS if part in text], text


def test_all_that_an_agent_writes_is_masked(
    assay: Callable, shell: Path, prompts: Callable, tmp_path: Path
) -> None:
    code = f"""python3 -c "{PRINTS}"; python3 -c "{PRINTS}" >&2
    python3 - <<'E'
import json, os
for piece in (os.environ["SOME_API_KEY"], os.environ["PEM_KEY"]):
    print(json.dumps(dict(type="message", text=piece)))
print(json.dumps(dict(type="result", result=os.environ["SOME_API_KEY"])))
E
exit 3"""
    out = tmp_path / "out"
    done = assay("capture", prompts(code), "-s", shell, "-o", out / "a.jsonl", env=SECRETS)
    raw = assay("run", prompts(code), "-s", shell, "-o", out / "b.jsonl", env=SECRETS)
    refuse_secrets(out, done.stdout, done.stderr, raw.stdout, raw.stderr)
    (row,) = map(json.loads, (out / "a.jsonl").read_text().splitlines())
    assert row["output"] == "[redacted]****"
    assert row["stderr"].startswith("[redacted]**** -----BEGIN")
    extracted = assay("extract", out / "b.jsonl", "-s", shell)
    assert extracted.rows[0]["output"] == row["output"]
    assert extracted.rows[0]["trajectory"][0]["content"] == "[redacted]****"


def test_neither_a_number_nor_a_field_name_is_masked(
    assay: Callable,
    shell: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    """Both ended a run, or made a good trial a crash."""
    code = result("12345678 metadata", usage={"input_tokens": 12345678})
    env = {"SORT_KEY": "metadata", "DB_PASSWORD": "12345678", "SHORT_TOKEN": "abc12"}
    done = assay("capture", prompts(code), "-s", shell, "-o", tmp_path / "o.jsonl", env=env)
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "o.jsonl")
    assert "failure" not in row
    assert row["output"] == "[redacte metadata"
    assert row["usage"]["inputTokens"] == 12345678
    raw = json.loads(raw_of(tmp_path, row)["1.out"])
    assert raw["usage"] == {"input_tokens": 12345678}
    (note,) = [line for line in done.stderr.splitlines() if "SORT_KEY" in line]
    assert "SHORT_TOKEN (shorter than 8 characters), SORT_KEY (an ordinary word)" in note
    assert "abc12" not in done.stderr
    assert "DB_PASSWORD" not in done.stderr


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_a_secret_in_a_prompt_is_masked(
    assay: Callable, shell: Path, tmp_path: Path, command: str
) -> None:
    row = {"input": result("ok") + f" # {KEY}", "hint": KEY, "metadata": {"m": PEM}, "extra": [KEY]}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "a", **row}) + "\n")
    schema = json.loads(shell.read_text())
    # Also in the file that the agent reads its prompt from.
    schema |= {"command": ["bash", "-c", 'eval "$(cat)"'], "prompt": {"stdin": True}}
    shell.write_text(json.dumps(schema))
    out = tmp_path / "out" / "a.jsonl"
    done = assay(command, prompts, "-s", shell, "-o", out, "--progress", env=SECRETS)
    assert done.code == 0, done.stderr
    assert '"ok"' in out.read_text().replace("\\", "")
    refuse_secrets(tmp_path / "out", done.stdout, done.stderr)


@pytest.mark.parametrize("command", ["run", "trials", "grade", "validate-refs"])
def test_every_command_that_runs_something_names_what_it_does_not_mask(
    assay: Callable, shell: Path, prompts: Callable, tmp_path: Path, command: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id":"a","input":"q","output":"o","reference":"o"}\n')
    given = {
        "run": (prompts(result("ok")), "-s", shell),
        "trials": (prompts(result("ok")), "-s", shell),
        "grade": (rows, "-g", "contains:o"),
        "validate-refs": (rows, "-g", "contains:o"),
    }[command]
    env = {"SORT_KEY": "metadata"}
    assert assay(command, *given, env=env).stderr.count("SORT_KEY") == 1
    assert "SORT_KEY" not in assay(command, *given, "-q", env=env).stderr
