"""Every command that reads a file, with every hostile file: a message and an exit code, always."""

import importlib.util
import json
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.cli.group import run_command

_spec = importlib.util.spec_from_file_location(
    "hostile_files", Path(__file__).with_name("hostile_files.py")
)
assert _spec is not None
assert _spec.loader is not None
hostile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)

RUN = "-q -t 5000"
# FILE is the hostile file, OUT an output that is there already; the others are as they should be.
COMMANDS = {
    "prompt": [
        f"capture FILE -s demo {RUN} -o OUT --overwrite",
        f"trials FILE -s demo -k 1 {RUN} -o OUT --overwrite",
        f"run FILE -s demo {RUN} -o OUT --overwrite",
        "validate-refs FILE -g contains -o OUT --overwrite",
        "balance FILE -k c -o OUT --overwrite",
    ],
    "raw": ["extract FILE -s demo -o OUT --overwrite"],
    "capture": [
        "grade FILE -g contains -o OUT --overwrite",
        "grade FILE -g tools:no_failed=true -o OUT --overwrite",
        "grade FILE -g own.py -o OUT --overwrite",
        "grade FILE -g own.py -j 2 -o OUT --overwrite",
        "summarize FILE -o OUT --overwrite",
        "summarize FILE --markdown -o OUT --overwrite",
        "explain FILE --json -o OUT --overwrite",
        "explain FILE",
        "raw a FILE -o OUT --overwrite",
        "format FILE -f jsonl -o OUT --overwrite",
        "format FILE -f markdown -o OUT --overwrite",
        "format FILE -f csv -o OUT --overwrite",
        "calibrate FILE -o OUT --overwrite",
        "calibrate FILE --export OUT --overwrite",
        "calibrate FILE --labels LABELS -o OUT --overwrite",
        "calibrate CAPTURE --labels FILE -o OUT --overwrite",
        "calibrate FILE -g contains -o OUT --overwrite",
        "compare FILE CAPTURE -o OUT --overwrite",
        "compare CAPTURE FILE -f markdown -o OUT --overwrite",
        "compare FILE CAPTURE -f table -o OUT --overwrite --input-format capture",
        "compare FILE CAPTURE --fail-on regression -o OUT --overwrite",
        "compare FILE CAPTURE -s statistical -o OUT --overwrite",
        "compare FILE CAPTURE -s custom -g GRADER -o OUT --overwrite",
        "report FILE -f html -o OUT --overwrite",
        "report FILE CAPTURE -f markdown -o OUT --overwrite",
        "report FILE -f junit -o OUT --overwrite",
        "plan FILE",
        "export sft FILE -o OUT --overwrite",
        "export kto FILE -o OUT --overwrite",
        "export table FILE -o table.csv --overwrite",
        f"capture PROMPT -s replay:FILE {RUN} -o OUT --overwrite",
    ],
    "trials": [
        "export kto FILE -o OUT --overwrite",
        "compare FILE TRIALS -o OUT --overwrite",
        "compare TRIALS FILE --input-format trials -f table -o OUT --overwrite",
        "report FILE TRIALS -f html -o OUT --overwrite",
        "report FILE -f junit -o OUT --overwrite",
        "plan FILE TRIALS",
        "raw a FILE --trial 1 --list -o OUT --overwrite",
        "explain FILE --json -o OUT --overwrite",
        "summarize FILE -o OUT --overwrite",
        "grade FILE -g contains -o OUT --overwrite",
        "baseline add FILE --to fresh.jsonl",
        "baseline show FILE",
        "baseline prune FILE --keep 1",
        f"trials PROMPT -s demo -k 1 --allocate FILE {RUN} -o OUT --overwrite",
        "plan --against FILE --fail-on regression --margin 0.3",
    ],
    "schema": [
        f"capture PROMPT -s FILE {RUN} -o OUT --overwrite",
        "extract RAW -s FILE -o OUT --overwrite",
        "headless -s FILE",
        "doctor FILE --no-start",
    ],
    "mcp": [f"capture PROMPT -s claude:/bin/true --mcp FILE {RUN} -o OUT --overwrite"],
    "grader": [
        "grade CAPTURE -g FILE.py -o OUT --overwrite",
        "grade CAPTURE -g FILE -o OUT --overwrite",
        "grade CAPTURE -g json-schema:schema=FILE -o OUT --overwrite",
        "compare CAPTURE CAPTURE2 -s custom -g FILE -o OUT --overwrite",
    ],
    "script": ["mock-model FILE"],
    "template": [f"capture PROMPT -s demo --workspace-template FILE {RUN} -o OUT --overwrite"],
}
ROWS = {"prompt": hostile.PROMPT, "capture": hostile.CAPTURE, "trials": hostile.TRIALS}
RAW = {"id": "a", "input": "x", "rawLines": [], "timing": {"start": 0, "end": 1, "total": 1}}
ROWS |= {"raw": RAW, "schema": hostile.SCHEMA, "mcp": hostile.KINDS["mcp"]}
GRADER = "def grade(**given):\n    return {'rankings': []}\n"
OWN = "def grade(output, **given):\n    return {'pass': True, 'score': 1.0}\n"
SLOW = {
    "capture": 5,
    "trials": 5,
    "run": 5,
    "report": 24,
    "compare": 12,
    "grade": 3,
    "calibrate": 6,
    "plan": 6,
}
"""Of their odd rows a command line tries only every nth: it starts processes, or draws much."""
CASES = [(kind, line) for kind, lines in COMMANDS.items() for line in lines]
BEFORE = b"what was there before\n"
CODES = (0, 1, 2, 3, 4)


