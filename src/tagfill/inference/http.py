"""Who may talk to a local server: pages of this machine, or whoever has the token.

A server that listens on this machine alone is still reachable by any page that a browser here opens. So a request must
name the server as it is (a page elsewhere that resolves its own name to this machine does not), and one that changes
something must come from the server's own page. Beyond this machine a token is required.


The files of a page, at addresses of their own.

Running a server until somebody ends it.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI
from fastapi.responses import FileResponse

from tagfill.errors import TagfillError

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


def add_page(app: FastAPI, folder: Path, files: Mapping[str, str]) -> None:
    """Serve the files of a page; a browser asks each time whether they have changed.

    Args:
        app: that gets the addresses; they stay out of its description for programs.
        folder: of the files.
        files: address → name of the file.
    """
    for address, name in files.items():
        app.add_api_route(address, _answer(folder / name), methods=["GET"], include_in_schema=False)


def _answer(path: Path) -> Callable[[], FileResponse]:
    def answer() -> FileResponse:
        return FileResponse(path, headers={"cache-control": "no-cache"})

    return answer


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens where it was asked to.

    Raises:
        TagfillError: if the port is taken or the address is not of this machine.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise TagfillError(f"Cannot listen on {host}, port {port}: {error.strerror}; choose another --port.") from None
    return listening


def check_token(host: str, token: str | None) -> None:
    """Refuse to be reachable by others without a token."""
    if token is None and not is_local(host):
        suggestion = secrets.token_urlsafe(16)
        raise TagfillError(f"{host} can be reached from other machines; give a --token, such as {suggestion}.")


def run_server(app: Any, listening: socket.socket, token: str | None, *, grace: float = 10.0) -> None:
    """Serve until interrupted, then finish what is in flight.

    Args:
        app: the ASGI application.
        listening: from `listen`.
        token: that requests must show; required unless only this machine can reach the server.
        grace: seconds that requests in flight may take to finish.
    """
    import uvicorn

    host = str(listening.getsockname()[0])
    check_token(host, token)
    config = uvicorn.Config(
        Guard(app, token, local=is_local(host)),
        http="h11",
        h11_max_incomplete_event_size=2 * HEADER_BYTES,  # of headers that come in pieces
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(grace),
    )
    uvicorn.Server(config).run(sockets=[listening])
