"""What travels to another machine: there, none of the files of this one exist any more."""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay import plugins
from assay.errors import AssayError, InputError
from assay.pipeline import remote
from assay.pipeline.grade import grade_all
from assay.pipeline.grading import GradedRow
from assay.pipeline.remote import RemoteTrials
from assay.pipeline.remote_grading import RemoteGraders
from assay.plugin import Limits, PluginRef, Surroundings, TrialSpec
from assay.run.process import start_over


class OtherMachine:
    """Does the work of a cluster's node, in a process of its own as there."""

    def call(self, function: Callable[..., Any], *arguments: Any, **_limits: Any) -> Any:
        return function(*arguments)

    def share(self, value: Any) -> Any:
        return value

    def on_each_node(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        return {"node": function(*arguments)}

    def n_slots(self, cpus: float | None, memory_bytes: int | None) -> int:
        return 1


class DyingMachine(OtherMachine):
    """A machine that dies at work."""

    def call(self, function: Callable[..., Any], *arguments: Any, **_limits: Any) -> Any:
        msg = "WorkerCrashedError: the worker died"
        raise RuntimeError(msg)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this machine, which is gone on the other one."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def lines(*rows: dict[str, Any]) -> list[tuple[str, bytes]]:
    full = {"input": "q", "trajectory": [], "metadata": {}, "hint": "ok"}
    made = [{"id": f"r{n}", **full, **row} for n, row in enumerate(rows)]
    return [(f"rows.jsonl:{n}", json.dumps(row).encode() + b"\n") for n, row in enumerate(made, 1)]


def locally(rows: Sequence[tuple[str, bytes]], refs: Sequence[PluginRef]) -> list[GradedRow]:
    return list(grade_all(rows, refs))


@pytest.fixture
def elsewhere(here: Path) -> Iterator[Callable[..., list[GradedRow]]]:
    """Grade on the other machine; the folder of this one is back afterwards."""
    start_over()  # a grading that failed in another test has stopped everything

    def grade(
        rows: Sequence[tuple[str, bytes]],
        refs: Sequence[PluginRef],
        machine: Any = None,
        env_names: Sequence[str] = (),
    ) -> list[GradedRow]:
        remote = RemoteGraders(refs, env_names)
        away = here.with_name("away")
        machine = machine or OtherMachine()

        def call(function: Any, *arguments: Any, **limits: Any) -> Any:
            here.rename(away)
            try:
                return type(machine).call(machine, function, *arguments, **limits)
            finally:
                away.rename(here)
                os.chdir(here)

        remote.join(machine)
        machine.call = call
        return list(grade_all(rows, refs, elsewhere=remote.asking))

    return grade


def shell_judge(folder: Path) -> str:
    """A judge that passes if its question has the word "good" in it."""
    script = (
        'case "$1" in *good*) p=true;; *) p=false;; esac\n'
        'code=$(printf %s "$1" | sed -n \'s/.*"code": "\\([0-9a-f]*\\)", "pass".*/\\1/p\')\n'
        'printf \'{"type":"result","result":"{\\\\"code\\\\":\\\\"%s\\\\",'
        '\\\\"pass\\\\":%s,\\\\"score\\\\":1,'
        '\\\\"reasoning\\\\":\\\\"%s\\\\"}"}\\n\' "$code" $p "${JUDGE_KEY-none}"'
    )
    schema = {
        "version": 1,
        "name": "shell-judge",
        "command": ["sh", "-c", script, "sh"],
        "passEnv": ["JUDGE_KEY"],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    (folder / "judge.json").write_text(json.dumps(schema))
    return "judge.json"


def test_every_kind_of_grader_says_the_same_elsewhere(here: Path, elsewhere: Any) -> None:
    (here / "pack").mkdir()
    (here / "pack/__init__.py").write_text("from pack.more import WORD\n")
    (here / "pack/more.py").write_text("WORD = 'imported'\n")
    (here / "wanted.json").write_text('{"word": "ok"}')
    (here / "g.py").write_text(
        "import json, pathlib, pack\n"
        "wanted = json.loads((pathlib.Path(__file__).parent / 'wanted.json').read_text())\n"
        "def grade(output, cwd, metadata):\n"
        "    made = pathlib.Path(cwd, 'made').read_text() if cwd else 'none'\n"
        "    said = f'{pack.WORD} {made} {cwd} {__file__} {metadata}'\n"
        "    return {'pass': output == wanted['word'], 'score': 1.0, 'reasoning': said}\n"
    )
    (here / "prog.sh").write_text('#!/bin/sh\ncat > /dev/null\n. "$(dirname "$0")/part.sh"\n')
    (here / "prog.sh").chmod(0o755)
    (here / "part.sh").write_text(
        'echo "{\\"pass\\": true, \\"score\\": 0.5, \\"reasoning\\": \\"$0\\"}"\n'
    )
    (here / "check.sh").write_text('cat made && echo "$0" "$PWD" && exit 3\n')
    (here / "answer.json").write_text('{"type": "string"}')
    shell_judge(here)
    (here / "rubric.md").write_text("It must be good.")
    workspace = here / "w"
    workspace.mkdir()
    (workspace / "made").write_text("work")
    graders = (
        *("g.py", "prog.sh", "command:sh check.sh", "file:made", "json-schema:answer.json"),
        *("contains", "judge:rubric=rubric.md,agent=judge.json", "regex:o+"),
    )
    refs = [plugins.grader_ref(text, 20.0) for text in graders]
    tried = [
        {"trialNum": number, "output": said, "trajectory": [], "duration": 1, "cwd": str(workspace)}
        for number, said in enumerate(("ok", "no"), 1)
    ]
    rows = lines(
        {"output": "ok", "cwd": str(workspace)},
        {"output": "no", "cwd": str(workspace), "metadata": {"workspaceDir": str(workspace)}},
        {"output": "no", "failure": {"cause": "provider", "message": "gone"}},
        {"k": 2, "trials": tried},
    )
    expected = locally(rows, refs)
    found = elsewhere(rows, refs)
    assert [row.line for row in found] == [row.line for row in expected]
    assert found[0].verdict.grades["g"].pass_ is True
    assert found[0].verdict.grades["judge"].pass_ is True
    assert f"{workspace}" in found[0].line.decode()
    assert found[1].verdict.broken == {}
    assert [verdict.grades["g"].pass_ for verdict in found[3].verdicts] == [True, False]


def test_a_rubric_may_be_the_name_of_a_folder(here: Path, elsewhere: Any) -> None:
    shell_judge(here)
    (here / "good").mkdir()
    (here / "good/g.py").write_text("def grade(output):\n    return True\n")
    words = ("good/g.py", "judge:rubric=good,agent=judge.json")
    refs = [plugins.grader_ref(text, 20.0) for text in words]
    rows = lines({"output": "ok"})
    assert [row.line for row in elsewhere(rows, refs)] == [row.line for row in locally(rows, refs)]


def test_a_row_that_cannot_be_read_ends_it_after_those_before(here: Path, elsewhere: Any) -> None:
    rows = [*lines({"output": "ok"}), ("rows.jsonl:2", b"{broken\n")]
    with pytest.raises(InputError, match=r"rows\.jsonl:2"):
        elsewhere(rows, [plugins.grader_ref("contains", 20.0)])


def test_only_named_variables_reach_graders(
    here: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "g.py").write_text(
        "import os\n"
        "def grade(output):\n"
        "    return {'pass': True, 'score': 1, 'reasoning': os.environ.get('ONE', 'none')}\n"
    )
    shell_judge(here)
    for name in ("ONE", "JUDGE_KEY"):
        monkeypatch.setenv(name, "first-value")
    refs = [
        plugins.grader_ref(text, 20.0) for text in ("g.py", "judge:rubric=good,agent=judge.json")
    ]
    remote = RemoteGraders(refs, ["ONE", "ABSENT"])
    assert remote.bundle.env == {"ONE": "first-value", "JUDGE_KEY": "first-value"}
    assert RemoteGraders([plugins.grader_ref("contains", 20.0)], []).bundle.env == {}


def test_a_dead_machine_leaves_rows_without_a_grade(here: Path, elsewhere: Any) -> None:
    rows = lines({"output": "ok"}, {"output": "no"})
    refs = [plugins.grader_ref("contains", 20.0), plugins.grader_ref("exact", 20.0)]
    found = elsewhere(rows, refs, DyingMachine())
    why = "worker_lost: WorkerCrashedError: the worker died"
    assert [row.verdict.broken for row in found] == [{"contains": why, "exact": why}] * 2
    assert [row.verdict.score for row in found] == [None, None]
    assert json.loads(found[0].line)["graderFailures"]["exact"] == why


def test_a_grader_that_kills_its_process_has_judged_nothing(here: Path, elsewhere: Any) -> None:
    (here / "kill.sh").write_text("#!/bin/sh\nkill -9 $PPID\n")
    (here / "kill.sh").chmod(0o755)
    (row,) = elsewhere(lines({"output": "ok"}), [plugins.grader_ref("kill.sh", 20.0)])
    assert row.verdict.broken == {
        "kill": "worker_lost: SIGKILL killed the process that asked the graders"
    }


def test_a_workspace_that_cannot_travel_is_said(
    here: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.pipeline.remote._MOST_BYTES", 1000)
    for name, size in (("small", 10), ("large", 2000)):
        (here / name).mkdir()
        (here / name / "made").write_bytes(b"x" * size)
    rows = lines(*({"output": "ok", "cwd": str(here / name)} for name in ("large", "small")))
    large, small = elsewhere(rows, [plugins.grader_ref("file:made", 20.0)])
    assert large.verdict.broken == {
        "file": "not all of the workspace can travel to another machine: "
        "made (2000 bytes: too large)"
    }
    assert small.verdict.grades["file"].pass_ is True


def test_graders_with_too_many_files_are_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.pipeline.remote._MOST_FILE_BYTES", 10)
    (here / "g.py").write_text("def grade(output):\n    return True\n")
    with pytest.raises(InputError, match=r"g\.py: more than"):
        RemoteGraders([plugins.grader_ref("g.py", 20.0)], [])


def test_what_a_grader_lacks_is_said_before_any_row(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_judge(here)
    remote = RemoteGraders(
        [plugins.grader_ref(text, 20.0) for text in ("git", "judge:rubric=x,agent=judge.json")], []
    )
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(AssayError) as refused:
        remote.join(OtherMachine())
    assert "not every node can grade" in refused.value.message
    assert "node: the grader git needs git, which is not installed" in refused.value.message
    assert 'node: Executable not found in $PATH: "sh"' in refused.value.message


def test_tasks_of_harbor_travel_with_links(here: Path, tmp_path: Path) -> None:
    task = here / "tasks/hello"
    for name, text in {
        "task.toml": 'schema_version = "1.4"\n',
        "instruction.md": "echo hello > /app/hello.txt",
        "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data.txt ./\n",
        "environment/data.txt": "data\n",
        "tests/test.sh": "#!/bin/sh\ngrep -q hello hello.txt && echo 1 > /logs/verifier/reward.txt",
        "solution/solve.sh": "#!/bin/sh\ntest -s data.txt && echo hello > hello.txt\n",
    }.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    (task / "tests/again.sh").symlink_to("test.sh")
    benchmark = PluginRef(name="harbor", options={"path": "tasks"})
    (row,) = plugins.benchmark(benchmark).prompts()
    spec = TrialSpec(
        prompt=row[0],
        agent=PluginRef(name="oracle"),
        benchmark=benchmark,
        limits=Limits(turn_s=20),
        surroundings=Surroundings(
            cwd=str(here), sandbox="network", workspace_dir=str(tmp_path / "w")
        ),
        run_token="token",
        folder="hello",
    )
    remote = RemoteTrials(OtherMachine())
    remote.prepare([spec])
    shutil.move(here / "tasks", tmp_path / "away")
    captured = remote.attempt(spec)
    assert captured.failure is msgspec.UNSET, captured.failure
    assert Path(captured.cwd or "", "hello.txt").read_text() == "hello\n"


def test_a_workspace_of_very_many_files_comes_back_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MOST_ENTRIES", 5)
    (tmp_path / "w").mkdir()
    for n in range(9):
        (tmp_path / "w" / f"f{n}").touch()
    packed, left = remote.pack_folder(tmp_path / "w")
    assert left == ["f5 and all that follows (more than 5 files)"]
    remote.unpack(packed, tmp_path / "there")
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [
        f"f{n}" for n in range(5)
    ]


def deep_folder(workspace: Path) -> None:
    folder = str(workspace)
    while len(folder) < 3800:
        folder += "/" + "d" * 200
        Path(folder).mkdir()


def unreadable_name(workspace: Path) -> None:
    with open(os.fsencode(workspace) + b"/\xff", "wb") as file:  # noqa: PTH123 - no text is a path
        file.truncate(1 << 40)


def late_file(workspace: Path) -> None:
    os.utime(workspace / "f", (0, 1 << 33))


@pytest.mark.parametrize("left_by_agent", [deep_folder, unreadable_name, late_file])
def test_whatever_an_agent_leaves_it_is_measured(
    left_by_agent: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace that could not be unpacked here ended the run."""
    workspace, there = tmp_path / "w", tmp_path / ("longer" * 30)
    workspace.mkdir()
    (workspace / "f").touch()
    if left_by_agent is late_file:  # most file systems have limits of their own
        plain = tarfile.TarFile.gettarinfo

        def late(*given: Any) -> tarfile.TarInfo:
            about = plain(*given)
            about.mtime = float(1 << 63)
            return about

        monkeypatch.setattr(tarfile.TarFile, "gettarinfo", late)
    left_by_agent(workspace)
    packed, left = remote.pack_folder(workspace)
    msgspec.json.encode(left)
    remote.unpack(packed, there)
    assert (there / "f").exists()
    assert bool(left) == (left_by_agent is not late_file)


def test_a_file_that_is_cut_while_it_is_packed_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("x" * 1000)
    (tmp_path / "b").write_text("kept")
    plain = tarfile.TarFile.addfile

    def cut(archive: tarfile.TarFile, about: tarfile.TarInfo, file: Any = None) -> None:
        os.truncate(tmp_path / "a", 10)
        plain(archive, about, file)

    monkeypatch.setattr(tarfile.TarFile, "addfile", cut)
    packed, _ = remote.pack_folder(tmp_path)
    remote.unpack(packed, tmp_path / "there")
    assert (tmp_path / "there" / "b").read_text() == "kept"
    assert (tmp_path / "there" / "a").read_text().rstrip("\0") == "x" * 10


def test_a_folder_that_becomes_a_link_while_it_is_packed_lets_nothing_out(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        for name in ("out/escaped", "kept"):
            archive.addfile(tarfile.TarInfo(name))
    remote.unpack(data.getvalue(), tmp_path / "w")
    assert not (tmp_path / "escaped").exists()
    assert (tmp_path / "w" / "kept").exists()
