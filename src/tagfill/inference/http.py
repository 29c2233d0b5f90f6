"""Local web servers: access control, static pages, and running until interrupted.

A server that listens on this machine only can still be reached by any page that a local browser opens. So a request
must name the server by its own address (which stops DNS rebinding), and a request that changes something must come from
the server's own page (which stops cross-site requests). A server that other machines can reach requires a token.

What clients can use up is limited for every server: connections and the time for each stage of a request
(`tagfill.inference.connections`), the size of a body, and the bytes of all bodies in flight (`BodyLimits`).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.routing import APIRoute

from tagfill.errors import TagfillError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "tagfill-token"
HEADER_BYTES = 16 * 1024
MIN_TOKEN = 8  # characters
BACKLOG = 128  # connections that wait to be accepted
_BUSY = 4  # requests in progress; with more, refusals and large bodies are slowed down
_REFUSALS = frozenset({400, 401, 403, 408, 413, 415, 422, 431, 503})
_REFUSALS_PER_SECOND, _LONGEST_DELAY = 10, 2.0
_LARGE_BODY, _LARGE_BYTES_PER_SECOND = 2**20, 32 * 2**20
_SMALL_SHARE, _LARGE_SHARE = 1 / 16, 3 / 4  # of the bytes in flight
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


class RequestError(HTTPException):
    """A request that is refused, with its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, f"{reason}.", {"retry-after": "1"} if status == 503 else None)


@dataclass(frozen=True)
class BodyLimits:
    """Limits of the bodies of requests, with the status of a request that exceeds them.

    Attributes:
        size: bytes per body (413).
        seconds: for a whole body to arrive (408).
        in_flight: bytes of all bodies that have arrived and are not answered yet (503). A quarter of them is kept for
            small bodies, of at most a sixteenth, so that large ones do not shut them out.
    """

    size: int = 4 * 2**20
    seconds: float = 20.0
    in_flight: int = 32 * 2**20


class _Traffic:
    """What the requests of a server have in common: how many there are, and how fast a busy server goes on with some.

    Clients that are refused again and again, or send large bodies, would otherwise keep a server busy with receiving.

    Attributes:
        requests: in progress.
        in_flight: bytes of bodies that have arrived and are not answered yet.
    """

    def __init__(self) -> None:
        self.requests = self.in_flight = 0
        self._next_refusal = self._next_part = 0.0

    async def before_refusal(self) -> None:
        """Wait until the next refusal may be sent."""
        now = time.monotonic()
        if self.requests > _BUSY:
            self._next_refusal = min(max(self._next_refusal, now) + 1 / _REFUSALS_PER_SECOND, now + _LONGEST_DELAY)
            await asyncio.sleep(self._next_refusal - now)

    async def before_part(self, size: int) -> None:
        """Wait until the next part of a large body may be received, after one of this size."""
        now = time.monotonic()
        if self.requests > _BUSY:
            self._next_part = min(max(self._next_part, now) + size / _LARGE_BYTES_PER_SECOND, now + _LONGEST_DELAY)
            await asyncio.sleep(self._next_part - now)


class _Body:
    """The body of one request, read within the limits."""

    def __init__(self, receive: Receive, limits: BodyLimits, traffic: _Traffic, declared: str | None) -> None:
        self._receive, self._limits, self._traffic, self._declared = receive, limits, traffic, declared
        self._size = self._last = 0
        self._until, self._complete = time.monotonic() + limits.seconds, False

    async def receive(self) -> MutableMapping[str, Any]:
        """The next part of the body.

        Raises:
            RequestError: beyond a limit.
        """
        limits = self._limits
        if self._complete:
            return await self._receive()
        if self._declared is not None and (not self._declared.isdecimal() or int(self._declared) > limits.size):
            raise RequestError(413, f"the body is larger than {limits.size:,} bytes")
        if self._size > _LARGE_BODY:
            await self._traffic.before_part(self._last)
        try:
            message = await asyncio.wait_for(self._receive(), self._until - time.monotonic())
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {limits.seconds:g} seconds") from None
        self._last = len(message.get("body", b""))
        self._size += self._last
        self._traffic.in_flight += self._last
        if self._size > limits.size:
            raise RequestError(413, f"the body is larger than {limits.size:,} bytes")
        share = 1 if self._size <= limits.in_flight * _SMALL_SHARE else _LARGE_SHARE
        if self._traffic.in_flight > limits.in_flight * share:
            raise RequestError(503, "too many bytes are being received at once; try again soon")
        self._complete = not message.get("more_body", False)
        return message

    def close(self) -> None:
        """Give the bytes back, once nothing holds them any more."""
        self._traffic.in_flight -= self._size
        self._size = 0


