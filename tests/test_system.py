"""What only Linux has stands in assay.system, and ASSAY_PORTABLE hides all of it."""

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import assay
from assay import system
from assay.cli import main as cli_main

SRC = Path(__file__).parents[1] / "src"
LINUX_NAMES = {
    *("pidfd_open", "pidfd_send_signal", "memfd_create", "O_TMPFILE", "O_PATH", "F_SETPIPE_SZ"),
    *("F_SETLEASE", "sched_getaffinity", "sched_setaffinity", "prlimit", "RLIMIT_MSGQUEUE"),
    *("listxattr", "getxattr", "setxattr", "removexattr", "prctl", "SO_PEERCRED", "epoll"),
    *("copy_file_range", "splice", "unshare", "setns", "eventfd", "timerfd_create", "ioctl"),
    *("CDLL", "P_PIDFD", "posix_fallocate", "getrandom", "sysinfo", "O_NOATIME", "mallopt"),
}
"""What Python's library has on Linux only, and what leads to such calls."""
LINUX_FOLDERS = ("/proc/", "/sys/")
CONFINING = {"assay/run/sandbox.py", "assay/run/landlock.py"}
"""Words for bubblewrap and a program for Landlock, which are made only where system says Linux."""
WITHOUT = {**os.environ, system.PORTABLE: "1"}


def test_only_one_folder_uses_what_only_linux_has():
    found = []
    for path in SRC.rglob("*.py"):
        name = path.relative_to(SRC).as_posix()
        if name.startswith("assay/system/") or name in CONFINING:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in LINUX_NAMES:
                found.append(f"{name}:{node.lineno}: {node.attr}")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = {one.name for one in node.names} | {getattr(node, "module", None)}
                if names & ({"ctypes", "pyinotify"} | LINUX_NAMES):
                    found.append(f"{name}:{node.lineno}: import")
            elif isinstance(node, ast.Constant) and isinstance(text := node.value, str):
                is_linux = text.startswith(LINUX_FOLDERS) or text in LINUX_NAMES
                found += [f"{name}:{node.lineno}: {text[:40]!r}"] * is_linux
    assert found == []


def test_the_check_finds_what_it_looks_for():
    text = "".join(path.read_text() for path in (SRC / "assay/system").glob("*.py"))
    assert all(name in text for name in ("pidfd_open", "O_TMPFILE", "prctl", "/proc/"))


def run(code, env=WITHOUT):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout


def test_portable_hides_every_call():
    code = """
import os, resource, socket, sys
from assay import system
from assay.system import calls
def refused(*_, **more): raise SystemExit("called")
for name in ("pidfd_open", "memfd_create", "sched_getaffinity", "listxattr"):
    setattr(os, name, refused)
calls.ctypes.CDLL = refused
fd = os.open(sys.executable, os.O_RDONLY)
print([
    system.open_pidfd(1), system.open_memory_file("x"), system.open_nameless("/tmp", 0, None),
    system.path_of(fd), system.path_to(fd), system.read_proc("self/stat"), system.list_proc(),
    system.children(1), system.has_threads(), calls.mark_limit(),
    calls.peer_user(socket.socketpair()[0]),
])
print([
    system.link_nameless(fd, "x", fd), system.share_blocks(fd, fd), system.is_ours_alone(fd),
    calls.adopt_orphans(on=True), calls.die_with_parent(),
])
system.clear_attributes(fd); system.widen_pipe(fd, 1); calls.hide_process(b"x")
calls.return_memory()
print(len(system.usable_cpus()) == os.cpu_count(), system.process_exists(os.getpid()))
"""
    nothing, no, last = run(code).splitlines()
    assert nothing == str([None] * 11)
    assert no == str([False] * 5)
    assert last == "True True"
    # Zero is as good as nothing.
    code = "from assay import system; print(system.is_linux())"
    assert run(code, {**os.environ, system.PORTABLE: "0"}).strip() == str(sys.platform == "linux")


AGENT = """
import os, subprocess, sys, time
if len(sys.argv) > 1 and sys.argv[1] == "stay":
    time.sleep(60)
for more in ({}, {"start_new_session": True}):
    subprocess.Popen([sys.executable, __file__, "stay"], stdin=subprocess.DEVNULL, **more)
print("done " + os.environ["MY_SECRET_KEY"])
"""


def test_a_run_keeps_what_can_be_kept(tmp_path, eventually):
    """No row is lost, the process tree ends with its trial, and secrets are masked."""
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    prompts = [{"id": f"p{n}", "input": "x"} for n in range(4)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts))
    env = {**WITHOUT, "MY_SECRET_KEY": "sk-0123456789abcdef"}
    words = ["capture", "prompts.jsonl", "--shell", f"{sys.executable} {script}", "-j", "2"]
    words += ["-o", "out.jsonl", "-g", "contains:text=done", "--env", "MY_SECRET_KEY", "-q"]
    command = [sys.executable, "-m", "assay", *words]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.jsonl").read_text()
    outputs = [json.loads(line)["output"] for line in text.splitlines()]
    assert [output[:15] for output in outputs] == ["done [redacted]"] * 4
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-0123456789abcdef" not in path.read_bytes(), path
    assert eventually(lambda: _alive(str(script)) == [])


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    prompts = [{"id": f"p{n}", "input": "x"} for n in range(6)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts))
    words = [sys.executable, "-m", "assay", "capture", "prompts.jsonl", "-q", "-o", "out.jsonl"]
    words += ["--shell", "sleep 0.3; echo done"]
    first = subprocess.Popen(words, cwd=tmp_path, env=WITHOUT)
    out = tmp_path / "out.jsonl"
    until = time.monotonic() + 30
    while (not out.exists() or out.read_text().count("\n") < 2) and time.monotonic() < until:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    subprocess.run([*words, "--resume"], cwd=tmp_path, env=WITHOUT, check=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == [one["id"] for one in prompts]


LAZY_INIT = """
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans come to this process, which reaps none
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from assay.graders.answer import Regex
from assay.plugin import Trial
from assay.run.host import LocalHost
from assay.run.served import close_served
[answer] = Regex(pattern="^x$")._judge_in_child([Trial(input="?", output="x")], LocalHost())
began_s = time.monotonic()
close_served()
print(answer.pass_, time.monotonic() - began_s)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="stands in for init as only Linux lets it")
def test_a_dead_process_counts_as_ended_before_init_reaps_it():
    """PID 1 of a container often reaps late, or never."""
    passed, seconds = run(LAZY_INIT).split()
    assert passed == "True"
    assert float(seconds) < 1


def _alive(word):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes()
            if word.encode() in line and b"stay" in line:
                found.append(path)
    return found


def test_doctor_says_what_is_missing(assay, tmp_path):
    done = assay("doctor", "--json", cwd=tmp_path, env={system.PORTABLE: "1"})
    rows = {row["agent"]: row for row in json.loads(done.stdout)}
    assert "no sandbox" in rows["system"]["words"]
    assert not rows["--sandbox"]["ok"]
    assert "--container" in rows["--sandbox"]["advice"][0]
    assert not rows["--memory and --cpus"]["ok"]


def test_windows_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match=r"^Assay [^.]*WSL[^.]*\.$"):
        cli_main.main()
    with pytest.raises(ImportError, match="WSL"):
        getattr(assay, "read")  # noqa: B009
