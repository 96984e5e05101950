"""The game process: private, offline, survives its players, and goes on after a kill -9."""

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from assay_arc.client import GameConnection, GameGone
from assay_arc.engine_process import verify
from assay_arc.log import Limits, Resumed, read_log
from assay_arc.scoring import derive_result
from assay_arc.server import VARIABLE
from assay_arc.world import close_game, plan_game


@pytest.fixture
def player():
    made = []

    def make(game, **options):
        config = game.plan.config
        made.append(GameConnection(str(config.socket), config.token, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def send(game, data):
    """Send raw bytes and give what comes back until the other side closes or is silent."""
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(game.plan.config.socket))
        raw.settimeout(2)
        raw.sendall(data)
        return raw.recv(1 << 20)


def test_one_game_from_start_to_close(serve, player, tmp_path, solutions, games):
    """Many checks on one process, since starting one takes seconds."""
    (tmp_path / ".env").write_text("OPERATION_MODE=online\nARC_API_KEY=from-dotenv\n")
    game = serve(limits=Limits(max_steps=200, max_resets=3))
    folder = game.plan.config.socket.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(game.plan.config.socket.stat().st_mode) == 0o600

    # No token, a wrong one, or the player's for closing: refused, and nothing is done.
    for token in ("", "x" * 32, game.plan.config.token[:-1]):
        line = json.dumps({"op": "act", "action": "ACTION4", "token": token}).encode() + b"\n"
        assert json.loads(send(game, line))["error"] == "wrong token"
    one = player(game)
    assert "only the owner" in one.ask(op="close")["error"]

    # Garbage and half requests leave the game as it was; two players share one game.
    assert b"not valid JSON" in send(game, b"hello\n")
    assert b"not valid JSON" in send(game, b"x" * 70_000)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(game.plan.config.socket))
        raw.sendall(b'{"op":"act","action":"ACTION4"')
    two = player(game)
    assert one.ask(op="act", action="ACTION4")["steps"] == 1
    assert two.ask(op="status")["steps"] == 1
    assert "unknown action" in two.ask(op="act", action="FLY")["error"]
    assert two.ask(op="look", image=True)["image"].startswith("iVBOR")

    # A player that goes away in the middle of its request, or never reads, disturbs nobody.
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(game.plan.config.socket))
        request = json.dumps({"op": "look", "token": game.plan.config.token}).encode() + b"\n"
        raw.sendall(request * 50)
    assert one.ask(op="reset")["ok"]
    for step in solutions["ky01-v1"][0]:
        reply = one.ask(op="act", action=step[0])
    assert reply["levelsCompleted"] == 1
    assert close_game(game.plan, "timeout", "wall clock")
    assert game.process.wait(10) == 0
    assert not game.plan.config.socket.exists()
    assert game.process.stderr.read() == b""

    log = read_log(game.log)
    assert log.header.source_sha256 == games["ky01-v1"].source_sha256
    assert (log.header.toolkit_version, log.header.seed_used) == ("0.9.9", True)
    result = derive_result(log)
    assert (result.steps, result.resets, result.stop_reason) == (11, 1, "timeout")
    assert game.plan.config.token not in game.log.read_text()
    assert verify(read_log(game.log), games["ky01-v1"]).replayed