class Guard:
    """ASGI middleware that refuses requests without the right host, origin or token, and limits their bodies.

    Args:
        app: the application behind it. It gets a `RequestError` from its `receive` if a body exceeds the limits.
        token: required from requests as `Authorization: Bearer`, as the password of `Authorization: Basic`, as a
            cookie, or once as `?token=`; None requires none.
        local: the server listens on this machine only.
        limits: of bodies.
    """

    def __init__(self, app: App, token: str | None, *, local: bool, limits: BodyLimits | None = None) -> None:
        self._app, self._local, self._limits = app, local, limits or BodyLimits()
        self._token = None if token is None else token.strip()
        self._encoded = _encodings(self._token)
        self._traffic = _Traffic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length")
        body = _Body(receive, self._limits, self._traffic, None if declared is None else declared.decode("latin-1"))

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] in _REFUSALS:
                body.close()
                await self._traffic.before_refusal()
            await send(message)

        self._traffic.requests += 1
        try:
            await self._check(scope, body.receive, answer)
        finally:
            self._traffic.requests -= 1
            body.close()

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            await _refuse(send, 431, "the headers are too large")
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            host_name = urlsplit(f"//{host}").hostname or ""
            origin_host = None if origin is None else urlsplit(origin).netloc
        except ValueError:
            await _refuse(send, 400, "the headers Host and Origin cannot be understood")
            return
        if self._local and not is_local(host_name):
            await _refuse(send, 403, "this server answers only to its own address")
            return
        if scope["method"] not in ("GET", "HEAD") and origin_host is not None and origin_host != host:
            await _refuse(send, 403, "only this server's own page may change anything")
            return
        in_address = any(map(self._is_token, _tokens_in_query(scope["query_string"])))
        in_headers = any(map(self._is_token, _tokens_in_headers(scope["headers"])))
        if self._token is not None and not (in_address or in_headers):
            await _refuse(send, 401, "open the address that was printed at the start, including its token")
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff")]
                extra.append((b"referrer-policy", b"no-referrer"))
                if self._token is not None and in_address:
                    value = quote(self._token, safe="")
                    extra.append((b"set-cookie", f"{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/".encode()))
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self._app(scope, receive, guarded)

    def _is_token(self, given: bytes) -> bool:
        return any(hmac.compare_digest(given, encoded) for encoded in self._encoded)


def _encodings(token: str | None) -> list[bytes]:
    """The bytes of a token in UTF-8 and, as some clients send headers, in Latin-1."""
    if token is None:
        return []
    try:
        return [token.encode(), token.encode("latin-1")]
    except UnicodeEncodeError:
        return [token.encode()]


def _tokens_in_query(query: bytes) -> list[bytes]:
    """Tokens in the address of a request; a plus sign that was not encoded may mean itself or a blank."""
    tokens = []
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"token":
            tokens += [unquote_to_bytes(value), unquote_to_bytes(value.replace(b"+", b" "))]
    return tokens


