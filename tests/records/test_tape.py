"""The file of a tape: what is written is read again, also after a kill, and never by two."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError, OutputError
from assay.records.tape import Exchange, Fault, Lane, Tape, TapeWriter, parse_fault

LONG = "x" * 300


def filled(path: Path, n: int = 20) -> TapeWriter:
    writer = TapeWriter(path)
    lane = writer.add_lane(Lane(lane=0, prompt="p", asked=["Do it."]))
    for number in range(1, n + 1):
        writer.add(exchange(lane.lane, number))
    return writer


def exchange(lane: int, number: int) -> Exchange:
    messages = [{"role": "user", "content": f"{LONG} {at}"} for at in range(number)]
    return Exchange(
        lane=lane,
        number=number,
        method="POST",
        path="/v1/messages",
        request={"model": "m", "messages": messages},
        results=[f"{LONG} result"],
        status=200,
        answer=[(number, "data: {}\n\n")],
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    filled(path).close()
    with Tape(path) as tape:
        assert [lane.words for lane in tape.lanes] == ["prompt p, trial 1"]
        assert list(tape.exchanges(1)) == [exchange(1, number) for number in range(1, 21)]
        assert [spot.key for spot in tape.spots(1)] == [one.key for one in tape.exchanges(1)]
    assert (
        subprocess.run(["zcat", path], capture_output=True, check=True).stdout[:10] == b'{"tape":1}'
    )


def test_the_same_exchanges_are_the_same_file_and_shared_parts_stand_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        filled(tmp_path / name).close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    text = subprocess.run(["zcat", tmp_path / "a"], capture_output=True, check=True).stdout
    assert text.count(LONG.encode()) == 21  # 20 messages and one result


def test_a_tape_that_was_closed_can_be_added_to(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    filled(path, 3).close()
    with TapeWriter(path) as writer:
        lane = writer.add_lane(Lane(lane=0, prompt="p"))
        writer.add(exchange(lane.lane, 1))
    with Tape(path) as tape:
        assert tape.current[("", "p", 1, 0)].lane == 2
        assert len(tape.spots(1)), len(tape.spots(2)) == (3, 1)


@pytest.mark.parametrize("n_lost", [1, 30, 100])
def test_a_torn_tape_loses_only_the_last_exchange(tmp_path: Path, n_lost: int) -> None:
    path = tmp_path / "a.tape"
    os.close(filled(path).fd)  # killed: no index
    path.write_bytes(path.read_bytes()[:-n_lost])
    with Tape(path) as tape:
        assert len(tape.spots(1)) == 19
        assert tape.n_torn > 0
    with TapeWriter(path) as writer:
        writer.add(exchange(1, 20))
    with Tape(path) as tape:
        assert list(tape.exchanges())[-1] == exchange(1, 20)
        assert len(tape.spots(1)) == 20


def test_a_kill_while_the_index_is_written_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    filled(path).close()
    whole = path.read_bytes()
    for n_lost in range(1, 200, 13):
        path.write_bytes(whole[:-n_lost])
        with Tape(path) as tape:
            assert len(tape.spots(1)) == 20


def test_a_damaged_tape_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    os.close(filled(path).fd)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.tape:\d+: the tape is damaged at byte \d+"):
        Tape(path)


@pytest.mark.parametrize("content", [b"hello", b"\x1f\x8b" + b"x" * 100])
def test_what_is_no_tape_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tape"
    path.write_bytes(content)
    with pytest.raises(InputError):
        Tape(path)
    with pytest.raises(InputError):
        TapeWriter(path)
    assert path.read_bytes() == content


def test_a_tape_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.tape"
    with TapeWriter(path), pytest.raises(OutputError, match="another assay process"):
        TapeWriter(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("429:0.1", Fault(status=429, share=0.1)),
        ("503", Fault(status=503)),
        ("cut:0.05", Fault(cut=True, share=0.05)),
        ("slow:2s", Fault(slow_s=2.0)),
        ("slow:0.5s:0.5", Fault(slow_s=0.5, share=0.5)),
    ],
)
def test_faults_are_read(text: str, fault: Any) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    "text", ["", "200", "429:2", "429:0", "cut:-1", "slow:", "slow:-1s", "x:1", "cut:nan"]
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no fault"):
        parse_fault(text)
