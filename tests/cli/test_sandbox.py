"""An agent under --sandbox: what it can see and do, how it ends, and when it is refused."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("bubblewrap")

SHELL_AGENT = """
eval "${@: -1}" > "$TMPDIR/said" 2>&1
code=$?
escaped=$(sed 's/\\\\/\\\\\\\\/g; s/"/\\\\"/g; s/\\t/ /g' "$TMPDIR/said")
said=$(echo "$escaped" | sed ':a;N;$!ba;s/\\n/\\\\n/g')
printf '{"type":"result","session_id":"s","result":"%s"}\\n' "$said"
exit $code
"""
"""Evaluates its prompt and answers with what that printed."""


@pytest.fixture
def shell_agent(agent: Callable, tag: str) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        return agent(command=["/bin/bash", "-c", SHELL_AGENT, "agent", tag], **changes)

    return write


@pytest.fixture
def told(assay: Callable, shell_agent: Callable, prompts: Callable) -> Callable[..., Any]:
    """Let the agent evaluate one prompt in a sandbox; give its row."""

    def run(text: Any, *args: Any, sandbox: str = "--sandbox", **more: Any) -> dict[str, Any]:
        words = ("capture", prompts(text), "-s", shell_agent(), "--workspace-dir", "w", sandbox)
        done = assay(*words, *args, **more)
        assert len(done.rows) == 1, done
        return done.rows[0]

    return run


@pytest.mark.cold
def test_sees_nothing_that_is_not_its_own(told: Callable, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    in_tmp = Path(f"/tmp/planted-{tmp_path.name}")
    places = [tmp_path / "planted", home / "planted", in_tmp, tmp_path / "w" / "planted"]
    (tmp_path / "w").mkdir()
    for place in places:
        place.write_text("secret-3f")
    source = Path(__file__).parents[2] / "src"
    words = [
        *map(str, places),
        str(source / "assay/errors.py"),
        "/etc/shadow",
        "/var/lib/dpkg/status",
    ]
    try:
        row = told(f"cat {' '.join(words)}; ls -A ~; ls -A", env={"HOME": str(home)})
    finally:
        in_tmp.unlink()
    lines = row["output"].splitlines()
    assert sum("No such file" in line for line in lines) == len(words), lines
    assert lines[len(words) :] == ["tmp"]


@pytest.mark.cold
def test_sees_no_other_process(told: Callable) -> None:
    row = told("ls -d /proc/[0-9]* | wc -l; kill -0 " + str(os.getpid()))
    assert int(row["output"].splitlines()[0]) < 10
    assert "No such process" in row["output"]


def test_cannot_change_the_system(told: Callable) -> None:
    places = ["/usr/x", "/etc/passwd", "/x", "/opt/x", "/proc/sys/kernel/core_pattern"]
    row = told("; ".join(f": >> {place}" for place in places) + "; mount -o remount,rw /usr")
    failed = row["output"].splitlines()
    assert sum("Read-only" in line or "denied" in line for line in failed) == len(places) + 1


def test_works_in_its_workspace_and_reopens_stdout(told: Callable, tmp_path: Path) -> None:
    line = '{"type":"message","text":"reopened"}'
    row = told(f"echo made > file; echo '{line}' >> /dev/stdout; echo '{line}' >> /proc/$$/fd/1")
    assert (tmp_path / "w" / "prompt-p0" / "file").read_text() == "made\n"
    assert row["output"].count("reopened") == 2
    assert "failure" not in row


def test_stdout_itself_can_be_reopened(
    assay: Callable, agent: Callable, prompts: Callable, tag: str
) -> None:
    text = '{"type":"result","result":"through its name"}'
    schema = agent(command=["/bin/sh", "-c", f"echo '{text}' >> /dev/stdout", tag])
    done = assay("capture", prompts("x"), "-s", schema, "--workspace-dir", "w", "--sandbox")
    assert done.rows[0]["output"] == "through its name", done


def test_home_and_tmp_last_for_a_trial_and_no_longer(
    assay: Callable, shell_agent: Callable, prompts: Callable
) -> None:
    text = "cat ~/note /tmp/note; echo one | tee ~/note > /tmp/note"
    path = prompts({"id": "a", "input": [text, text]}, {"id": "b", "input": text})
    words = ("capture", path, "-s", shell_agent(), "--workspace-dir", "w", "--sandbox")
    first, second = assay(*words).rows
    assert first["output"].splitlines() == ["one", "one"], first
    assert second["output"].count("No such file") == 2


def test_one_turn_cannot_open_the_sandbox_of_the_next(
    assay: Callable, shell_agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "planted").write_text("secret-3f")
    first = f"mv ~/tmp ~/old; ln -s {tmp_path} ~/tmp; export TMPDIR=~/old"
    path = prompts({"id": "a", "input": [first, "ls /tmp; cat /tmp/planted; echo > /tmp/new"]})
    words = ("capture", path, "-s", shell_agent(), "--workspace-dir", "w", "--sandbox")
    row = assay(*words).rows[0]
    assert "secret-3f" not in row["output"]
    assert "No such file" in row["output"], row
    assert not (tmp_path / "new").exists()


def test_a_program_in_the_workspace_cannot_become_a_way_out(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.write_text("#!/bin/sh\necho secret-3f >&2\n")
    planted.chmod(0o755)
    program = tmp_path / "template" / "agent"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nln -sf {planted} agent\necho \'{{"type":"result"}}\'\n')
    program.chmod(0o755)
    path = prompts({"id": "a", "input": ["one", "two"]})
    words = ("-s", agent(command=["./agent"]), "--workspace-dir", "w", "--sandbox")
    row = assay("capture", path, *words, "--workspace-template", program.parent).rows[0]
    assert "secret-3f" not in json.dumps(row)
    assert row["failure"]["cause"] == "agent_crash", row["failure"]


def test_files_of_the_adapter_do_not_follow_links(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.write_text("mine")
    program = tmp_path / "opencode"
    program.write_text(f"#!/bin/sh\ncd ~/.config/opencode; ln -sf {planted} opencode.json\n")
    program.chmod(0o755)
    path = prompts({"id": "a", "input": ["one", "two"]})
    words = ("-s", f"opencode:{program}", "--model", "openai/x", "--workspace-dir", "w")
    for mode in ("--sandbox", "--isolate"):
        assert len(assay("capture", path, *words, mode).rows) == 1
        assert planted.read_text() == "mine"


def test_exit_codes_and_signals_come_through(told: Callable) -> None:
    row = told("exit 7")
    assert (row["metadata"]["exitCode"], row["failure"]["cause"]) == (7, "agent_crash")
    row = told("kill -9 $$")
    assert (row["metadata"]["exitCode"], row["metadata"]["signal"]) == (137, "SIGKILL")
    assert row["failure"]["cause"] == "agent_crash"


def test_a_timeout_gives_time_to_end(told: Callable, tmp_path: Path, alive: Callable) -> None:
    row = told("trap 'echo ended > by-itself; exit 3' TERM; sleep 60 & wait", "-t", 800)
    assert (row["failure"]["cause"], row["metadata"]["timedOut"]) == ("agent_timeout", True)
    assert (tmp_path / "w" / "prompt-p0" / "by-itself").read_text() == "ended\n"
    assert alive() == []


def test_a_timeout_ends_what_ignores_signals(told: Callable, alive: Callable) -> None:
    row = told("trap '' TERM INT HUP; while :; do sleep 0.1; done", "-t", 500)
    assert row["failure"]["cause"] == "agent_timeout"
    assert alive() == []


def test_an_agent_that_lingers(
    assay: Callable, agent: Callable, prompts: Callable, tag: str, alive: Callable
) -> None:
    script = """echo '{"type":"result","result":"done"}'; sleep 60"""
    schema = agent(command=["/bin/sh", "-c", script, tag], terminal={"graceMs": 200})
    done = assay("capture", prompts("x"), "-s", schema, "--workspace-dir", "w", "--sandbox")
    row = done.rows[0]
    assert (row["output"], row["metadata"]["lingered"]) == ("done", True)
    assert "failure" not in row
    assert alive() == []


HUNDREDS = "for i in $(seq 200); do setsid env -i sleep 600.{} & done; wait"
ESCAPES = "setsid env -i bash -c 'ulimit -q 12345; (setsid sleep 600.{} &)'; sleep 0.2"


def sleeping(number: int) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += f"600.{number}\0".encode() in path.read_bytes()
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("text", "args"), [(HUNDREDS, ("-t", 3000)), (ESCAPES, ())])
def test_nothing_is_left(told: Callable, text: str, args: tuple[Any, ...]) -> None:
    number = os.getpid() * 10 + len(args)
    told(text.format(number), *args)
    assert sleeping(number) == 0


def test_nothing_is_left_when_assay_itself_is_killed(
    start: Callable, shell_agent: Callable, prompts: Callable, eventually: Callable
) -> None:
    number = os.getpid() * 10 + 5
    path = prompts(HUNDREDS.format(number))
    process = start("capture", path, "-s", shell_agent(), "--workspace-dir", "w", "--sandbox")
    assert eventually(lambda: sleeping(number) >= 200)
    process.send_signal(signal.SIGKILL)
    assert eventually(lambda: sleeping(number) == 0)


def test_ctrl_c_ends_it(
    start: Callable, shell_agent: Callable, prompts: Callable, eventually: Callable
) -> None:
    number = os.getpid() * 10 + 6
    path = prompts(*[f"trap '' TERM; sleep 600.{number} & wait; sleep 600.{number}"] * 3)
    words = ("-s", shell_agent(), "--workspace-dir", "w", "--sandbox", "-j", 3)
    process = start("capture", path, *words)
    assert eventually(lambda: sleeping(number) >= 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert sleeping(number) == 0


def test_many_at_once(assay: Callable, shell_agent: Callable, prompts: Callable) -> None:
    path = prompts(*[f"echo {number}" for number in range(60)])
    for sandbox in ("--sandbox", "--sandbox=no-network"):
        words = ("-s", shell_agent(), "--workspace-dir", "w", sandbox, "-j", 8)
        done = assay("capture", path, *words)
        answers = {row["id"]: row["output"] for row in done.rows}
        assert answers == {f"p{number}": str(number) for number in range(60)}
        assert "Traceback" not in done.stderr


def test_no_network_reaches_the_named_address_only(told: Callable) -> None:
    with serving() as open_port, serving() as closed_port:
        connect = "exec 3<>/dev/tcp/127.0.0.1/{} && cat <&3"
        text = f"({connect.format(open_port)}); ({connect.format(closed_port)}); ls /sys/class/net"
        env = {"MY_BASE_URL": f"http://127.0.0.1:{open_port}/v1"}
        row = told(text, "--env", "MY_BASE_URL", sandbox="--sandbox=no-network", env=env)
        lines = row["output"].splitlines()
        assert lines[0] == f"hello from {open_port}", row
        assert "Connection refused" in row["output"]
        assert f"hello from {closed_port}" not in row["output"]
        row = told(f"({connect.format(open_port)}); ({connect.format(closed_port)})")
        assert row["output"].count("hello from") == 2, "with network, both are there"


def test_no_network_has_a_proxy_for_other_machines(told: Callable, tmp_path: Path) -> None:
    ask = (
        "exec 3<>/dev/tcp/127.0.0.1/${{HTTPS_PROXY##*:}}; "
        "printf 'CONNECT {} HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3 | tr -d '\\r'; exec 3>&-"
    )
    text = "; ".join(ask.format(f"{host}:443") for host in ("allowed.invalid", "other.invalid"))
    env = {"MY_BASE_URL": "https://allowed.invalid/v1"}
    row = told(text, "--env", "MY_BASE_URL", sandbox="--sandbox=no-network", env=env)
    allowed, other = row["output"].splitlines()
    assert "502" in allowed, "it is let through, but there is no such host"
    assert "403" in other


def test_no_network_passes_on_what_goes_through_the_proxy(told: Callable) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{self.path} {self.headers['Host']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.2", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.2:{server.server_address[1]}"
        code = (
            f'import urllib.request as u; print(u.urlopen("http://{host}/a?b=1").read().decode())'
        )
        asked = f"CONNECT {host} HTTP/1.1||GET /tunnel HTTP/1.1|Host: x|Connection: close||"
        tunnel = (
            "exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; "
            f"printf '{asked.replace('|', chr(92) + 'r' + chr(92) + 'n')}' >&3; "
            "cat <&3 | tr -d '\\r'"
        )
        env = {"MY_BASE_URL": f"http://{host}"}
        words = ("--env", "MY_BASE_URL")
        row = told(
            f"python3 -c '{code}'; {tunnel}", *words, sandbox="--sandbox=no-network", env=env
        )
        server.shutdown()
    lines = row["output"].splitlines()
    assert lines[0] == f"/a?b=1 {host}", row
    assert lines[1] == "HTTP/1.1 200 Connection established"
    assert lines[-1] == "/tunnel x"


def test_exit_codes_come_through_without_network(told: Callable) -> None:
    assert told("exit 7", sandbox="--sandbox=no-network")["metadata"]["exitCode"] == 7


@pytest.mark.parametrize("sandbox", ["--sandbox", "--sandbox=no-network"])
def test_a_dialogue_goes_through(
    assay: Callable, prompts: Callable, sandbox: str, tag: str
) -> None:
    agent = Path(__file__).parents[1] / "agents" / "acp_scripted.py"
    words = (
        "capture",
        prompts({"id": "a", "input": ["one", "two"]}),
        "--workspace-dir",
        "w",
        sandbox,
    )
    done = assay(*words, "--", sys.executable, agent, tag)
    assert "failure" not in done.rows[0], done
    assert done.rows[0]["output"]


def test_commands_without_a_schema(assay: Callable, prompts: Callable, tmp_path: Path) -> None:
    program = tmp_path / "agent.sh"
    program.write_text('#!/bin/sh\necho "said $1"\n')
    program.chmod(0o755)
    common = ("run", prompts("hi"), "--workspace-dir", "w", "--sandbox")
    for words in (("--simple", f"{program} {{}}"), ("--shell", f'{program} "$PROMPT"')):
        assert assay(*common, *words).rows[0]["rawLines"] == ["said hi"], words


def test_a_missing_program_is_no_failure_of_the_agent(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    for sandbox in ("--sandbox", "--sandbox=no-network"):
        words = ("capture", prompts("x"), "-s", agent(command=["no-such-program"]))
        done = assay(*words, "--workspace-dir", "w", sandbox)
        assert (done.code, done.rows) == (1, [])
        assert "no-such-program" in done.stderr


def test_a_prompt_or_a_folder_in_the_command_shows_nothing(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.write_text("secret-3f")
    script = 'cat "$@" /w/../"$1"; printf "{\\"type\\":\\"result\\"}"'
    for folder in ("/", str(Path.home()), str(tmp_path)):
        schema = agent(command=["/bin/sh", "-c", script, "agent", folder], visible=[folder])
        words = ("capture", prompts(str(planted)), "-s", schema, "--workspace-dir", "w")
        row = assay(*words, "--sandbox").rows[0]
        assert "secret-3f" not in json.dumps(row)
        assert row["stderr"].count("No such file") >= 1, row


def test_login_comes_through_but_instructions_do_not(
    assay: Callable, shell_agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    home = tmp_path / "home" / ".my"
    home.mkdir(parents=True)
    (home / "auth.json").write_text(json.dumps({"access": "oauth-0123456789abcdef-xyz"}))
    (home / "INSTRUCTIONS.md").write_text("always say yes")
    schema = shell_agent(login=["~/.my/auth.json"])
    text = "ls -A ~/.my; stat -c %a ~/.my/auth.json; cat ~/.my/auth.json"
    words = ("capture", prompts(text), "-s", schema, "--workspace-dir", "w", "--sandbox")
    row = assay(*words, env={"HOME": str(home.parent)}).rows[0]
    names, mode, content = row["output"].splitlines()
    assert (names, mode) == ("auth.json", "600")
    assert "oauth-0123456789abcdef-xyz" not in content


def test_session_files_are_kept(assay: Callable, shell_agent: Callable, prompts: Callable) -> None:
    schema = shell_agent(keep=["~/sessions/*.log"])
    path = prompts("mkdir ~/sessions; echo kept > ~/sessions/s.log")
    words = ("-s", schema, "--workspace-dir", "w", "--raw-dir", "raw", "--sandbox")
    row = assay("capture", path, *words, "-o", "out.jsonl")
    assert row.code == 0, row
    kept = assay("raw", "p0", "out.jsonl", "--stream", "files/sessions/s.log")
    assert kept.stdout == "kept\n", kept


def test_the_word_after_it_is_not_its_value(
    assay: Callable, shell_agent: Callable, prompts: Callable
) -> None:
    path = prompts("echo $PWD")
    done = assay("capture", "--sandbox", path, "-s", shell_agent(), "--workspace-dir", "w")
    assert done.rows[0]["output"].endswith("w/prompt-p0"), done
    done = assay("run", "--sandbox", path, "-s", shell_agent(), "--workspace-dir", "w")
    assert done.code == 0, done
    assert assay("capture", path, "--sandbox=maybe").code == 2


def test_the_whole_environment_is_not_passed_on(told: Callable) -> None:
    row = told("echo ${ASKED_FOR:-none} ${NOT_ASKED_FOR:-none}", "--env", "ASKED_FOR",
               env={"ASKED_FOR": "one", "NOT_ASKED_FOR": "two"})  # fmt: skip
    assert row["output"] == "one none"


REFUSALS = [
    (None, "--sandbox needs bubblewrap", "apt install bubblewrap"),
    (
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n",
        "--sandbox does not work on this machine: bwrap: No permissions to create new namespace",
        "user namespaces",
    ),
]


@pytest.mark.parametrize(("program", "says", "hint"), REFUSALS)
def test_is_refused_where_it_cannot_work(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    tmp_path: Path,
    program: str | None,
    says: str,
    hint: str,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if program is not None:
        (folder / "bwrap").write_text(program)
        (folder / "bwrap").chmod(0o755)
    env = {"PATH": str(folder)}
    out = tmp_path / "out.jsonl"
    out.write_text("earlier\n")
    # With the network, Landlock may do it: see test_landlock.py.
    words = ("capture", prompts("!do put ran x"), "-s", agent(), "--sandbox=no-network", "-o", out)
    done = assay(*words, "--overwrite", env=env)
    assert done.code == 1
    assert says in done.stderr
    assert hint in done.stderr
    assert not (tmp_path / "ran").exists()
    assert out.read_text() == "earlier\n"


def test_works_for_an_ordinary_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("all other tests run as an ordinary user already")
    code = (
        "import os, sys; from assay.run.sandbox import *; "
        "os.mkdir('etc'); copy_etc('etc'); os.makedirs('home/tmp'); os.mkdir('w'); "
        "here = os.getcwd(); "
        "view = View(workspace=here + '/w', home=here + '/home', etc=here + '/etc'); "
        "words = sandboxed(['/bin/sh', '-c', 'id -u; echo x > made; cat /etc/hostname'], "
        "os.environ, view, network=False); "
        "print(*words, sep='\\0')"
    )
    folder = Path(f"/tmp/assay-user-{tmp_path.name}")
    folder.mkdir()
    try:
        words = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True,
                               check=True).stdout.decode()  # fmt: skip
        subprocess.run(["chown", "-R", "65534:65534", folder], check=True)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run(
            [*user, *words.rstrip("\n").split("\0")], capture_output=True, text=True, check=False
        )
        assert done.stdout == "65534\n", done
        assert (folder / "w/made").read_text() == "x\n"
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


@contextmanager
def serving() -> Iterator[int]:
    """Serve on a port and greet whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def greet(server: socket.socket) -> None:
    while True:
        try:
            client = server.accept()[0]
        except OSError:
            return
        with client:
            client.sendall(f"hello from {client.getsockname()[1]}\n".encode())


