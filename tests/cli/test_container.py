"""An agent under --container: podman from Debian, with an image that the test makes."""

import json
import os
import runpy
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.containers import IMAGE, containers, podman
from tests.real.test_provider_settings import KEY, configure

from assay.adapters.vendor import KNOWN
from assay.records.spec import Limits
from assay.run.container import Container
from assay.run.sandbox import View
from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.cold

TABLE = runpy.run_path(str(Path(__file__).parents[1] / "security_table.py"))
__all__ = ["podman"]
AGENT = """
said=$(eval "$2" 2>&1)
code=$?
printf '{"type":"result","result":"%s"}\\n' "$(printf %s "$said" | tr '\\n' '|')"
exit $code
"""


@pytest.fixture
def told(
    assay: Callable, agent: Callable, prompts: Callable, podman: dict[str, str], tag: str
) -> Callable[..., dict[str, Any]]:
    """Let the agent evaluate one prompt in a container; give its row."""

    def run(text: str, *args: Any, env: dict[str, str] | None = None) -> dict[str, Any]:
        schema = agent(command=["/bin/sh", "-c", AGENT, "agent", tag])
        words = ("capture", prompts(text), "-s", schema, "--workspace-dir", "w")
        done = assay(*words, "--container", IMAGE, *args, env={**podman, **(env or {})})
        assert len(done.rows) == 1, done
        return done.rows[0]

    return run


def test_sees_only_what_is_its_own(told: Callable, tmp_path: Path, podman: dict[str, str]) -> None:
    planted = tmp_path / "planted"
    planted.write_text("secret-3f")
    text = f"cat {planted}; echo made > made; echo x > ~/note; echo y > /tmp/note; : > /bin/x"
    row = told(text)
    assert "secret-3f" not in row["output"]
    assert row["output"].count("No such file") == 1, row
    assert "Read-only" in row["output"]
    assert (tmp_path / "w/prompt-p0/made").read_text() == "made\n"
    assert (tmp_path / "w/prompt-p0/made").stat().st_uid == os.getuid()
    assert containers(podman) == ""


