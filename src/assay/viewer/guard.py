"""Lets only the person at this machine in: own host name, secret address, no other site's page."""

import hmac
from typing import Any

from assay.report.page import policy

_SAFE_SITES = ("", "same-origin", "none")


class Guard:
    """Wraps the application: checks every request, and puts the same headers on every answer."""

    def __init__(self, app: Any, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        self._headers = [
            (b"content-security-policy", f"{policy(live=True)}; frame-ancestors 'none'".encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse, or hand on with the token taken off the path."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *self._headers]}
            await send(message)

        why = self._refusal(scope)
        if why is not None:
            start = {"type": "http.response.start", "status": 403}
            await send_guarded({**start, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": why.encode()})
            return
        rest = scope["path"][1 + len(self._token) :]
        await self._app({**scope, "path": rest, "raw_path": rest.encode()}, receive, send_guarded)

    def _refusal(self, scope: Any) -> str | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if host not in self._hosts:
            return "this viewer answers only to its own address"
        origin = headers.get(b"origin")
        if origin is not None and origin != f"http://{host}":
            return "another site may not ask"
        site = headers.get(b"sec-fetch-site", "")
        is_visit = headers.get(b"sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        if site not in _SAFE_SITES and not is_visit:
            return "another site may not ask"
        given = scope["path"][1:].partition("/")[0]
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return "the address lacks its secret: use the one that `assay view` printed"
        return None
