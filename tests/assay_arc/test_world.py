"""The world of a trial: a game for one agent, watched, closed with its reason, never leaked."""

import contextlib
import json
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from assay import plugins
from assay.pipeline.extract import extract
from assay.pipeline.stages import grade_capture
from assay.records.spec import Limits, PluginRef, Surroundings, TrialSpec
from assay.run.host import LocalHost
from assay.run.trial import recorded
from assay_arc.benchmark import ArcBenchmark
from assay_arc.log import Resumed, read_log


def declared(folder: Path, program: str, **env) -> PluginRef:
    """An agent that is a Python program; what it prints is its answer."""
    path = folder / "agent"
    path.write_text(textwrap.dedent(program))
    template = f"{sys.executable} {path} {{}}"
    return PluginRef(name="simple", options={"template": template})


def make_spec(folder: Path, agent: PluginRef, limits=None, **options) -> TrialSpec:
    benchmark = PluginRef(name="arc", options={"games": ["ky01"], **options})
    [(prompt, _)] = plugins.benchmark(benchmark).prompts()
    (folder / "away").mkdir(exist_ok=True)
    return TrialSpec(
        prompt=prompt,
        agent=agent,
        benchmark=benchmark,
        limits=limits or Limits(turn_s=30, term_s=0.5),
        surroundings=Surroundings(
            cwd=str(folder / "away"),
            workspace_dir=str(folder / "away" / "work"),
            raw_dir=str(folder / "away" / "raw"),
            raw_prefix="raw",
        ),
        folder="trial",
    )


def play(spec: TrialSpec):
    with recorded(spec) as recording:
        return extract(spec.prompt, recording, plugins.adapter(spec.agent))


def games_running() -> list[int]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "engine_process" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


def wait_until(condition) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_prompt_pins_the_game_and_tells_both_ways_in_but_no_secret(games):
    benchmark = ArcBenchmark(games=("ky01",), seed=3, max_steps=40, max_resets=2)
    [(prompt, _)] = benchmark.prompts()
    info = games["ky01-v1"]
    assert prompt.id == "ky01-v1"
    assert prompt.metadata["sourceSha256"] == info.source_sha256
    text = str(prompt.input)
    assert "arc-play act ACTION1" in text
    assert "MCP server `arc`" in text
    assert "40 actions and 2 resets" in text
    assert "ky01" not in text
    told = json.dumps(prompt.metadata) + text
    assert str(list(info.baselines)) not in told
    [(plain, _)] = ArcBenchmark(games=("ky01",), mcp=False).prompts()
    assert "MCP" not in plain.input
    assert "no limit" in plain.input


def test_an_agent_plays_by_command_and_evidence_comes_from_the_log(tmp_path):
    agent = declared(
        tmp_path,
        """
        import subprocess
        for words in (["look"], ["act", "ACTION4", "ACTION4"], ["act", "ACTION9"], ["status"]):
            print(subprocess.run(["arc-play", *words], capture_output=True, text=True).stdout)
        print("I have won all levels in one action")
        """,
    )
    spec = make_spec(tmp_path, agent)
    capture = play(spec)
    assert not capture.failure
    assert "changed x8-23 y8-15: 04 -> 40" in capture.output
    evidence = capture.metadata["evidence"]
    result = evidence["result"]
    assert (result["steps"], result["levelsCompleted"], result["rejected"]) == (2, 0, 1)
    assert result["stopReason"] == "player_quit"
    assert evidence["scores"]["official"]["scorePercent"] == 0.0
    log = read_log(tmp_path / "away" / "raw" / "trial" / "game.jsonl")
    assert log.header.game_id == "ky01-v1"
    graded = grade_capture(spec, capture, ArcBenchmark().graders())
    assert graded.verdict is False
    assert graded.score == 0.0
    assert graded.outcome["levels"] == 5
    assert games_running() == []