class Done(NamedTuple):
    code: Any
    out: str
    err: str
    raised: str = ""


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assay: Callable[..., Any],
) -> Iterator[Callable[..., Done]]:
    """Run a command line in this process, with the paths of a folder in it.

    Where a Python grader is forked, another process does it: this one has threads, so that each
    fork would begin with a new interpreter.
    """
    monkeypatch.chdir(tmp_path)
    # Else each file is looked for among the outputs of all tests, whether it had another name.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, row in (("capture", hostile.CAPTURE), ("trials", hostile.TRIALS), ("raw", RAW)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "prompt.jsonl").write_text(json.dumps(hostile.PROMPT) + "\n")
    (tmp_path / "capture2.jsonl").write_text(json.dumps(hostile.CAPTURE) + "\n")
    (tmp_path / "raw" / "a").mkdir(parents=True)
    (tmp_path / "raw" / "a" / "1.out").write_text("raw")
    (tmp_path / "labels.jsonl").write_text('{"id": "a", "label": "pass"}\n')
    (tmp_path / "grader.py").write_text(GRADER)
    (tmp_path / "own.py").write_text(OWN)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)

    def words(line: str, file: Path) -> list[str]:
        known = {
            "FILE": str(file),
            "FILE.py": f"{file}.py",
            "OUT": "out.txt",
            "GRADER": "grader.py",
        }
        names = ("CAPTURE", "CAPTURE2", "TRIALS", "RAW", "PROMPT", "LABELS")
        known |= {name: f"{name.lower()}.jsonl" for name in names}
        return [
            known.get(w, w.replace("=FILE", f"={file}").replace(":FILE", f":{file}"))
            for w in line.split()
        ]

    def command(line: str, file: Path) -> Done:
        (tmp_path / "out.txt").write_bytes(BEFORE)
        if "own.py" in line:
            done = assay(*words(line, file))
            return Done(done.code, done.stdout, done.stderr)
        raised = ""
        try:
            code: Any = run_command(words(line, file))
        except SystemExit as error:
            code = error.code
        except BaseException as error:  # noqa: BLE001 - that is what must not come out of it
            last = traceback.extract_tb(error.__traceback__)[-1]
            code, raised = None, f"{error!r:.200} at {last.filename}:{last.lineno}"
        out, err = capfd.readouterr()
        return Done(code, out, err, raised)

    yield command
    for number, handler in handlers.items():
        signal.signal(number, handler)