def test_kill_9_leaves_a_whole_log_and_a_restart_goes_on(serve, player, solutions, games):
    game = serve(limits=Limits(max_steps=50))
    one = player(game, retry_s=20)
    way = [step[0] for step in solutions["ky01-v1"][0]]
    for action in way[:6]:
        one.ask(op="act", action=action)
    one.ask(op="act", action=way[6], id="seven")
    game.process.send_signal(signal.SIGKILL)
    game.process.wait()
    assert len(read_log(game.log).events) == 9
    with game.log.open("ab") as file:
        file.write(b'{"type":"event","seq":9,"at":"20')

    again = serve(plan=game.plan)
    # The same player goes on; what it asked before the crash is not done again.
    assert one.ask(op="act", action=way[6], id="seven")["steps"] == 7
    for action in way[7:]:
        reply = one.ask(op="act", action=action)
    assert (reply["levelsCompleted"], reply["steps"]) == (1, 10)
    assert one.ask(op="quit")["ok"]
    assert again.process.wait(10) == 0

    log = read_log(game.log)
    assert sum(isinstance(record, Resumed) for record in log.records) == 1
    result = derive_result(log)
    assert (result.steps, result.stop_reason, len(result.plays)) == (10, "player_quit", 1)
    assert result.plays[0].marks == ((1, 10),)
    assert verify(read_log(game.log), games["ky01-v1"]).replayed


def test_many_kills_in_mid_game_and_every_action_is_done_exactly_once(serve, player, games):
    """A player acts without pause while its game process is killed and started again."""
    game = serve("gd01-v1")
    one = player(game, retry_s=30)
    n_actions = 600

    def act():
        for _ in range(n_actions):
            if one.ask(op="act", action="ACTION5")["state"] == "GAME_OVER":
                one.ask(op="reset")

    thread = threading.Thread(target=act)
    thread.start()
    for pause_s in (0.05, 0.11, 0.02):
        time.sleep(pause_s)
        game.process.kill()
        game.process.wait()
        game = serve(plan=game.plan)
    thread.join(60)
    assert close_game(game.plan, "player_quit")
    assert game.process.wait(10) == 0
    log = read_log(game.log)
    assert sum(isinstance(record, Resumed) for record in log.records) == 3
    assert derive_result(log).steps == n_actions
    assert verify(read_log(game.log), games["gd01-v1"]).replayed


def test_a_full_disk_ends_the_process_with_a_whole_log(serve, player, games):
    game = serve()
    one = player(game, retry_s=0)
    size = game.log.stat().st_size + 3000
    resource.prlimit(game.process.pid, resource.RLIMIT_FSIZE, (size, size))
    answered = 0
    with contextlib.suppress(GameGone):
        while one.ask(op="act", action="ACTION2")["ok"]:
            answered += 1
    assert game.process.wait(10) == 1
    assert b"Traceback" not in game.process.stderr.read()
    log = read_log(game.log)
    assert not log.torn
    assert derive_result(log).steps == answered > 0
    again = serve(plan=game.plan)
    assert player(again).ask(op="act", action="ACTION2")["steps"] == answered + 1


def test_a_game_process_hides_itself():
    script = (
        "import ctypes\n"
        "from assay_arc.engine_process import _hide_process\n"
        "_hide_process()\n"
        "assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_game_without_its_owner_ends(short_folder, tmp_path, games):
    plan = plan_game(games["ky01-v1"].folder, tmp_path / "log", short_folder / "s" / "g")
    script = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(sys.argv[1:], env=os.environ)\n"
        "time.sleep(60)\n"
    )
    environ = {**os.environ, **plan.env}
    parent = subprocess.Popen([sys.executable, "-c", script, *plan.argv], env=environ)
    _wait_for(plan.config.socket.exists)
    parent.kill()
    parent.wait()
    _wait_for(lambda: not plan.config.socket.exists())
    assert derive_result(read_log(plan.config.log)).stop_reason == "crash"


def _wait_for(condition, timeout_s=20):
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def run(environ, stdin=""):
    argv = [sys.executable, "-m", "assay_arc.engine_process", "serve"]
    return subprocess.run(
        argv, env={**os.environ, **environ}, input=stdin, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token": "short"}, "at least 16"),
        ({"ownerToken": "t" * 32, "token": "t" * 32}, "must differ"),
        ({"socket": "/tmp/" + "x" * 120}, "shorter folder"),
        ({"seed": "one"}, "seed"),
    ],
)
def test_bad_settings_are_said_in_one_line(games, tmp_path, short_folder, change, words):
    plan = plan_game(games["ky01-v1"].folder, tmp_path / "log", short_folder / "s" / "g")
    settings = json.loads(plan.env[VARIABLE]) | change
    done = run({VARIABLE: json.dumps(settings)})
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "log").exists()