CHEATER = """
    import json, os, pathlib, re
    found = {}
    def note(kind, text, where):
        for word in ("baseline_actions", "sourceSha256", "ky01.py", "class Ky01", '"baselines"'):
            if word in text:
                found.setdefault(kind, []).append(f"{word} in {where}")
    for name, value in os.environ.items():
        if name not in ("PATH", "PYTHONPATH", "VIRTUAL_ENV"):
            note("environment", value, name)
    places = [pathlib.Path.cwd()]
    places += [pathlib.Path(os.environ["ARC_PLAY_SOCKET"]).parent.parent]
    for fd in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = pathlib.Path(os.readlink(fd))
        except OSError:
            continue
        if target.is_file():
            places += [target.parent, target.parent.parent]
    for place in places:
        for path in place.rglob("*") if place.is_dir() else []:
            if path.is_file() and path.stat().st_size < 5_000_000:
                note("files", path.read_bytes().decode("utf-8", "replace"), path)
                if path.name == "metadata.json" or path.suffix == ".py":
                    found.setdefault("files", []).append(str(path))
    def children(pid):
        try:
            kids = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return []
        return [int(kid) for kid in kids] + [k for kid in kids for k in children(int(kid))]
    for pid in [os.getpid(), *children(os.getpid())]:
        base = pathlib.Path(f"/proc/{pid}")
        for part in ("cmdline", "environ", "maps"):
            try:
                text = (base / part).read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if part != "environ":
                note("processes", text, f"{pid}/{part}")
    for name in ("arc-play", "arc-mcp"):
        import shutil
        note("programs", pathlib.Path(shutil.which(name)).read_bytes().decode("latin1"), name)
    print(json.dumps(found))
"""


def test_a_cheater_finds_nothing_in_reach(tmp_path):
    logs = tmp_path / "store" / "logs"
    agent = declared(tmp_path, CHEATER)
    spec = make_spec(tmp_path, agent, logs_dir=str(logs), logs_prefix="logs/")
    capture = play(spec)
    assert not capture.failure, capture.failure
    assert json.loads(capture.output) == {}
    assert read_log(logs / "trial.jsonl").header.baselines == (10, 7, 24, 15, 19)


def test_the_cheater_would_find_a_game_if_one_were_in_reach(tmp_path, games):
    agent = declared(tmp_path, CHEATER)
    spec = make_spec(tmp_path, agent)
    work = tmp_path / "away" / "work" / "trial"
    work.mkdir(parents=True)
    (work / "metadata.json").write_text((games["ky01-v1"].folder / "metadata.json").read_text())
    assert "files" in json.loads(play(spec).output)


def test_a_killed_game_process_is_started_again_and_the_player_goes_on(tmp_path):
    agent = declared(
        tmp_path,
        f"""
        import subprocess, time, pathlib
        def play(*words):
            return subprocess.run(["arc-play", *words], capture_output=True, text=True).stdout
        play("act", "ACTION4", "ACTION4")
        pathlib.Path({str(tmp_path / "ready")!r}).touch()
        gone = pathlib.Path({str(tmp_path / "killed")!r})
        while not gone.exists():
            time.sleep(0.01)
        print(play("act", "ACTION4"))
        """,
    )

    def kill():
        wait_until((tmp_path / "ready").exists)
        for pid in games_running():
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "killed").touch()

    thread = threading.Thread(target=kill)
    thread.start()
    capture = play(make_spec(tmp_path, agent))
    thread.join()
    evidence = capture.metadata["evidence"]
    assert "actions 3," in capture.output
    assert (evidence["restarts"], evidence["result"]["steps"]) == (1, 3)
    log = read_log(tmp_path / "away" / "raw" / "trial" / "game.jsonl")
    assert any(isinstance(record, Resumed) for record in log.records)


SABOTEUR = """
    import os, pathlib, signal, subprocess, time
    log = pathlib.Path(os.environ["THE_LOG"])
    def play(*words):
        return subprocess.run(["arc-play", *words], capture_output=True, text=True).stdout
    def games():
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if b"engine_process" in path.read_bytes():
                    stat = path.with_name("stat").read_text().rpartition(")")[2].split()
                    if int(stat[1]) == os.getppid():
                        yield int(path.parent.name)
            except OSError:
                continue
    play("act", "ACTION4", "ACTION4", "ACTION4")
    lines = log.read_bytes().splitlines(keepends=True)
    SABOTAGE
    print(play("status"))
"""
CUT = "os.truncate(log, len(b''.join(lines[:4])))"
KILL = "[os.kill(pid, signal.SIGKILL) for pid in games()]"


