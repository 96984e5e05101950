"""Send one request to one URL, until a deadline: for judges and simulated users by URL.

It is here, beside the gateway, because only this room talks to the outside. The connection goes to
the URL that the user named and to no other: a redirect is not followed, with or without the key.
The request is made in a thread of its own, so that neither a slow server nor a slow name server
keeps Ctrl-C or the deadline waiting.
"""

import os
import socket
import ssl
import threading
import time
from base64 import b64encode
from contextlib import suppress
from functools import cache
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPSConnection,
    IncompleteRead,
    RemoteDisconnected,
)
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from assay.records.capture import Cause, Failure
from assay.records.http import HttpAnswer, HttpRequest, NoAnswer, is_loopback
from assay.run.process import raise_if_stopping

MOST_BYTES = 4 * 1024 * 1024
"""A longer answer is none: verdicts are short."""
_CHECK_S = 0.1


def post(request: HttpRequest, timeout_s: float) -> HttpAnswer:
    """Send a request and return the answer, whatever its status.

    Raises NoAnswer when no whole answer came in time, and Interrupted when the run is ended.
    """
    until_s = time.monotonic() + timeout_s
    call = _Call(request, timeout_s)
    threading.Thread(target=call.run, name="http", daemon=True).start()
    try:
        while not call.done.wait(_CHECK_S):
            raise_if_stopping()
            if time.monotonic() >= until_s:
                raise _explained(TimeoutError(), call.place, timeout_s)
    finally:
        call.cut()
    if call.error is not None:
        raise _explained(call.error, call.place, timeout_s) from call.error
    assert call.answer is not None
    return call.answer


class _Call:
    """One request in its thread; another thread may cut it."""

    def __init__(self, request: HttpRequest, timeout_s: float) -> None:
        self._request, self._timeout_s = request, timeout_s
        self._url = urlsplit(request.url)
        self._connection: HTTPConnection | None = None
        self._is_cut = False
        self.done = threading.Event()
        self.answer: HttpAnswer | None = None
        self.error: Exception | None = None

    @property
    def place(self) -> str:
        """The server, as messages name it."""
        return self._url.netloc

    def run(self) -> None:
        try:
            self.answer = self._exchange()
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that asked
            self.error = error
        finally:
            self.done.set()

    def cut(self) -> None:
        """End the connection; a thread that waits for it ends too."""
        self._is_cut = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)

    def _exchange(self) -> HttpAnswer:
        request = self._request
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "assay",
            "connection": "close",
            **request.headers,
        }
        if key := os.environ.get(request.key_variable, "").strip():
            headers[request.key_header] = f"{request.key_prefix}{key}"
        self._connection, target, extra = open_connection(self._url, self._timeout_s)
        try:
            if self._is_cut:
                raise TimeoutError
            self._connection.request("POST", target, request.body, {**headers, **extra})
            response = self._connection.getresponse()
            body = response.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                raise _AnswerTooLong
            if response.length:  # what the server had announced and did not send
                raise ConnectionResetError
            names = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(status=response.status, headers=names, body=body)
        finally:
            self._connection.close()


class _AnswerTooLong(Exception):
    pass


def open_connection(
    url: SplitResult, timeout_s: float
) -> tuple[HTTPConnection, str, dict[str, str]]:
    """Return a connection, by the proxy of the environment if there is one.

    Also return the target of the request, and the headers that the proxy needs.
    """
    host, is_https = url.hostname or "", url.scheme == "https"
    port = url.port or (443 if is_https else 80)
    target = url.path or "/"
    proxy = _proxy(url.scheme, host, port)
    if proxy is None:
        if is_https:
            return HTTPSConnection(host, port, timeout=timeout_s, context=_tls()), target, {}
        return HTTPConnection(host, port, timeout=timeout_s), target, {}
    place = proxy.hostname or "", proxy.port or 80
    login = {}
    if proxy.username:
        words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        login = {"proxy-authorization": f"Basic {b64encode(words.encode()).decode()}"}
    if not is_https:
        return HTTPConnection(*place, timeout=timeout_s), f"http://{url.netloc}{target}", login
    tunnel = HTTPSConnection(*place, timeout=timeout_s, context=_tls())
    tunnel.set_tunnel(host, port, login)
    return tunnel, target, {}


def _proxy(scheme: str, host: str, port: int) -> SplitResult | None:
    proxies = getproxies_environment()
    found = proxies.get(scheme) or proxies.get("all")
    if not found or is_loopback(host) or proxy_bypass(f"{host}:{port}"):
        return None
    return urlsplit(found if "://" in found else f"http://{found}")


@cache
def _tls() -> ssl.SSLContext:
    """The certificates of the system, or of SSL_CERT_FILE; reading them takes 20 ms."""
    return ssl.create_default_context()


def _explained(error: Exception, place: str, timeout_s: float) -> NoAnswer:
    """Say why no answer came, and whether another attempt may well succeed."""
    cut_off = (IncompleteRead, RemoteDisconnected, ConnectionResetError, BrokenPipeError)
    known: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
        (_AnswerTooLong, f"{place} answered with more than {MOST_BYTES >> 20} MB"),
        (
            ssl.SSLCertVerificationError,
            f"the certificate of {place} is not trusted; SSL_CERT_FILE may name its authority's: ",
        ),
        (ssl.SSLError, f"no encrypted connection to {place}: "),
        (TimeoutError, f"{place} gave no whole answer within {timeout_s:g} s"),
        (socket.gaierror, f"the host of {place} is not known: "),
        (ConnectionRefusedError, f"nothing answers at {place}: connection refused"),
        (cut_off, f"{place} ended the connection before its answer was whole"),
        (HTTPException, f"{place} does not answer as HTTP does: {type(error).__name__}"),
        (OSError, f"no connection to {place}: "),
        (ValueError, "the key is not one line of plain characters"),
    )
    words = next((words for kind, words in known if isinstance(error, kind)), "")
    if words.endswith(": "):
        words += str(getattr(error, "verify_message", "") or error.args[-1] or error)
    pause_ms = 0.0 if isinstance(error, cut_off) else None
    message = words or f"{place}: {type(error).__name__}: {error}"
    return NoAnswer(Failure(cause=Cause.PROVIDER, message=message, retry_after_ms=pause_ms))