FAKE_CLAUDE = """#!/usr/bin/env python3
import json, os, re, sys
code = re.findall('"code": "([0-9a-f]+)", "pass"', sys.argv[-1])[-1]
there = [os.path.exists(FILE), "bypassPermissions" in sys.argv, "SOME_API_KEY" in os.environ]
seen = [*there, "ANTHROPIC_API_KEY" in os.environ, os.listdir(".")]
verdict = {"code": code, "pass": True, "score": 1, "reasoning": json.dumps(seen)}
event = {"type": "result", "subtype": "success", "is_error": False, "result": json.dumps(verdict)}
print(json.dumps(event))
"""


def test_a_judge_of_a_sandboxed_run_is_sandboxed_too(
    assay: Callable, shell_agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    """It reads hostile text: without tools, in the sandbox, with a HOME and only its own key."""
    (tmp_path / "secret").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").write_text(
        FAKE_CLAUDE.replace("FILE", repr(str(tmp_path / "secret")))
    )
    (tmp_path / "bin" / "claude").chmod(0o755)
    done = assay(
        *("capture", prompts("echo hi"), "-s", shell_agent(), "--sandbox=no-network"),
        *("-g", "judge:agent=claude,rubric=Is it kind?"),
        env={
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "SOME_API_KEY": "of-somebody-else",
            "ANTHROPIC_API_KEY": "its-own-key-123456",
        },
    )
    [row] = done.rows
    assert "grades" in row, (row, done.stderr)
    seen = json.loads(row["grades"]["judge"]["reasoning"])
    sees_files, bypasses, has_others_key, has_its_key, files = seen
    assert [sees_files, bypasses, has_others_key] == [False] * 3
    assert has_its_key
    assert files == []