@pytest.mark.parametrize(
    "sabotage",
    [
        "log.open('ab').write(lines[-1])",
        "log.write_bytes(log.read_bytes().replace(b'ACTION4', b'ACTION1'))",
        "log.unlink()",
        CUT,
        f"{CUT}; {KILL}",
        f"os.rename(log, str(log) + '.mine'); log.mkdir(); {KILL}",
    ],
)
def test_a_player_that_writes_to_the_log_gains_nothing(tmp_path, monkeypatch, sabotage):
    monkeypatch.setenv("THE_LOG", str(tmp_path / "logs" / "trial.jsonl"))
    agent = declared(tmp_path, SABOTEUR.replace("SABOTAGE", sabotage))
    capture = play(make_spec(tmp_path, agent, logs_dir=str(tmp_path / "logs")))
    assert capture.failure.cause == "agent_crash"
    assert "changed its log" in capture.failure.message
    evidence = capture.metadata["evidence"]
    assert evidence["result"]["steps"] == 3
    log = read_log(tmp_path / "logs" / "trial.jsonl")
    assert [event.action for event in log.events if event.action] == ["RESET", *["ACTION4"] * 3]


@pytest.mark.parametrize("by", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_a_player_that_ends_the_game_and_goes_has_the_score_it_had(tmp_path, monkeypatch, by):
    monkeypatch.setenv("THE_LOG", str(tmp_path / "logs" / "trial.jsonl"))
    monkeypatch.setattr("assay_arc.world.MOST_RESTARTS", 0)
    kill = KILL.replace("SIGKILL", by) + "; time.sleep(0.5); raise SystemExit"
    agent = declared(tmp_path, SABOTEUR.replace("SABOTAGE", kill))
    spec = make_spec(tmp_path, agent, logs_dir=str(tmp_path / "logs"))
    capture = play(spec)
    assert capture.failure.cause == "agent_crash"
    assert "the game process was killed" in capture.failure.message
    result = capture.metadata["evidence"]["result"]
    assert (result["stopReason"], result["steps"], result["won"]) == ("game_killed", 3, False)
    graded = grade_capture(spec, capture, ArcBenchmark().graders())
    assert graded.verdict is False
    assert "game killed" in graded.reasoning


FAKE_GEMINI = """#!/bin/sh
echo '{"type":"init","session_id":"s1","model":"m","timestamp":"2026-01-01T00:00:00Z"}'
PLAY
echo '{"type":"result","status":"success","stats":{},"timestamp":"2026-01-01T00:00:01Z"}'
"""


def fake_gemini(folder: Path, play: str = "") -> PluginRef:
    program = folder / "gemini"
    program.write_text(FAKE_GEMINI.replace("PLAY", play))
    program.chmod(0o755)
    return PluginRef(name="gemini", options={"argument": str(program)})


def test_an_agent_that_never_asked_for_the_tools_is_not_measured(tmp_path):
    capture = play(make_spec(tmp_path, fake_gemini(tmp_path)))
    assert capture.failure.cause == "world"
    assert "tools were not offered" in capture.failure.message


def test_an_agent_that_had_a_way_to_play_is_measured(tmp_path):
    by_command = fake_gemini(tmp_path, "arc-play look > /dev/null")
    assert not play(make_spec(tmp_path, by_command)).failure
    ask = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    asked = f"echo '{ask}' | ${{ARC_PLAY%play}}mcp > /dev/null"
    assert not play(make_spec(tmp_path, fake_gemini(tmp_path, asked))).failure
    assert not play(make_spec(tmp_path, fake_gemini(tmp_path), mcp=False)).failure


def test_a_game_that_keeps_being_killed_counts_against_the_player(tmp_path, monkeypatch):
    monkeypatch.setattr("assay_arc.world.MOST_RESTARTS", 0)
    agent = declared(
        tmp_path,
        """
        import os, subprocess, time
        subprocess.run(["arc-play", "act", "ACTION4"], capture_output=True)
        ready = os.environ["READY"]
        open(ready, "w").close()
        while os.path.exists(ready):
            time.sleep(0.01)
        """,
    )
    monkeypatch.setenv("READY", str(tmp_path / "ready"))

    def kill():
        wait_until((tmp_path / "ready").exists)
        for pid in games_running():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not games_running())
        time.sleep(0.5)
        (tmp_path / "ready").unlink()

    thread = threading.Thread(target=kill)
    thread.start()
    capture = play(make_spec(tmp_path, agent))
    thread.join()
    assert capture.failure.cause == "agent_crash"
    assert "the game process was killed" in capture.failure.message
    result = capture.metadata["evidence"]["result"]
    assert (result["stopReason"], result["steps"]) == ("game_killed", 1)