def test_settings_may_come_on_stdin_and_an_open_folder_is_refused(games, tmp_path, short_folder):
    (short_folder / "s").mkdir(mode=0o755)
    plan = plan_game(games["ky01-v1"].folder, tmp_path / "log", short_folder / "s" / "g")
    done = run({}, stdin=plan.env[VARIABLE] + "\n")
    assert done.returncode == 1
    assert "0700" in done.stderr


def test_another_games_log_is_not_resumed(table, serve, short_folder, games):
    """Started with the log of one game and told to serve another."""
    other = table("gd01-v1")
    other.log.close()
    plan = plan_game(games["ky01-v1"].folder, other.path, short_folder / "s" / "g")
    before = other.path.read_bytes()
    done = run(plan.env)
    assert done.returncode == 1
    assert "game_id" in done.stderr
    assert other.path.read_bytes() == before


def test_a_game_process_has_no_network(tmp_path):
    script = (
        "import socket\n"
        "from assay_arc.engine import shut_network\n"
        "shut_network()\n"
        "for call in (lambda: socket.create_connection(('127.0.0.1', 9)),\n"
        "             lambda: socket.getaddrinfo('localhost', 80),\n"
        "             lambda: socket.socket().bind(('127.0.0.1', 0))):\n"
        "    try:\n"
        "        call()\n"
        "    except PermissionError:\n"
        "        print('refused')\n"
        "socket.socket(socket.AF_UNIX).bind('s')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["refused"] * 3


def test_opening_a_game_reads_no_env_file_prints_nothing_and_ignores_settings(tmp_path, games):
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    (tmp_path / ".env.example").write_text("FROM_EXAMPLE=1\n")
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from assay_arc.catalog import read_game\n"
        "from assay_arc.engine import ToolkitEngine\n"
        "engine = ToolkitEngine(read_game(Path(sys.argv[1])))\n"
        "engine.act('ACTION4'); engine.act('RESET'); seen = engine.act('RESET')\n"
        "assert seen.full_reset\n"
        "assert not {'FROM_DOTENV', 'FROM_EXAMPLE'} & set(os.environ)\n"
    )
    environ = {**os.environ, "OPERATION_MODE": "competition", "ONLY_RESET_LEVELS": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script, games["ky01-v1"].folder],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", ".env.example"]


def test_the_rest_of_the_package_does_not_import_the_toolkit():
    script = (
        "import sys\n"
        "import assay_arc.world, assay_arc.catalog\n"
        "import assay_arc.catalog, assay_arc.scoring\n"
        "import assay_arc.replay, assay_arc.engine_process\n"
        "assert not {'arc_agi', 'arcengine', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


LEFT_OUT = "not {'matplotlib', 'requests', 'flask'} & set(sys.modules)"


@pytest.mark.parametrize(
    ("before", "loaded"),
    [
        ("", "'matplotlib' not in sys.modules and 'requests' in sys.modules"),
        ("engine.shut_network()", LEFT_OUT),
        # A toolkit that uses what was left out is loaded once more, with it.
        ("engine._NEED_NETWORK = ('pydantic',); engine.shut_network()", "'flask' in sys.modules"),
    ],
)
def test_the_toolkit_is_loaded_without_what_is_not_used(games, before, loaded):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from assay_arc import catalog, engine\n"
        f"{before}\n"
        "game = engine.ToolkitEngine(catalog.read_game(Path(sys.argv[1])))\n"
        "assert game.act('ACTION4').state == 'NOT_FINISHED'\n"
        f"assert {loaded}\n"
        "from matplotlib import __file__; from requests import get\n"  # a game may still use them
    )
    command = [sys.executable, "-c", program, games["ky01-v1"].folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