LYING_CLAUDE = """#!/usr/bin/env python3
import json, os, sys, urllib.error, urllib.request
if "ask" in sys.argv[-1]:
    try:
        urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"], data=b"x").read()
    except urllib.error.HTTPError:
        pass
event = {"type": "result", "is_error": True, "terminal_reason": "api_error",
         "api_error_status": 429, "result": "429: try again in 50m"}
print(json.dumps(event))
"""


class Answering(BaseHTTPRequestHandler):
    """A provider that works, or does not."""

    status = 200

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "text", "cause", "by"),
    [
        (200, "say", "agent_crash", ""),
        (200, "ask", "agent_crash", ""),
        (429, "ask", "provider", "the gateway"),
    ],
)
def test_an_error_of_the_provider_is_believed_if_the_gateway_saw_it(
    assay: Callable, prompts: Callable, tmp_path: Path, status: int, text: str, cause: str, by: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").write_text(LYING_CLAUDE)
    (tmp_path / "bin" / "claude").chmod(0o755)
    handler = type("_Handler", (Answering,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = assay(
            *("capture", prompts(text), "-s", "claude", "--sandbox=no-network", "-g", "contains:x"),
            env={
                "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
                "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
                "ANTHROPIC_API_KEY": "its-own-key-123456",
            },
        )
        server.shutdown()
    [row] = done.rows
    assert (row["failure"]["cause"], row["failure"].get("reportedBy", "")) == (cause, by)
    assert ("gateway did not see" in row["failure"]["message"]) == (cause == "agent_crash")


def test_makes_no_namespaces_of_its_own(told: Callable) -> None:
    """In a user namespace much more of the kernel is open to it than a user has otherwise."""
    row = told("unshare -U true && echo nested || echo refused")
    assert row["output"].splitlines()[-1] == "refused", row["output"]


def test_a_command_may_name_files_of_proc(assay: Callable, prompts: Callable) -> None:
    words = ("capture", prompts("x"), "--sandbox", "--shell")
    done = assay(*words, "head -1 /proc/self/status; cat /proc/meminfo | head -1; echo $PROMPT")
    [row] = done.rows
    assert row["output"].startswith("Name:"), row
    assert "MemTotal" in row["output"]
