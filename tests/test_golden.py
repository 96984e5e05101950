"""The recorded cases of the reference harness (tests/golden.tar.xz): what it wrote, we write.

A case passes when assay succeeds or fails as the reference did and every value that the reference
wrote as JSON, JSONL or CSV stands in our output too. More fields are allowed; wording is free.
"""

import csv
import json
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ARCHIVE = Path(__file__).parent / "golden.tar.xz"
CLOCK = {
    *("timestamp", "duration", "start", "end", "total", "totalDuration", "generatedAt"),
    *("firstResponse", "sessionCreation", "workspaceDir"),
}
QUANTILES = {  # ours interpolate, and our intervals are computed in another way
    *("p25", "p50", "p75", "p90", "p99", "median", "confidenceIntervals"),
    *("p25PassAtK", "p75PassAtK", "p25PassExpK", "p75PassExpK", "p25Score", "p75Score"),
    *("medianPassAtK", "medianPassExpK", "medianScore", "medianFlakiness"),
}
type Key = tuple[str | int, ...]


@cache
def members() -> dict[str, bytes]:
    """Give the content of each file of the archive."""
    with tarfile.open(ARCHIVE) as packed:
        files = [(member.name, packed.extractfile(member)) for member in packed]
        return {name.removeprefix("golden/"): file.read() for name, file in files if file}


CASES = sorted(name.split("/")[0] for name in members() if name.endswith("/manifest.json"))


@pytest.mark.recorded
@pytest.mark.parametrize("name", CASES)
def test_what_the_reference_recorded(name: str, assay: Callable[..., Any], tmp_path: Path) -> None:
    case = json.loads(members()[f"{name}/manifest.json"])
    for path, data in files_of(f"{name}/in/"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    given = (tmp_path / case["stdin"]).read_bytes() if case["stdin"] else None
    done = assay(*case["argv"], stdin=given, env=case["env"])
    assert (done.code == 0) == (case["expected_exit"] == 0), done
    found = {path: (tmp_path / path).read_text() for path in case["outputs"]}
    if case["expected_exit"] == 0:
        free = [tuple(place.replace("[*]", "").split(".")[1:]) for place in case["volatile"]]
        expected = {path: data.decode() for path, data in files_of(f"{name}/expected/files/")}
        compare(members()[f"{name}/expected/stdout"].decode(), done.stdout, free)
        for path in case["outputs"]:
            compare(expected[path], found[path], free)


def test_the_archive_holds_every_case() -> None:
    assert len(CASES) == 80


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"b": 1}'),
        ('{"a": {}}', '{"b": 1}'),
        ('{"a": [1]}', '{"a": [1, 2]}'),
        ('{"a": true}', '{"a": 1}'),
        ('{"id": "x"}\n{"id": "y"}', '{"id": "x"}'),
        ('{"a": 1}', "prose"),
        ("id,input,x\np,q,1\n", "id,input,x\np,q,2\n"),
    ],
)
def test_a_difference_is_seen(expected: str, found: str) -> None:
    with pytest.raises(AssertionError):
        compare(expected, found, [])


def test_what_may_differ() -> None:
    compare('{"a": 1, "b": null}', '{"c": 2, "a": 1.0000000001}', [])
    compare('{"id": "x"}\n{"id": "y"}', '{"id": "y"}\n{"id": "x"}', [])
    compare('{"a": [{"end": 1}]}', '{"a": [{"end": 2}]}', [])
    compare('{"a": [{"b": 1}]}', '{"a": [{"b": 2}]}', [("a", "b")])
    compare("prose", "other prose", [])


def files_of(folder: str) -> Iterator[tuple[str, bytes]]:
    for name, data in members().items():
        if name.startswith(folder):
            yield name.removeprefix(folder), data


def compare(expected: str, found: str, free: list[tuple[str, ...]]) -> None:
    """Check that each recorded value is found again, but for places that are free to differ."""
    recorded = documents(expected)
    if not recorded:
        return
    ours = documents(found)
    assert len(ours) == len(recorded), found
    for want, have in zip(recorded, ours, strict=True):
        values = dict(leaves(have))
        for place, value in leaves(want):
            if not may_differ(place, free):
                assert same(value, values.get(place)), (place, value, values.get(place))


def documents(text: str) -> list[Any]:
    """Read JSON, JSONL (sorted when ids are unique: trials may end in any order) or CSV."""
    if text.startswith("id,input,"):
        return list(csv.DictReader(text.splitlines()))
    for parts in ([line for line in text.splitlines() if line.strip()], [text]):
        try:
            rows = [json.loads(part) for part in parts]
        except ValueError:
            continue
        ids = [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]
        unique = len(set(ids)) == len(rows)
        return sorted(rows, key=lambda row: str(row["id"])) if unique else rows
    return []


def leaves(value: Any, place: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Give each value with its place; an object stands for itself, a list for its length."""
    if isinstance(value, dict):
        yield place, dict
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    elif isinstance(value, list):
        yield place, (list, len(value))
        for n, item in enumerate(value):
            yield from leaves(item, (*place, n))
    else:
        yield place, value


def may_differ(place: Key, free: list[tuple[str, ...]]) -> bool:
    keys = tuple(key for key in place if isinstance(key, str))
    return not (CLOCK | QUANTILES).isdisjoint(keys) or any(keys[: len(f)] == f for f in free)


def same(want: Any, have: Any) -> bool:
    if isinstance(want, int | float) and not isinstance(want, bool) and not isinstance(have, bool):
        return bool(have == pytest.approx(want, rel=1e-6, abs=1e-9))
    return type(want) is type(have) and bool(want == have)
