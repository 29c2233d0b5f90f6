"""Local web servers: access control, static pages, and running until interrupted.

A server that listens on this machine only can still be reached by any page that a local browser opens. So a request
must name the server by its own address (which stops DNS rebinding), and a request that changes something must come from
the server's own page (which stops cross-site requests). A server that other machines can reach requires a token.
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
    """Whether an address can be reached from this machine only.

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
    """ASGI middleware that refuses requests without the right host, origin or token.

    Args:
        app: the application behind it.
        token: required from requests as `Authorization: Bearer`, as a cookie, or once as `?token=`; None requires none.
        local: the server listens on this machine only.
    """

    def __init__(self, app: App, token: str | None, *, local: bool) -> None:
        self._app, self._token, self._local = app, token, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            await _refuse(send, 431, "the headers are too large")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self._local and not is_local(urlsplit(f"//{host}").hostname or ""):
            await _refuse(send, 403, "this server answers only to its own address")
            return
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin is not None and urlsplit(origin).netloc != host:
            await _refuse(send, 403, "only this server's own page may change anything")
            return
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if self._token is not None and not any(self._is_token(one) for one in (given, *_tokens_in(headers))):
            await _refuse(send, 401, "open the address that was printed at the start, including its token")
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff")]
                extra.append((b"referrer-policy", b"no-referrer"))
                if self._token is not None and self._is_token(given):
                    extra.append((b"set-cookie", f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/".encode()))
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self._app(scope, receive, guarded)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _tokens_in(headers: dict[str, str]) -> list[str]:
    """Tokens in the headers of a request."""
    tokens = [headers.get("authorization", "").removeprefix("Bearer ")]
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            tokens.append(value)
    return tokens


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = f"Refused: {reason}.\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def add_page(app: FastAPI, folder: Path, files: Mapping[str, str]) -> None:
    """Serve the static files of a page; browsers revalidate them on every visit.

    Args:
        app: gets the addresses, which stay out of its API description.
        folder: of the files.
        files: file name by address.
    """
    for address, name in files.items():
        app.add_api_route(address, _file_response(folder / name), methods=["GET"], include_in_schema=False)


def _file_response(path: Path) -> Callable[[], FileResponse]:
    def answer() -> FileResponse:
        return FileResponse(path, headers={"cache-control": "no-cache"})

    return answer


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Raises:
        TagfillError: if the port is taken, or the address does not belong to this machine.
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
    """Raise if other machines could reach a server without a token."""
    if token is None and not is_local(host):
        suggestion = secrets.token_urlsafe(16)
        raise TagfillError(f"{host} can be reached from other machines; give a --token, such as {suggestion}.")


def run_server(app: Any, listening: socket.socket, token: str | None, *, grace: float = 10.0) -> None:
    """Serve until interrupted, then finish the requests in flight.

    Args:
        app: the ASGI application.
        listening: from `listen`.
        token: that requests must have; required unless only this machine can reach the server.
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
