"""What the program `assay` runs in tests of lines for a shell: it lets warm_assay.py start assay.

usage: warm_program.py ADDRESS PROGRAM SETTINGS [ARGUMENT ...]

Without the same settings of the interpreter it becomes the program. There are few imports, because
each start waits for them.
"""

import _signal
import _socket
import os
import sys

STAYS = ("view", "mock-model", "headless")
"""Commands that are ended by signals, or with the process that started them."""
OF_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ")
"""How the names of variables begin that Python reads when it starts."""


def main(address: str, program: str, settings: str, *args: str) -> None:
    ours = [pair for pair in os.environ.items() if pair[0].startswith(OF_INTERPRETER)]
    if repr(sorted(ours)) != settings or (args and args[0] in STAYS):
        os.execv(program, [program, *args])
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(address)
    words = ["once", os.getcwd(), str(len(args)), *args]  # noqa: PTH109 - pathlib takes long to load
    words += [f"{name}={text}" for name, text in os.environ.items()]
    payload = b"\0".join(os.fsencode(word) for word in words)
    message = b"%d\n%b" % (len(payload), payload)
    fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    sent = connection.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    if message[sent:]:  # even nothing cannot be sent to one that has answered and gone
        connection.sendall(message[sent:])
    answers = b""
    while not answers.endswith(b"\n"):
        answers += connection.recv(100)
    pid = int(answers.splitlines()[0])
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, lambda number, _: os.kill(pid, number))
    while answers.count(b"\n") < 2:
        answers += connection.recv(100)
    code = int(answers.splitlines()[1])
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main(*sys.argv[1:])