def _tokens_in_headers(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Tokens in the headers of a request."""
    tokens = []
    for header, value in headers:
        if header.lower() == b"authorization" and value[:6].lower() == b"basic ":
            with suppress(ValueError):
                tokens.append(base64.b64decode(value[6:].strip(), validate=True).partition(b":")[2])
        elif header.lower() == b"authorization":
            tokens.append((value[7:] if value[:7].lower() == b"bearer " else value).strip())
        elif header.lower() == b"cookie":
            cookies = (part.strip().partition(b"=") for part in value.split(b";"))
            tokens += [unquote_to_bytes(text) for name, _, text in cookies if name == COOKIE.encode()]
    return tokens


def address_of(host: str, port: int, token: str | None) -> str:
    """The address to open in a browser.

    >>> address_of("127.0.0.1", 8317, "a+b & more")
    'http://127.0.0.1:8317/?token=a%2Bb%20%26%20more'
    >>> address_of("::1", 8317, None)
    'http://[::1]:8317/'
    """
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + ("" if token is None else f"?token={quote(token.strip(), safe='')}")


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = f"Refused: {reason}.\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class StrictJson(APIRoute):
    """A route whose JSON body must be JSON: no NaN, no infinity, no half of a surrogate pair (400)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with a request that reads its body strictly."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            value = json.loads(await self.body())
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            raise RequestError(400, "the body is not valid JSON") from None
        return value


def json_app(title: str, **options: Any) -> FastAPI:
    """An application that takes strict JSON and answers what it refuses with a sentence in `error`.

    Args:
        title: its name.
        **options: of FastAPI.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None, **options)
    app.router.route_class = StrictJson

    @app.exception_handler(RequestError)
    async def refuse(request: Request, error: RequestError) -> Response:
        headers = {**(error.headers or {}), "connection": "close"}  # the rest of the body must not be read
        return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=headers)

    @app.exception_handler(RequestValidationError)
    async def report_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:])) or "body"
        return JSONResponse({"error": f"The request is invalid: {where}: {first['msg']}."}, status_code=422)

    return app


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
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise TagfillError(f"Cannot listen on {host}, port {port}: {error.strerror}; choose another --port.") from None
    return listening


def check_token(host: str, token: str | None) -> None:
    """Raise if other machines could reach a server without a token, or the token is too easy to guess.

    >>> check_token("127.0.0.1", "")
    Traceback (most recent call last):
    tagfill.errors.TagfillError: The --token is empty; give a long secret, or leave the option out.
    """
    if token is None:
        if not is_local(host):
            suggestion = secrets.token_urlsafe(16)
            raise TagfillError(f"{host} can be reached from other machines; give a --token, such as {suggestion}.")
    elif not token.strip():
        raise TagfillError("The --token is empty; give a long secret, or leave the option out.")
    elif not token.isprintable():
        raise TagfillError("The --token has characters that cannot be printed; give letters, digits and signs.")
    elif len(token.strip()) < MIN_TOKEN:
        suggestion = secrets.token_urlsafe(16)
        raise TagfillError(
            f"The --token has fewer than {MIN_TOKEN} characters; give a longer one, such as {suggestion}."
        )


def run_server(
    app: Any,
    listening: socket.socket,
    token: str | None,
    *,
    grace: float = 5.0,
    limits: BodyLimits | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until interrupted, then finish the requests in flight.

    Args:
        app: the ASGI application.
        listening: from `listen`.
        token: that requests must have; required unless only this machine can reach the server.
        grace: seconds that requests in flight may take to finish.
        limits: of the bodies of requests.
        on_stop: called when the server was interrupted, before it finishes the requests in flight.
    """
    import uvicorn

    from tagfill.inference.connections import ConnectionLimits, RepeatFilter, limit_connections

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            on_stop()
            await super().shutdown(sockets)

    host = str(listening.getsockname()[0])
    check_token(host, token)
    limits = limits or BodyLimits()
    config = uvicorn.Config(
        Guard(app, token, local=is_local(host), limits=limits),
        http=limit_connections(ConnectionLimits(body=limits.seconds + 1)),  # the application answers first
        h11_max_incomplete_event_size=2 * HEADER_BYTES,  # of headers that come in pieces
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(grace),
    )
    repeats = RepeatFilter()
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addFilter(repeats)
    try:
        Server(config).run(sockets=[listening])
    finally:
        for logger in loggers:
            logger.removeFilter(repeats)
        for line in repeats.summary():
            loggers[0].warning(line)