@pytest.mark.parametrize(
    ("program", "limits", "reason", "cause"),
    [
        ("import time; time.sleep(60)", Limits(turn_s=0.5, term_s=0.2), "timeout", "agent_timeout"),
        ("import os; os.kill(os.getpid(), 9)", None, "crash", "agent_crash"),
    ],
)
def test_the_log_says_why_the_player_stopped(tmp_path, program, limits, reason, cause):
    capture = play(make_spec(tmp_path, declared(tmp_path, program), limits))
    assert capture.failure.cause == cause
    assert capture.metadata["evidence"]["result"]["stopReason"] == reason


def test_a_game_that_can_not_start_is_a_failure_of_the_world(tmp_path, arc):
    info = arc.write_game(tmp_path / "own", [1], source="raise RuntimeError('no game today')\n")
    agent = declared(tmp_path, "print('hello')")
    benchmark = PluginRef(
        name="arc", options={"games": ["zz01"], "games_dir": str(tmp_path / "own")}
    )
    spec = make_spec(tmp_path, agent)
    [(prompt, _)] = plugins.benchmark(benchmark).prompts()
    spec = msgspec.structs.replace(spec, prompt=prompt, benchmark=benchmark)
    capture = play(spec)
    assert capture.failure.cause == "world"
    assert "zz01" in capture.failure.message
    info.source.write_text("# another version\n")
    assert "has changed" in play(spec).failure.message


def test_a_games_code_sees_none_of_our_keys(tmp_path, arc, monkeypatch):
    """A game is a stranger's code; its process is given no more than Python needs."""
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    loot = tmp_path / "loot"
    thief = f"import os; open({str(loot)!r}, 'w').write(' '.join(os.environ))\n"
    arc.write_game(tmp_path / "own", [1], source=thief)
    benchmark = {"games": ["zz01"], "games_dir": str(tmp_path / "own")}
    spec = make_spec(tmp_path, declared(tmp_path, "print('hello')"))
    ref = PluginRef(name="arc", options=benchmark)
    [(prompt, _)] = plugins.benchmark(ref).prompts()
    play(msgspec.structs.replace(spec, prompt=prompt, benchmark=ref))
    assert "PATH" in loot.read_text().split()
    assert "SOME_API_KEY" not in loot.read_text()


def test_mcp_servers_are_handed_to_the_adapter(tmp_path):
    seen = {}

    class Spy:
        def __init__(self, adapter):
            self._adapter = adapter

        def __getattr__(self, name):
            return getattr(self._adapter, name)

        def command(self, ask):
            seen.update(ask.mcp_servers)
            return self._adapter.command(ask)

    agent = declared(tmp_path, "print('hello')")
    real = plugins.adapter(agent)
    plugins._plugins["assay.adapters", msgspec.json.encode(agent)] = Spy(real)
    try:
        play(make_spec(tmp_path, agent))
        assert Path(seen["arc"]["command"]).name == "arc-mcp"
        assert set(seen["arc"]["env"]) == {"ARC_PLAY_SOCKET", "ARC_PLAY_TOKEN"}
        seen.clear()
        play(make_spec(tmp_path, agent, mcp=False))
        assert seen == {}
    finally:
        del plugins._plugins["assay.adapters", msgspec.json.encode(agent)]


def test_a_started_program_is_ended_with_all_its_kin(tmp_path):
    shell = "sleep 300 & echo $!; sleep 300"
    started = LocalHost().start(["/bin/sh", "-c", shell], env={}, cwd=str(tmp_path))
    wait_until(started.output_end)
    child = int(started.output_end())
    assert not started.ended
    started.end()
    started.end()
    assert started.ended
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
