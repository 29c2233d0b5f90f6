"""Who may talk to a local server: pages of this machine, or whoever has the token.

A server that listens on this machine alone is still reachable by any page that a browser here opens. So a request must
name the server as it is (a page elsewhere that resolves its own name to this machine does not), and one that changes
something must come from the server's own page. Beyond this machine a token is required.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "tagfill-token"
HEADER_BYTES = 16 * 1024
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def is_local(host: str) -> bool:
    """Whether an address is reachable from this machine alone.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """An ASGI application in front of another that lets through only whoever may talk to it.

    Args:
        app: the one behind.
        token: that requests must show, as `Authorization: Bearer`, cookie, or once as `?token=`; None asks for none.
        local: the server listens on this machine alone.
    """

    def __init__(self, app: App, token: str | None, *, local: bool) -> None:
        self._app, self._token, self._local = app, token, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            await _refuse(send, 431, "the headers are too large")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self._local and not is_local(urlsplit(f"//{host}").hostname or ""):
            await _refuse(send, 403, "this server answers to its own address alone")
            return
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin is not None and urlsplit(origin).netloc != host:
            await _refuse(send, 403, "another page may not change anything here")
            return
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if self._token is not None and not any(self._fits(one) for one in (asked, *_shown(headers))):
            await _refuse(send, 401, "open the address that was printed at the start, with its token")
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff")]
                extra.append((b"referrer-policy", b"no-referrer"))
                if self._token is not None and self._fits(asked):
                    extra.append((b"set-cookie", f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/".encode()))
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self._app(scope, receive, guarded)

    def _fits(self, shown: str) -> bool:
        return self._token is not None and hmac.compare_digest(shown.encode(), self._token.encode())


def _shown(headers: dict[str, str]) -> list[str]:
    """Tokens that a request shows."""
    shown = [headers.get("authorization", "").removeprefix("Bearer ")]
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            shown.append(value)
    return shown


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = f"Refused: {reason}.\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
