"""What a trial may see: its environment, its HOME, its workspace, and nobody's secrets."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.raw_streams import folder_names

SECRET = 'sk-"quoted"\\and/long-0123456789-é'


@pytest.fixture
def schema(schema: dict[str, Any], tag: str) -> dict[str, Any]:
    """The scripted agent without its shell, which sets PWD."""
    agent = Path(__file__).parents[1] / "agents" / "scripted.py"
    return schema | {"command": [sys.executable, "-I", "-S", str(agent), tag]}


def environment_of(row: dict) -> dict[str, str]:
    return json.loads(row["trajectory"][0]["content"])


def test_isolated_gets_its_own_home_and_only_the_declared_environment(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    env = {"VISIBLE": "1", "PASSED": "2", "HIDDEN": "3", "HOME": "/somewhere/else"}
    schema = agent(env={"DECLARED": "4"}, passEnv=["PASSED"])
    path = prompts("!do environ", "!do environ")
    done = assay("capture", path, "-s", schema, "--isolate", "--env", "VISIBLE", env=env)
    first, second = (environment_of(row) for row in done.rows)
    assert (first["VISIBLE"], first["PASSED"], first["DECLARED"]) == ("1", "2", "4")
    assert set(first) <= {
        *("VISIBLE", "PASSED", "DECLARED", "HOME", "TMPDIR", "ASSAY_TRIAL", "PATH", "LANG"),
        *("LC_ALL", "LC_CTYPE", "TZ", "TERM", "SHELL", "USER", "LOGNAME", "XDG_CONFIG_HOME"),
        *("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    }
    assert first["HOME"] not in ("/somewhere/else", second["HOME"])
    assert first["TMPDIR"] != second["TMPDIR"]
    for name in ("TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        assert first[name].startswith(first["HOME"])
    assert not Path(first["HOME"]).exists()


def test_not_isolated_sees_what_we_see(assay: Callable, agent: Callable, prompts: Callable) -> None:
    schema = agent(env={"OVER": "theirs"})
    done = assay("capture", prompts("!do environ"), "-s", schema, env={"OVER": "ours", "X": "1"})
    seen = environment_of(done.rows[0])
    assert (seen["OVER"], seen["X"]) == ("theirs", "1")


def test_isolated_trials_share_nothing(assay: Callable, agent: Callable, prompts: Callable) -> None:
    schema = agent(command=["/bin/sh", "-c", HOME_AGENT])
    done = assay(
        "capture", prompts("a", "b", "c"), "-s", schema, "--isolate", "--workspace-dir", "w"
    )
    assert [row["output"] for row in done.rows] == ["0 0 0"] * 3


HOME_AGENT = """
n() { ls -A "$1" | grep -c note; }
printf '{"type":"result","result":"%s %s %s"}\\n' "$(n ~)" "$(n "$TMPDIR")" "$(n .)"
touch ~/note "$TMPDIR/note" ./note
"""


def test_ids_that_look_alike_get_folders_of_their_own(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    ids = ["a/b", "a:b", "..", ".", "../../x", "é" * 200, "é" * 199 + "è", "ü", "a\x00b", " ", "-"]
    path = prompts(*[{"id": name, "input": "!do put mine x ; cwd"} for name in ids])
    done = assay("capture", path, "-s", agent(), "--workspace-dir", "w", "-j", 4)
    assert len(done.rows) == len(ids)
    folders = {row["metadata"]["workspaceDir"] for row in done.rows}
    assert len(folders) == len(ids)
    for row in done.rows:
        folder = Path(row["metadata"]["workspaceDir"])
        assert row["trajectory"][0]["content"] == str(folder)
        assert folder.parent == tmp_path / "w"
        assert (folder / "mine").read_text() == "x"


def test_plain_ids_keep_the_names_of_the_seed() -> None:
    assert folder_names(["a", "x y", 'q"?*<>|']) == {
        "a": "prompt-a",
        "x y": "prompt-x y",
        'q"?*<>|': "prompt-q______",
    }


def test_a_template_is_copied_for_each_trial(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    (template / "sub").mkdir(parents=True)
    (template / "file").write_text("start")
    (template / "link").symlink_to("file")
    path = prompts("!do put file + ; get link", "!do put file + ; get sub/../link")
    args = (
        "capture",
        path,
        "-s",
        agent(),
        "--workspace-dir",
        "w",
        "--workspace-template",
        template,
    )
    assert [row["trajectory"][0]["content"] for row in assay(*args).rows] == ["start+"] * 2
    assert [row["trajectory"][0]["content"] for row in assay(*args).rows] == ["start+"] * 2
    assert (template / "file").read_text() == "start"


def test_a_resumed_trial_gets_a_fresh_workspace_and_a_users_own_is_left_alone(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    eventually: Callable,
    read_rows: Callable,
    tmp_path: Path,
) -> None:
    prepared = tmp_path / "w" / "prompt-p1"
    prepared.mkdir(parents=True)
    (prepared / "theirs").write_text("kept")
    path = prompts("!do put count x ; wait 1.5 ; get count", "!do ls")
    args = ("capture", path, "-s", agent(), "--workspace-dir", "w", "-o", tmp_path / "out.jsonl")
    process = start(*args)
    assert eventually((tmp_path / "w" / "prompt-p0" / "count").exists)
    process.kill()
    process.wait()
    assert assay(*args, "--resume").code == 0
    first, second = read_rows(tmp_path / "out.jsonl")
    assert first["trajectory"][0]["content"] == "x"
    assert second["trajectory"][0]["content"] == "theirs"
    assert (prepared / "theirs").read_text() == "kept"


def test_secrets_of_the_environment_stand_nowhere(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    env = {"MY_API_KEY": SECRET, "OTHER_TOKEN": "tok-0123456789abcdef", "NOT_A_SE": "visible-value"}
    shell = 'printf "%s\\n" "$MY_API_KEY" >&2; printf "%s\\n" "$OTHER_TOKEN"'
    path = prompts(
        "!do env MY_API_KEY ; env OTHER_TOKEN ; split OTHER_TOKEN ; environ ; env NOT_A_SE",
        "!do noresult ; split OTHER_TOKEN ; exit 3",
    )
    plain = agent(command=["/bin/sh", "-c", shell])
    for number, schema in enumerate((agent(), plain)):
        for command in ("capture", "run"):
            out = f"{command}-{number}.jsonl"
            done = assay(
                command,
                path,
                "-s",
                schema,
                "-o",
                out,
                "--raw-dir",
                f"raw-{command}-{number}",
                env=env,
            )
            assert done.code == 0, done.stderr
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    segments = [file for file in written if file.name.startswith("segment-")]
    assert len(segments) == 4
    assert all(b"[redacted]" in file.read_bytes() for file in segments)
    for file in written:
        data = file.read_bytes()
        for secret in (SECRET, "tok-0123456789abcdef", "0123456789abcdef", "0123456789-"):
            assert secret.encode() not in data, file
            assert json.dumps(secret)[1:-1].encode() not in data, file
    assert b"visible-value" in (tmp_path / "capture-0.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_missing_working_folder_is_refused(
    assay: Callable, agent: Callable, prompts: Callable, name: str
) -> None:
    done = assay("capture", prompts("x"), "-s", agent(), "-c", f"nowhere/{name}")
    assert done.code == 1
    assert f"nowhere/{name}" in done.stderr


def test_pwd_is_the_folder_the_agent_works_in(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    env = {"PWD": str(tmp_path), "OLDPWD": "/somewhere/else"}
    words = ("capture", prompts("!do environ"), "-s", agent(), "--workspace-dir", "work")
    seen = environment_of(assay(*words, env=env).rows[0])
    assert seen["PWD"] == str(tmp_path / "work" / "prompt-p0")
    assert "OLDPWD" not in seen


SPOILS_HOME = {
    "removed": "true",
    "a file": 'echo x > "$HOME"',
    "a loop": 'ln -s "$HOME" "$HOME"',
    "a FIFO": 'mkfifo "$HOME"',
    "its tmp is a FIFO": 'mkdir "$HOME"; mkfifo "$HOME/tmp"',
}


@pytest.mark.parametrize("how", SPOILS_HOME)
def test_an_agent_that_spoils_its_home_is_measured(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    how: str,
) -> None:
    # Only ever the HOME that was made for it: this one would be moved with all that is in it.
    move = 'case "$HOME" in */assay-home-*) mv "$HOME" "$PWD/gone" ;; *) exit 7 ;; esac'
    file = prompts({"id": "p0", "input": [f"{move}; {SPOILS_HOME[how]}; R", "R"]})
    done = assay("capture", file, "-s", shell_agent, "--isolate", "-o", "out.jsonl", "-t", 9000)
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["failure"]["cause"] == "agent_crash"
    assert "the agent's folders could not be prepared" in row["failure"]["message"]
