"""Bytes that are no text, in every argument, in names and folders; errors that name no file."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from assay.cli import group
from assay.cli.group import cli, run_command
from assay.records.files import replaced_file

NO_TEXT = [os.fsdecode(b"a\xff"), "x\ud800{}"]


def commands(found: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield a command line for each place in which a word can stand, with None there."""
    if isinstance(found, click.Group):
        with click.Context(found) as ctx:
            for name in found.list_commands(ctx):
                command = found.get_command(ctx, name)
                assert command is not None
                yield from commands(command, (*words, name))
        return
    yield (*words, None)  # type: ignore[misc] # an argument
    for param in found.params:
        if isinstance(param, click.Option) and not param.is_flag:
            for option in param.opts:
                yield (*words, option, None)  # type: ignore[misc]
                yield (*words, f"{option}=")


def test_no_option_of_any_command_takes_bytes_that_are_no_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(group, "ENDING_SIGNALS", ())
    n_tried = 0
    for words in commands(cli):
        for bad in NO_TEXT:
            put = [bad if word is None else word for word in words]
            if words[-1] is not None:
                put[-1] += bad
            assert run_command(put) == 2, put
            said = capsys.readouterr().err
            assert "is not UTF-8" in said, put
            said.encode()
            n_tried += 1
    assert n_tried > 500
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("capture", "p.jsonl", "-s", "demo"), ("summarize", "p.jsonl")])
def test_a_working_folder_that_is_no_text_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words
) -> None:
    folder = tmp_path / os.fsdecode(b"a\xff")
    folder.mkdir()
    monkeypatch.setattr(group, "ENDING_SIGNALS", ())
    monkeypatch.setattr(os, "getcwd", lambda: str(folder))
    assert run_command([*words]) == 1
    assert "the name of the working folder is not UTF-8" in capsys.readouterr().err


def test_names_of_an_agents_files_are_no_matter(assay: Callable, prompts: Callable) -> None:
    script = 'printf x > "$(printf "b\\377")"; mkdir "$(printf "c\\377")"; ln -s l l; echo ok'
    words = ("--shell", script, "--workspace-dir", "w", "-g", "git", "-g", "contains:ok")
    done = assay("capture", prompts("x"), *words)
    assert done.code == 0, done.stderr
    assert done.rows[0]["score"]["pass"], done.rows


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (lambda: Path("/dev/full").write_bytes(b"x"), "/dev/full: No space left on device"),
        (lambda: "\ud800".encode(), "a name or a text is not UTF-8 and cannot be written: \\ud800"),
        (lambda: 1 / 0 if [] else (_ for _ in ()).throw(MemoryError), "not enough memory"),
    ],
)
def test_an_error_that_names_nothing_gets_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fail, expected
) -> None:
    def main(*_args: object, **_options: object) -> None:
        value = fail()
        next(value)

    monkeypatch.setattr(group, "ENDING_SIGNALS", ())
    monkeypatch.setattr(cli, "main", main)
    assert run_command(["summarize"]) == 1
    assert expected in capsys.readouterr().err


def test_a_full_disk_names_the_file_that_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as found, replaced_file(tmp_path / "b.json"):
        Path("/dev/full").write_bytes(b"x")
    assert found.value.filename == str(tmp_path / "b.json")
