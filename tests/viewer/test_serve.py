"""The viewer over HTTP: who is let in, and what is never given out."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

import pytest


@pytest.fixture
def ask(view: Callable[..., str]) -> Callable[..., Any]:
    """Start a viewer; give a function that asks it, with any header."""

    def start(*paths: Any) -> Any:
        address = urlsplit(view(*paths))

        def ask_it(
            path: str,
            *,
            method: str = "GET",
            body: Any = None,
            token: str | None = None,
            **headers: str,
        ) -> tuple[int, Any, http.client.HTTPMessage]:
            link = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
            prefix = address.path if token is None else f"/{token}/"
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            data = json.dumps(body) if body is not None else None
            link.request(method, prefix + path, data, names)
            answer = link.getresponse()
            content = answer.read()
            link.close()
            is_json = "json" in (answer.headers["content-type"] or "")
            return answer.status, json.loads(content) if is_json else content, answer.headers

        ask_it.port = address.port  # type: ignore[attr-defined]
        return ask_it

    return start


def test_only_this_host_with_this_secret(ask: Any, runs: Path) -> None:
    get = ask(runs / "before.jsonl")
    assert get("")[0] == 200
    assert get("", Host=f"localhost:{get.port}")[0] == 200
    for host in ("evil.example", f"evil.example:{get.port}", "127.0.0.1", "[::1]", ""):
        assert get("api/overview", Host=host)[0] == 403, host
    for token in ("", "x", "a" * 24, "..", "%2e%2e"):
        assert get("api/overview", token=token)[0] == 403, token
    assert get("api/overview", Origin="http://evil.example")[0] == 403
    assert get("api/overview", Origin="null")[0] == 403
    assert get("api/overview", Sec_Fetch_Site="cross-site")[0] == 403
    assert get("api/overview", Origin=f"http://127.0.0.1:{get.port}")[0] == 200


def test_headers_are_strict(ask: Any, runs: Path) -> None:
    get = ask(runs / "before.jsonl")
    for path in ("", "api/overview", "api/nothing"):
        headers = get(path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_nothing_outside_what_was_given(ask: Any, tmp_path: Path, sample: ModuleType) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "1.out").write_text("secret")
    (secret / "log.jsonl").write_text('{"type": "secret"}\n')
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(secret)
    (inside / "fine").mkdir()
    (inside / "fine" / "1.out").write_text("hello")
    (inside / "fine" / "2.out").symlink_to(secret / "1.out")
    rows = list(sample.rows(6, seed=1, rate=1, agent="a"))
    places = ["../secret", str(secret), "link", "fine/../../secret", "fine", "x\x00y"]
    for row, place in zip(rows, places, strict=True):
        row["raw"] = place
        row["metadata"]["evidence"] = {"log": f"{place}/log.jsonl"}
    get = ask(sample.write(inside / "run.jsonl", iter(rows)))
    for row, place in zip(rows, places, strict=True):
        where = f"run=run&id={quote(row['id'])}"
        files = get(f"api/raw?{where}")[1]["files"]
        expected = [("1.out", "hello")] if place == "fine" else []
        assert [(file["name"], file["text"]) for file in files] == expected, place
        assert get(f"api/game?{where}")[1] is None, place
    for path in ("../secret/1.out", "%2e%2e/secret/1.out", "api/../../run.jsonl", "run.jsonl"):
        status, body, _ = get(path)
        assert status in (403, 404)
        assert b"secret" not in bytes(str(body), "utf-8") or status == 403
    assert get(f"api/row?runs=feedbeef&run=run&id={quote(rows[0]['id'])}")[1] is None


def test_labels_are_checked_and_land_at_once(ask: Any, tmp_path: Path, sample: ModuleType) -> None:
    file = sample.write(tmp_path / "run.jsonl", sample.rows(12, seed=3, rate=0.5, agent="a"))
    get = ask(file)
    sheet = get("api/sheet")[1]
    assert "score" not in sheet["rows"][0]
    assert "graderVersion" not in sheet["rows"][0]
    target = tmp_path / "run.labels.jsonl"
    assert not target.exists()
    said = get("api/label", method="POST", body={"number": 1, "label": "ambiguous"})[1]
    assert said == {"saved": str(target)}
    labels = [json.loads(line)["label"] for line in target.read_text().splitlines()]
    assert labels[:3] == [None, "ambiguous", None]
    for body in ({"number": 99, "label": "pass"}, {"number": 0, "label": "<b>"}):
        assert "error" in get("api/label", method="POST", body=body)[1]
    assert get("api/label", method="POST", body={"number": "x"})[0] == 400
    assert get("api/label", method="POST", body={"x": "y" * 20_000})[0] == 413
    assert get("api/label", method="GET")[0] == 405
    again = get("api/sheet")[1]["rows"]
    assert [row["label"] for row in again][:2] == [None, "ambiguous"]


def test_calibrate_reads_the_labels_and_an_exported_sheet_is_gone_on_with(
    ask: Any, assay: Callable[..., Any], tmp_path: Path, sample: ModuleType
) -> None:
    file = sample.write(tmp_path / "run.jsonl", sample.rows(12, seed=3, rate=0.5, agent="a"))
    sheet = tmp_path / "sheet.jsonl"
    assert assay("calibrate", file, "--export", sheet, "-s", "4").code == 0
    get = ask(file, "--labels", sheet)
    rows = get("api/sheet")[1]["rows"]
    assert len(rows) == 4
    for number in range(4):
        word = "pass" if number % 2 else "fail"
        assert get("api/label", method="POST", body={"number": number, "label": word})[0] == 200
    done = assay("calibrate", file, "--labels", sheet, "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["compared"] == 4


def test_rows_appear_while_a_run_is_written(ask: Any, tmp_path: Path, sample: ModuleType) -> None:
    rows = [json.dumps(row) + "\n" for row in sample.rows(9, seed=3, rate=0.5, agent="a")]
    file = tmp_path / "run.jsonl"
    file.write_text("".join(rows[:3]))
    get = ask(file)
    assert get("api/prompts")[1]["total"] == 3
    version = get("api/state")[1]["version"]
    with file.open("a") as out:
        out.write("".join(rows[3:]))
    assert get("api/state")[1]["version"] == version + 1
    assert get("api/prompts")[1]["total"] == 9
    assert get("api/prompts?limit=abc")[0] == 400


def test_empty_file_and_missing_things(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("")
    get = ask(file)
    assert get("api/overview")[1]["groups"] == []
    assert get("api/prompts")[1] == {"total": 0, "rows": []}
    assert get("api/row?run=empty&id=x")[1] is None
    assert "why" in get("api/sheet")[1]


def test_runs_of_a_folder_have_names_of_their_own(
    ask: Any, tmp_path: Path, sample: ModuleType
) -> None:
    for n in range(2):
        folder = tmp_path / "store" / f"0000000{n}-0000-0000-0000-000000000000"
        folder.mkdir(parents=True)
        sample.write(folder / "results.jsonl", sample.rows(2, seed=n, rate=1, agent="player"))
    (tmp_path / "run.raw").mkdir()
    sample.write(tmp_path / "run.raw" / "no.jsonl", sample.rows(1, seed=1, rate=1, agent="x"))
    get = ask(tmp_path)
    told = get("api/overview")[1]
    assert [run["name"] for run in told["library"]] == ["player 00000000", "player 00000001"]
    assert told["runs"] == []
    keys = ",".join(run["key"] for run in told["library"])
    chosen = get(f"api/overview?runs={keys}")[1]
    assert [run["label"] for run in chosen["runs"]] == ["player 00000000", "player 00000001"]
    assert len(chosen["groups"][0]["sections"]["pairs"]) == 1