def problems(line: str, file: Path, done: Done) -> Iterator[str]:
    """Say what is wrong with how a command ended."""
    if done.raised or "Traceback (most recent call last):\n" in done.err:
        yield done.raised or done.err
        return
    if done.code == 1 and re.search("because (a|the) grader failed", done.err):
        return  # the file was read, and its rows written
    if done.code not in CODES:
        yield f"exit code {done.code}"
    # A run is named by its label, which is the name of its file; labels are a file of their own.
    named = (
        file.name.removesuffix(".file")[:50] in done.err or "labels.jsonl: no labels" in done.err
    )
    if done.code == 1 and not named:
        yield f"the message does not name the file: {done.err[:300]!r}"
    if done.code in (1, 2) and not done.err.strip():
        yield "no message"
    if len(done.err) > 200_000:  # an id may be long
        yield f"{len(done.err)} characters of messages"
    out = Path("out.txt").read_bytes()
    # Rows that were read before the bad one are written.
    if done.code in (1, 2) and out != BEFORE and not _are_rows(out):
        yield f"the output was changed: {out[:100]!r}"


def _are_rows(text: bytes) -> bool:
    lines = text.splitlines()
    return bool(lines) and all(line.startswith(b'{"id":') for line in lines)


def failures(run: Callable[..., Done], line: str, files: dict[str, Path]) -> list[str]:
    found = []
    for name, file in files.items():
        done = run(line, file)
        found += [f"{name}: {problem}" for problem in problems(line, file, done)]
    return found


@pytest.mark.parametrize(("kind", "line"), CASES, ids=[line[:60] for _, line in CASES])
def test_hostile_files(kind: str, line: str, run: Callable[..., Done], tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    files = {}
    for name, content in hostile.contents(ROWS.get(kind, hostile.CAPTURE)).items():
        files[name] = folder / f"{name}.file"
        files[name].write_bytes(content)
        if "FILE.py" in line:
            files[name].with_name(f"{name}.file.py").write_bytes(content)
    found = failures(run, line, files)
    with hostile.places(folder) as odd:
        found += failures(run, line, odd)
    assert not found, "\n".join(found)


ODD_ROWS = [(kind, line) for kind, line in CASES if kind in ROWS]


@pytest.mark.parametrize(("kind", "line"), ODD_ROWS, ids=[line[:60] for _, line in ODD_ROWS])
def test_wrong_types(kind: str, line: str, run: Callable[..., Done], tmp_path: Path) -> None:
    found = []
    file = tmp_path / "odd.file"
    rows = list(hostile.mutated(ROWS[kind]))
    every = 12 if "own.py" in line else SLOW.get(line.split()[0], 1)  # it forks for each file
    # Each command line begins at another row, so that all are tried by some.
    for name, row in rows[len(line) % every :: every]:
        file.write_text(json.dumps(row) + "\n")
        found += [f"{name}: {problem}" for problem in problems(line, file, run(line, file))]
    assert not found, "\n".join(found)


READERS = [(kind, line) for kind, line in CASES if kind in ("prompt", "capture", "trials", "raw")]
READERS = [case for case in READERS if not case[1].startswith(("plan", "calibrate CAPTURE"))]
READERS = [case for case in READERS if case != ("trials", "summarize FILE -o OUT --overwrite")]
READERS = [case for case in READERS if case[0] != "trials" or not case[1].startswith("grade")]
READERS = [case for case in READERS if not case[1].startswith("baseline")]  # it has no build


@pytest.mark.parametrize(("kind", "line"), READERS, ids=[line[:60] for _, line in READERS])
def test_a_byte_order_mark_is_no_part_of_the_rows(
    kind: str, line: str, run: Callable[..., Done], tmp_path: Path
) -> None:
    file = tmp_path / "bom.jsonl"
    file.write_bytes(hostile.contents(ROWS[kind])["bom"])
    custom = " -s custom" in line  # its grader ranks nothing
    done = run(line, file)
    assert done.code in ((0, 4) if not custom else (0, 1, 4)), done
    assert "not a JSON object" not in done.err


@pytest.mark.parametrize("name", ["utf-16", "missing"])
def test_the_program_itself_ends_like_that(
    name: str, assay: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.jsonl"
    if name != "missing":
        file.write_bytes(hostile.contents(hostile.CAPTURE)[name])
    commands = ("summarize", "format", "balance", "report", "calibrate", "capture -s demo")
    for line in (*commands, "grade -g contains", "extract -s demo", "validate-refs -g contains"):
        done = assay(*line.split(), file)
        assert done.code == 1, (line, done)
        assert file.name in done.stderr
        assert "Traceback" not in done.stderr
    missing = assay("view", file) if name == "missing" else None
    assert missing is None or (missing.code == 1 and file.name in missing.stderr)