def test_finds_what_the_table_of_the_docs_says(
    assay: Callable,
    prompts: Callable,
    read_rows: Callable,
    podman: dict[str, str],
    tmp_path: Path,
) -> None:
    asked = TABLE["make_places"](tmp_path)
    env = {**podman, "HOME": str(tmp_path / "home"), "UNDECLARED": "1"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked |= {"port": server.getsockname()[1], "victim": os.getpid()}
        words = ("--shell", f'python3 -SEc "{TABLE["AGENT"]}"', "--container", IMAGE)
        words += ("-c", "project", "--workspace-dir", "w", "-g", "grader.py", "-o", "out.jsonl")
        assay("capture", prompts(TABLE["told"](asked)), *words, env=env)
    TABLE["check"]("container", read_rows(tmp_path / "out.jsonl")[0], asked["seconds"])


def test_exit_codes_and_signals_come_through(told: Callable) -> None:
    assert told("exit 7")["metadata"]["exitCode"] == 7
    row = told("exit 127")
    assert (row["metadata"]["exitCode"], row["failure"]["cause"]) == (127, "agent_crash")


def test_a_missing_program_is_no_failure_of_the_agent(
    assay: Callable, agent: Callable, prompts: Callable, podman: dict[str, str]
) -> None:
    schema = agent(command=["no-such-program"])
    words = ("capture", prompts("x"), "-s", schema, "--workspace-dir", "w")
    row = assay(*words, "--container", IMAGE, env=podman).rows[0]
    assert row["failure"]["cause"] == "spawn", row


def test_a_timeout_ends_it(told: Callable, podman: dict[str, str], alive: Callable) -> None:
    row = told("trap '' TERM; sleep 60 & sleep 60", "-t", 1500)
    assert row["failure"]["cause"] == "agent_timeout"
    assert containers(podman) == ""
    assert alive() == []


def test_too_much_memory_is_a_limit_reached(told: Callable) -> None:
    row = told("exec python3 -IS -c 'x = bytearray(300 << 20)'", "--memory", "50M")
    assert row["failure"]["cause"] == "agent_limit", row
    assert row["metadata"]["limits"] == {"memoryBytes": 50 << 20, "by": "podman"}


def test_it_ends_when_assay_itself_is_killed(
    start: Callable,
    agent: Callable,
    prompts: Callable,
    podman: dict[str, str],
    tag: str,
    tmp_path: Path,
    eventually: Callable,
) -> None:
    schema = agent(command=["/bin/sh", "-c", AGENT, "agent", tag])
    words = ("capture", prompts("echo > started; sleep 300"), "-s", schema)
    process = start(*words, "--workspace-dir", "w", "--container", IMAGE, env=podman)
    assert eventually((tmp_path / "w/prompt-p0/started").exists), process.poll()
    process.send_signal(signal.SIGKILL)
    assert eventually(lambda: containers(podman) == "", 30)


ASK = (
    'exec python3 -IS -c \'import _socket as s; c = s.socket(); c.connect(("127.0.0.1", {})); '
    "print(c.recv(99).decode())'"
)


def test_no_network_reaches_the_named_address_only(told: Callable) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        text = f"({ASK.format(port)})"
        assert told(text)["output"] == "hello"
        env = {"MY_BASE_URL": f"http://127.0.0.1:{port}"}
        words = ("--sandbox=no-network", "--env", "MY_BASE_URL")
        assert told(text, *words, env=env)["output"] == "hello"
        row = told(f"({ASK.format(port)}) 2> /dev/null || echo refused", "--sandbox=no-network")
        assert row["output"] == "refused"


ASK_MODEL = (
    "exec python3 -IS -c 'import _socket as s, posix; "
    'u = posix.environ[b"OPENAI_BASE_URL"].decode(); p, t = u.split(":")[2].split("/", 1); '
    'b = b"{\\"model\\": \\"m\\", \\"messages\\": []}"; '
    'c = s.socket(); c.connect(("127.0.0.1", int(p))); '
    'c.send(b"POST /%s/chat/completions HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n'
    'content-length: %d\\r\\n\\r\\n" % (t.encode(), len(b)) + b); d = b""\n'
    "while r := c.recv(9999): d += r\n"
    'print(b"Four." in d)\''
)


@pytest.mark.parametrize("network", ["", "no-network"])
def test_models_answers_are_recorded_and_replayed(told: Callable, network: str) -> None:
    words = (f"--sandbox={network}",) if network else ()
    with ScriptedModel({"steps": [{"text": "Four."}], "toolless": "step"}) as model:
        env = {"OPENAI_BASE_URL": f"{model.url}/v1"}
        row = told(ASK_MODEL, *words, "--record", "a.tape", env=env)
    assert (row["output"], row["wire"]["requests"]) == ("True", 1), row
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    row = told(ASK_MODEL, *words, "--replay", "a.tape", env=env)
    assert (row["output"], row["replay"]["hits"]) == ("True", 1), row


def greet(server: socket.socket) -> None:
    while True:
        try:
            client = server.accept()[0]
        except OSError:
            return
        with client:
            client.sendall(b"hello")


def test_is_refused_without_its_image(
    assay: Callable, prompts: Callable, podman: dict[str, str]
) -> None:
    done = assay("capture", prompts("x"), "-s", "demo", "--container", "nosuch:1", env=podman)
    assert (done.code, "podman has no image nosuch:1" in done.stderr) == (1, True), done


def test_is_refused_where_no_container_can_be_run(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    reason = "Error: crun: cgroups in hybrid mode not supported"
    program.write_text(f"#!/bin/sh\n[ $1 != run ] && exit 0\necho '{reason}' >&2; exit 126\n")
    program.chmod(0o755)
    env = {"PATH": str(program.parent)}
    done = assay("capture", prompts("x"), "-s", "demo", "--container", "any", env=env)
    assert done.code == 1
    assert f"podman cannot run a container here: {reason}" in done.stderr


def test_is_refused_without_an_engine(assay: Callable, prompts: Callable, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    done = assay("capture", prompts("x"), "-s", "demo", "--container", "any", env=env)
    assert done.code == 1
    assert "needs docker or podman, and neither answers" in done.stderr
    assert "apt install podman" in done.stderr


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_the_command_line_holds_no_secret(engine: str, tmp_path: Path) -> None:
    view = View(workspace=str(tmp_path), home=f"{tmp_path}/home", visible=["/nowhere"], etc="")
    env = {"API_KEY": "sk-123456", "HOME": f"{tmp_path}/home", "PATH": "/ours"}
    limits = Limits(memory_bytes=1 << 30, cpus=1.5)
    words = Container(engine, "image:1", "name").run(
        ["agent", "say"], env, view, network=False, talk=True, limits=limits
    )
    text = " ".join(words)
    assert "sk-123456" not in text
    assert "--env API_KEY" in text
    assert f"--env HOME={tmp_path}/home" in text
    assert "/ours" not in text
    assert "/nowhere" not in text
    assert "--network none" in text
    assert "--memory 1073741824" in text
    assert words[-4:] == ["--entrypoint", "agent", "image:1", "say"]


ENGINE = """#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[1:]
if words[0] == "run" and "--name" in words:
    home = next(word[5:] for word in words if word.startswith("HOME="))
    files = [path for path in pathlib.Path(home).rglob("*") if path.is_file()]
    told = {"words": words, "files": {str(path): path.read_text() for path in files}}
    named = [after for word, after in zip(words, words[1:]) if word == "--env"]
    told["env"] = {name: os.environ[name] for name in named if name in os.environ}
    pathlib.Path(os.environ["TOLD"]).write_text(json.dumps(told))
"""
"""Answers as podman would, and writes down what it was to start."""


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_provider_of_the_users_settings_goes_into_the_container(
    assay: Callable, prompts: Callable, tmp_path: Path, name: str
) -> None:
    home, url, told = tmp_path / "home", "http://127.0.0.1:9", tmp_path / "told.json"
    configure(name, home, url)
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    env = {"HOME": str(home), "PATH": f"{engine.parent}:{os.environ['PATH']}", "TOLD": str(told)}
    env |= {"MOCK_API_KEY": KEY}
    done = assay("capture", prompts("x"), "-s", name, "--container", "any", env=env)
    started = json.loads(told.read_text())
    words, given = " ".join(started["words"]), json.dumps([started["env"], started["files"]])
    assert url in words + given, done.stderr
    assert KEY not in words
    if name == "claude":  # the agent itself asks the program for its key
        assert f"{home}/bin/key.sh:{home}/bin/key.sh:ro" in words
        assert f"{home}/bin/key.sh" in words.partition("--settings")[2]
    else:
        assert KEY in started["env"].values()
        assert KEY not in json.dumps(started["files"])
    assert done.rows[0]["identity"]["offered"]["~/ (provider settings)"]


def test_the_shipped_image_has_the_versions_that_are_tested() -> None:
    text = (Path(__file__).parents[2] / "containers/Dockerfile").read_text()
    for agent in KNOWN:
        assert f"ARG {agent.name.upper()}={agent.tested[0]}\n" in text
        assert f"@${{{agent.name.upper()}}}" in text
    assert "\nUSER agent\n" in text


TASK = {
    "task.toml": '[environment]\nmemory_mb = 200\n[environment.env]\nWORD = "hello"\n',
    "instruction.md": "cat made; ls -d /tests /solution; echo $WORD > /app/hello.txt",
    "environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\nCOPY data.txt .\n"
    "RUN cp data.txt made && echo tool > /bin/tool\n",
    "environment/data.txt": "data",
    "tests/test.sh": '#!/bin/sh\nif test "$(cat hello.txt made /bin/tool)" = "$(cat /tests/want)"\n'
    "then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
    "tests/want": "hello\ndatatool\n",
    "solution/solve.sh": "#!/bin/sh\necho hello > /app/hello.txt\n",
}


def test_a_harbor_task_that_needs_an_image_runs_in_one(
    assay: Callable, agent: Callable, podman: dict[str, str], tmp_path: Path
) -> None:
    for name, text in TASK.items():
        path = tmp_path / "tasks/made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    build = [
        "podman",
        "build",
        "--network",
        "host",
        "-t",
        "task:1",
        tmp_path / "tasks/made/environment",
    ]
    done = subprocess.run(
        build, env=os.environ | podman, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    schema = agent(command=["/bin/sh", "-c", AGENT, "agent", "tag"])
    words = ("capture", "--benchmark", "harbor:tasks", "--workspace-dir", "w")
    host = assay(*words, "-s", schema, "--sandbox", env=podman)
    assert host.code == 1
    assert "it needs an image: its base image is" in host.stderr
    container = ("--container", "task:1")
    solved, idle, worked = (
        assay(*words, "-s", name, *container, env=podman).rows[0]
        for name in ("oracle", "nop", schema)
    )
    assert solved["score"]["pass"] is True, solved
    assert (idle["score"]["pass"], idle["score"]["score"]) == (False, 0), idle
    assert worked["score"]["pass"] is True, worked
    assert worked["output"].startswith("data"), worked
    assert worked["output"].count("No such file") == 2
    assert worked["metadata"]["limits"]["memoryBytes"] == 200 << 20
    assert containers(podman) == ""


def test_a_container_has_one_image_for_all_harbor_tasks_of_a_run(
    assay: Callable, podman: dict[str, str], tmp_path: Path
) -> None:
    for task in ("one", "two"):
        for name, text in TASK.items():
            path = tmp_path / "tasks" / task / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("made", task))
    words = ("capture", "--benchmark", "harbor:tasks", "-s", "nop", "--container", IMAGE)
    done = assay(*words, env=podman)
    assert done.code == 1
    assert "different images" in done.stderr


STREAMS = (
    "os.ftruncate(4, 10 << 40)",
    "os.ftruncate(5, 10 << 40)",
    "os.fchmod(4, 0o4755)",
    "os.fchown(5, 1234, 1234)",
    "os.posix_fallocate(4, 0, 700 << 20)",
    "os.lseek(4, 9 << 40, 0)",
)
"""What an agent does to its stdout and stderr; here they are pipes of the runtime, so it fails."""


def test_the_streams_of_a_container_are_out_of_its_reach(
    told: Callable, tmp_path: Path, podman: dict[str, str]
) -> None:
    lines = "".join(f"try:\n  {one}\nexcept OSError: print('refused')\n" for one in STREAMS)
    (tmp_path / "w.template").mkdir()
    (tmp_path / "w.template/hostile.py").write_text(f"import os\n{lines}")
    text = "python3 -S hostile.py 4>>/proc/$$/fd/1 5>>/proc/$$/fd/2"
    row = told(text, "--workspace-template", "w.template", "--raw-dir", "raw")
    assert "failure" not in row, row
    assert row["output"].count("refused") == 5, "a pipe can be given another mode"
    for file in filter(Path.is_file, (tmp_path / "raw").rglob("*")):
        assert (file.stat().st_mode & 0o7777, file.stat().st_size < 9999) == (0o644, True)


def test_an_agent_that_tries_to_get_out_stays_in(
    told: Callable, tmp_path: Path, podman: dict[str, str]
) -> None:
    """Its own folders become links, it makes devices and mounts, and writes what the kernel has."""
    (tmp_path / "secret").write_text("secret-3f")
    tries = {
        "own file": "open('own', 'w')",
        "device": "import os; os.mknod('d', 0o60660, os.makedev(8, 0)); os.open('d', 0)",
        "mount": "import ctypes; x = ctypes.CDLL(None).mount(b'proc', b'/mnt', b'proc', 0, 0)"
        "; assert x == 0",
        "namespace": "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000 | 0x20000) == 0",
        "chroot": "import os; os.chroot('.')",
        "setuid": "import os; os.setgroups([]); os.setuid(1)",
        "sysctl": "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')",
        "sysrq": "open('/proc/sysrq-trigger', 'w').write('h')",
        "control group": "import os; os.mkdir('/sys/fs/cgroup/mine')",
        "engine": "import glob; assert glob.glob('/run/*/podman*') + glob.glob('/run/docker*')",
        "memory": "open('/proc/1/mem', 'rb+').write(b'x') if open('/dev/mem') else 0",
        "processes": "import os; assert any(int(p) > 1000 for p in os.listdir('/proc') "
        "if p.isdigit() and b'assay' in open(f'/proc/{p}/cmdline', 'rb').read().split(b'\\0')[0])",
        "variable": "import os; assert 'CONTAINERS_CONF' in os.environ",
    }
    code = "\n".join(
        f"try:\n exec({text!r})\n print({name!r})\nexcept BaseException: pass"
        for name, text in tries.items()
    )
    links = f"ln -s {tmp_path} up; rm -rf ~/tmp; ln -s {tmp_path} ~/tmp; ln -s {tmp_path} ~/.x"
    look = "cat found; cat /tmp/secret up/secret ~/.x/secret; echo x > /tmp/made"
    row = told(
        {
            "id": "a",
            "input": [f"python3 code.py > found; {links}; echo then", look],
            "files": {"code.py": code},
        }
    )
    found, *refused = row["output"].split("|")
    assert found == "own file", row
    assert [words.rpartition(": ")[2] for words in refused] == ["No such file or directory"] * 3
    assert not (tmp_path / "made").exists()
