"""An agent for the tests: does what its prompt says behind `!do`, else answers with the prompt.

argv: TAG [--resume SESSION] [--stdin] PROMPT. It prints stream-json as real agents do. Actions are
parted by " ; "; the first word names the function below, the rest is its argument.
"""

# json, signal and pathlib would each double the time that an agent needs to start.
# ruff: noqa: PTH109, PTH123, PTH208

import _signal as signal
import os
import resource
import sys
import time
from _json import encode_basestring_ascii as quoted

SESSION = "s-1"
finished = False


def emit(**event):
    write((to_json(event) + "\n").encode())


def to_json(value):
    """Write a value as json.dumps does."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {to_json(of)}" for key, of in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))


def write(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def say(text):
    emit(type="message", text=text)


def think(text):
    emit(type="thought", text=text)


def plan(text):
    emit(type="plan", entries=text.split(","))


def call(text):
    call_id, name, value = text.split(" ", 2)
    emit(type="tool_call", id=call_id, name=name, input={"path": value}, status="pending")


def done(text):
    call_id, output = text.split(" ", 1)
    emit(type="tool_call", id=call_id, output=output, status="completed")


def fail(text):
    call_id, output = text.split(" ", 1)
    emit(type="tool_call", id=call_id, output=output, status="failed")


def result(text):
    global finished
    finished = True
    usage = {"input_tokens": 10, "output_tokens": 5}
    emit(type="result", result=text, usage=usage, total_cost_usd=0.01, session_id=SESSION)


def noresult(_text):
    global finished
    finished = True


def event(text):
    emit(type=text, note="nobody knows this")


def raw(text):
    write(text.encode("utf-8", "surrogatepass"))


def line(text):
    raw(text + "\n")


def hexa(text):
    write(bytes.fromhex(text))


def wait(text):
    time.sleep(float(text))


def until(text):
    """Sleep until so many seconds after the moment that the test put into T0."""
    time.sleep(max(0.0, float(os.environ["T0"]) + float(text) - time.monotonic()))


def err(text):
    os.write(2, text.encode() + b"\n")


def exit_(text):
    os._exit(int(text))


def die(text):
    os.kill(os.getpid(), int(text))
    time.sleep(60)


def deaf(_text):
    """Ignore every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def env(text):
    say(os.environ.get(text, "(not set)"))


def environ(_text):
    say(to_json(dict(os.environ)))


def cwd(_text):
    say(os.getcwd())


def put(text):
    name, content = text.split(" ", 1)
    with open(name, "a") as file:
        file.write(content)


def get(text):
    with open(text) as file:
        say(file.read())


def ls(_text):
    say(",".join(sorted(os.listdir("."))))


def split(text):
    """Print the value of a variable in two writes with a pause, so that no read sees it whole."""
    value = os.environ[text].encode()
    write(b'{"type":"message","text":"' + value[:5])
    time.sleep(0.1)
    write(value[5:] + b'"}\n')


def daemon(text):
    """Leave a grandchild that is in no group, tree or session of ours and does not want to end."""
    if os.fork():
        time.sleep(0.1)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    deaf("")
    os.closerange(0, 64)
    os.chdir("/")
    if "clearenv" in text:
        code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, sys.argv[1]], {})
    time.sleep(300)


def child(_text):
    """Leave a plain background child behind."""
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(300)


def stopped(_text):
    """Leave a child that is stopped, so that TERM does not reach it."""
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(300)
    os.waitpid(pid, os.WUNTRACED)


def lines(text):
    """Print n lines at a steady rate per second."""
    n, rate = (int(word) for word in text.split())
    start = time.monotonic()
    for i in range(n):
        write(b'{"type":"message","text":"%d"}\n' % i)
        ahead = i / rate - (time.monotonic() - start)
        if ahead > 0.002:
            time.sleep(ahead)


def big(text):
    """Print one line of so many MB."""
    write(b'{"type":"message","text":"')
    for _ in range(int(text)):
        write(b"x" * 1_000_000)
    write(b'"}\n')


def deep(text):
    write(b'{"type":"message","text":' + b"[" * int(text) + b"]" * int(text) + b"}\n")


def flood(text):
    """Print for ever, as fast as the machine can."""
    block = (text.encode() + b"\n") * 10_000
    while True:
        write(block)


def nofiles(_text):
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))


def history(_text):
    say(sys.argv[-1])


def resumed(_text):
    say(sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else "new")


def main():
    prompt = sys.stdin.read() if "--stdin" in sys.argv else sys.argv[-1]
    emit(type="system", session_id=SESSION)
    _, do, script = prompt.rpartition("!do ")
    if not do:
        say(prompt)
        result(prompt)
        return
    for action in script.split(" ; "):
        name, _, argument = action.strip("\n").partition(" ")
        globals()["exit_" if name == "exit" else name](argument)
    if not finished:
        result("done")


main()
