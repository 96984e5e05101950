"""Runs the viewer on this machine's own address until it is stopped."""

import contextlib
import secrets
import socket
from collections.abc import Callable

import uvicorn

from assay.errors import InputError
from assay.viewer.app import make_app
from assay.viewer.desk import Desk
from assay.viewer.guard import Guard

HOST = "127.0.0.1"


def serve(desk: Desk, port: int, ready: Callable[[str], None]) -> None:
    """Serve until the operator stops it; ready is told the address with its secret."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        msg = f"cannot listen on {HOST}:{port}: {error.strerror}"
        raise InputError(msg, hint="choose another --port; 0 takes any that is free") from error
    bound = listener.getsockname()[1]
    token = secrets.token_urlsafe(18)
    hosts = frozenset({f"{HOST}:{bound}", f"localhost:{bound}"})
    config = uvicorn.Config(
        Guard(make_app(desk), token, hosts),
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
    )
    ready(f"http://{HOST}:{bound}/{token}/")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
