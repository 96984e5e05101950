"""Online: against the toolkit's own server on 127.0.0.1, with its scorecards."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.cli.group import run_command
from assay_arc.cards import read_card
from assay_arc.log import read_log
from assay_arc.store import RunMeta, Store

STORE = ".arc-agi-benchmarks"
KEY = "key-of-a-test-0123456789"
SERVER = """
import logging, sys
from assay_arc.engine import silence_toolkit
logger = silence_toolkit()
from arc_agi import Arcade, OperationMode
logging.getLogger("werkzeug").setLevel(logging.ERROR)
arcade = Arcade(operation_mode=OperationMode.OFFLINE, environments_dir=sys.argv[2], logger=logger)
arcade.listen_and_serve(host="127.0.0.1", port=int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server with the built-in games."""
    from assay_arc.catalog import BUILT_IN

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    argv = [sys.executable, "-c", SERVER, str(port), str(BUILT_IN)]
    process = subprocess.Popen(
        argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{url}/api/healthcheck", timeout=2).close()
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)
    yield url
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def arc(warm_assays):
    """Run `assay arc` in a folder."""

    def run(folder: Path, *words, **env) -> SimpleNamespace:
        given = {k: v for k, v in os.environ.items() if k != "ARC_API_KEY"} | env
        done = warm_assays.run(["arc", *map(str, words)], folder, given, b"", 180)
        said = {"stdout": done.stdout.decode(), "stderr": done.stderr.decode()}
        return SimpleNamespace(returncode=done.returncode, **said)

    return run


def official_card(url: str, card_id: str) -> dict:
    request = urllib.request.Request(f"{url}/api/scorecard/{card_id}", headers={"X-API-Key": KEY})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def played(server, arc, tmp_path_factory) -> Path:
    """A folder with an online run of random: two games."""
    folder = tmp_path_factory.mktemp("online")
    words = ["run", "random", "--online", "--base-url", server, "--api-key-env", "MY_KEY"]
    done = arc(
        folder, *words, "--games", "ky01,od01", "--max-steps", "40", "-q", "-j", "2", MY_KEY=KEY
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def test_an_online_run_has_the_official_scorecard(played, server, arc):
    run = Store(played / STORE).find("latest")
    official = run.meta.official
    assert official.closed
    assert official.url == f"{server}/scorecards/{official.card_id}"
    said = (played / "said").read_text()
    assert f"Official scorecard {official.card_id}: " in said
    assert official.url in said
    kept = json.loads((run.folder / "official-scorecard.json").read_text())
    assert kept["card_id"] == official.card_id
    assert kept["tags"] == ["assay", "random", "agent"]
    assert {env["id"] for env in kept["environments"]} == {"ky01-v1", "od01-v1"}
    report = arc(played, "report").stdout
    assert f"**Official Scorecard**: {official.card_id}" in report


def test_the_server_counts_what_our_log_counts(played):
    run = Store(played / STORE).find("latest")
    kept = json.loads((run.folder / "official-scorecard.json").read_text())
    card = read_card(run)
    assert kept["total_actions"] == card.total_actions
    # The server has one play for each game, or several after resets; the best counts.
    assert card.score_percent == pytest.approx(kept["score"])
    assert run.meta.official.score_percent == pytest.approx(kept["score"])


def test_an_online_log_replays_in_our_own_copy_of_the_game(played, arc):
    done = arc(played, "verify")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Store(played / STORE).find("latest").meta.verified == "replayed"


def test_the_key_is_in_no_file_and_not_with_the_player(played, server, tmp_path, arc):
    for path in played.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    meta = json.loads((Store(played / STORE).find("latest").folder / "run-meta.json").read_text())
    assert meta["benchmark"]["online"]["keyName"] == "MY_KEY"
    peek = tmp_path / "peek.py"
    peek.write_text(
        "import json, os, sys; sys.stdin.read();"
        'print(json.dumps({"type": "result", "text": f"key: {os.environ.get(\'MY_KEY\')!r}"}))'
    )
    schema = {
        "version": 1,
        "sessionMode": "iterative",
        "name": "peek",
        "command": [sys.executable, str(peek)],
        "prompt": {"stdin": True},
        "output": {"flag": "", "value": ""},
        "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.text"},
    }
    (tmp_path / "peek.json").write_text(json.dumps(schema))
    words = ["run", "peek.json", "--online", "--base-url", server, "--api-key-env", "MY_KEY"]
    done = arc(tmp_path, *words, "--games", "ky01", "-q", MY_KEY=KEY)
    assert done.returncode == 0, done.stderr
    run = Store(tmp_path / STORE).find("latest")
    row = json.loads((run.folder / "results.jsonl").read_text())
    assert row["output"] == "key: ''"


def test_repeats_are_plays_under_one_card(server, tmp_path, arc):
    words = ["run", "random", "--online", "--base-url", server, "-k", "2", "--games", "tg01"]
    done = arc(tmp_path, *words, "--max-steps", "10", "-q", ARC_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    run = Store(tmp_path / STORE).find("latest")
    kept = json.loads((run.folder / "official-scorecard.json").read_text())
    [environment] = kept["environments"]
    assert len(environment["runs"]) == 2
    logs = [read_log(path) for path in (run.folder / "logs").glob("*.jsonl")]
    assert len(logs) == 2


def test_wrong_input_is_named_and_leaves_no_run(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refused(*words, code=1, games="ky01", **env) -> str:
        with monkeypatch.context() as here:
            here.delenv("ARC_API_KEY", raising=False)
            for name, value in env.items():
                here.setenv(name, value)
            assert run_command(["arc", "run", "random", *words, "--games", games, "-q"]) == code
        said = capsys.readouterr()
        assert KEY not in said.err + said.out
        return said.err

    url = ("--base-url", server)
    assert "'ARC_API_KEY' has no key" in refused("--online", *url)
    assert "'OTHER' has no key" in refused("--online", *url, "--api-key-env", "OTHER")
    assert "'a b' has no key" in refused("--online", *url, "--api-key-env", "a b")
    assert "is not the address of a server" in refused(
        "--online", "--base-url", "three.arcprize.org", ARC_API_KEY=KEY
    )
    assert "is not the address of a server" in refused(
        "--online", "--base-url", "http://me:secret@host", ARC_API_KEY=KEY
    )
    nobody = refused("--online", "--base-url", "http://127.0.0.1:9", ARC_API_KEY=KEY)
    assert "http://127.0.0.1:9 cannot be reached: Connection refused" in nobody
    assert "export OTHER=..." in refused("--online", *url, "--api-key-env", "OTHER")
    for option in ("--base-url", "--api-key-env"):
        assert f"{option} is empty" in refused("--online", option, "", ARC_API_KEY=KEY, code=2)
    assert "are for --online" in refused(*url, code=2)
    assert "zz99 not found" in refused("--online", *url, games="zz99", ARC_API_KEY=KEY)
    assert Store(tmp_path / STORE).native() == []


def test_full_resets_are_known_although_the_server_does_not_tell(server, games, monkeypatch):
    from assay.run.host import LocalHost
    from assay_arc.engine import OnlineEngine, ToolkitEngine
    from assay_arc.online import fetch_games, read_online_run, start_card

    monkeypatch.setenv("ARC_API_KEY", KEY)
    fetched = fetch_games(server, "ARC_API_KEY", (), LocalHost())
    ids = [info.game_id for info in fetched.infos()]
    meta = RunMeta(run_id="r", harness="t", timestamp="", game_ids=ids)
    start_card(meta, fetched, LocalHost())
    run = read_online_run(meta.benchmark["online"])
    info = next(info for info in run.infos() if info.game_id == "ky01-v1")
    online, local = OnlineEngine(run.game(info)), ToolkitEngine(games["ky01-v1"])
    assert online.start().to_answer() == local.start().to_answer()
    for action in ("ACTION4", "RESET", "RESET", "ACTION2", "ACTION4", "RESET", "ACTION1"):
        assert online.act(action).to_answer() == local.act(action).to_answer(), action
    assert official_card(server, run.card_id)["environments"][0]["id"] == "ky01-v1"
