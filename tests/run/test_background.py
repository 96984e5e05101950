"""A run in a process of its own: it sends messages, can be stopped, and ends with its caller."""

import os
import signal
import subprocess
import sys
import threading
import time
from operator import methodcaller
from pathlib import Path

import pytest

from assay.run import background as background_module
from assay.run import process
from assay.run.background import Background
from assay.run.family import no_orphans_left
from assay.run.fork import fork_process


def receive_all(background):
    return list(iter(background.receive, None))


def wait_for(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def is_alive(pid):
    """Whether a process runs; this one may have adopted it, and nobody waits for it then."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_messages_come_in_their_order():
    def work(send):
        for n in range(1000):
            send(str(n).encode())
        send(b"x" * 3_000_000)

    *numbers, long = receive_all(Background(work))
    assert numbers == [str(n).encode() for n in range(1000)]
    assert len(long) == 3_000_000


def test_the_work_does_not_wait_for_a_caller_that_is_busy(tmp_path):
    def work(send):
        for _ in range(100):
            send(b"x" * 100_000)
        (tmp_path / "done").touch()

    background = Background(work)
    assert wait_for((tmp_path / "done").exists)
    assert len(receive_all(background)) == 100


@pytest.fixture
def with_threads(monkeypatch):
    """Be a program that must not be forked."""
    monkeypatch.setattr(background_module, "has_threads", lambda: True)
    monkeypatch.setattr(background_module.fork, "fork_process", lambda: pytest.fail("forked"))


@pytest.mark.usefixtures("with_threads")
def test_a_new_process_does_work_of_any_size():
    work = methodcaller("__call__", b"x" * 1_000_000)
    assert receive_all(Background(work)) == [b"x" * 1_000_000]


@pytest.mark.usefixtures("with_threads")
def test_nobody_waits_for_a_new_process_to_load(monkeypatch):
    monkeypatch.setattr(background_module, "_NEW", "import time; time.sleep(60)")
    background = Background(print)  # an event loop goes on meanwhile
    assert background.receive_now() is None
    os.kill(background._pid, signal.SIGKILL)
    assert background.receive() is None
    assert "SIGKILL" in background.how_it_ended


def test_close_stops_the_work_and_waits_for_it():
    def work(send):
        send(str(os.getpid()).encode())
        with pytest.raises(process.Interrupted):
            process.pause(60)
        time.sleep(0.3)

    background = Background(work)
    pid = int(background.receive())
    began = time.monotonic()
    background.close()
    assert 0.3 <= time.monotonic() - began < 10
    assert not is_alive(pid)
    assert background.receive() is None
    background.close()


def test_the_work_ends_when_its_caller_is_killed(tmp_path):
    program = """
import os, time
from assay.run import background as background_module
from assay.run import process
from assay.run.background import Background
def work(send):
    send(str(os.getpid()).encode())
    process.pause(600)
background = Background(work)  # kept: it ends with this object, too
print(background.receive().decode(), flush=True)
time.sleep(600)
"""
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    pid = int(caller.stdout.readline())
    assert is_alive(pid)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    assert wait_for(lambda: not is_alive(pid))


def test_a_copy_of_the_caller_does_not_stop_the_work():
    def work(send):
        process.pause(0.5)
        send(b"done")

    background = Background(work)
    pid = fork_process()
    if pid == 0:
        background.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert receive_all(background) == [b"done"]


def test_how_it_ended_names_a_signal():
    def work(send):
        os.kill(os.getpid(), signal.SIGKILL)

    background = Background(work)
    assert background.receive() is None
    assert background.how_it_ended == "SIGKILL killed the process that ran the trials"


def test_how_it_ended_tells_of_an_error(capfd):
    def work(send):
        raise ValueError("broken")

    background = Background(work)
    assert background.receive() is None
    assert "exit code 1" in background.how_it_ended
    assert "ValueError: broken" in capfd.readouterr().err


def test_sigterm_stops_the_work():
    def work(send):
        send(str(os.getpid()).encode())
        try:
            process.pause(60)
        except process.Interrupted:
            send(b"stopped")

    background = Background(work)
    os.kill(int(background.receive()), signal.SIGTERM)
    assert receive_all(background) == [b"stopped"]


def test_the_children_of_the_program_are_left_alone():
    own = subprocess.Popen(["sleep", "60"])
    try:

        def work(send):
            with no_orphans_left():
                send(b"x")

        receive_all(Background(work))
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


def test_it_works_beside_threads_that_hold_locks():
    lock = threading.Lock()
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            with lock:
                sys.stderr.write("")

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert receive_all(Background(lambda send: send(b"x"))) == [b"x"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_many_at_once():
    def work(send):
        process.pause(0.2)
        send(b"x")

    all_ = [Background(work) for _ in range(5)]
    all_[2].close()
    assert [receive_all(each) for n, each in enumerate(all_) if n != 2] == [[b"x"]] * 4


def test_no_file_of_the_program_stays_open_in_it(tmp_path):
    file = (tmp_path / "open").open("w")

    def work(send):
        links = list(Path("/proc/self/fd").iterdir())
        # Without the listing itself, which is closed by now.
        send("\n".join(str(link.readlink()) for link in links if link.exists()).encode())

    with file:
        (message,) = receive_all(Background(work))
    assert str(tmp_path) not in message.decode()


def test_what_is_not_closed_is_reaped_when_it_is_over():
    (pid,) = map(int, receive_all(Background(lambda send: send(str(os.getpid()).encode()))))
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
