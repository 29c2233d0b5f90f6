"""What every web server promises: tokens, limits on bodies and connections, log lines that are counted."""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient

from tagfill.errors import TagfillError
from tagfill.inference.connections import ConnectionLimits, RepeatFilter, limit_connections
from tagfill.inference.http import BodyLimits, Guard, address_of, check_token, listen

LOCAL = "http://127.0.0.1:8317"
LARGE = 30_000_000
TOKENS = ["a long secret", "1+1=2 & more; 100% or #?", "pässwörter für alle", "секретное слово", '"quoted\\"; path=/']


def echo() -> FastAPI:
    """Answers with the number of bytes of a body."""
    app = FastAPI()

    @app.post("/")
    async def count(request: Request) -> int:
        return len(await request.body())

    @app.get("/")
    def hello() -> str:
        return "hello"

    @app.get("/large")
    def large() -> Response:
        return Response(b"x" * LARGE)

    return app


# Tokens


def in_new_loop(coroutine):
    """The result of a coroutine, in a thread: a browser of another test may have left a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.mark.parametrize("token", ["", " ", "\t", "short", "seven77", "  short  ", "a secret\nwith lines"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_empty_blank_short_and_unprintable_tokens_are_refused_on_any_host(host, token):
    with pytest.raises(TagfillError, match="--token"):
        check_token(host, token)


@pytest.mark.parametrize("token", TOKENS)
def test_any_printable_token_works_in_address_cookie_and_header(token):
    check_token("0.0.0.0", token)

    def client() -> TestClient:
        return TestClient(Guard(echo(), token, local=False), base_url=LOCAL)

    browser = client()
    assert browser.get("/").status_code == 401
    assert browser.get(address_of("127.0.0.1", 8317, token)).status_code == 200
    assert browser.get("/").status_code == 200  # by its cookie
    for encoding in ("utf-8", "latin-1"):
        with contextlib.suppress(UnicodeEncodeError):
            header = {b"authorization": b"Bearer " + token.encode(encoding)}
            assert client().get("/", headers=header).status_code == 200
    for wrong in (token[:-1], token + "x", "", "Bearer"):
        assert client().get(address_of("127.0.0.1", 8317, wrong)).status_code == 401


@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "[::1"}, {"origin": "http://["}, {"origin": "//[x]y"}])
def test_malformed_host_and_origin_are_bad_requests(headers):
    client = TestClient(Guard(echo(), None, local=True), base_url=LOCAL)
    assert client.post("/", headers=headers).status_code == 400


# Bodies


def bodies(app: FastAPI, **limits: float) -> TestClient:
    return TestClient(Guard(app, None, local=True, limits=BodyLimits(**limits)), base_url=LOCAL)  # type: ignore[arg-type]


def test_a_body_above_the_limit_is_refused_by_declared_and_by_real_size():
    client = bodies(echo(), size=1000, in_flight=100_000)
    assert client.post("/", content=b"x" * 1000).json() == 1000
    assert client.post("/", content=b"x" * 1001).status_code == 413
    assert client.post("/", content=(b"x" * 600 for _ in range(2))).status_code == 413
    assert client.post("/", content=b"", headers={"content-length": "many"}).status_code == 413


def test_all_bodies_share_a_budget_and_small_ones_have_a_reserve():
    async def run() -> list[object]:
        gate, guard = asyncio.Event(), None

        async def app(scope, receive, send):
            try:
                while (await receive()).get("more_body"):
                    pass
            except Exception as error:
                found.append(error.status_code)
                return
            found.append("read")
            await gate.wait()

        found: list[object] = []
        guard = Guard(app, None, local=True, limits=BodyLimits(size=800, seconds=5, in_flight=1600))

        async def request(size: int) -> None:
            async def receive():
                return {"type": "http.request", "body": b"x" * size, "more_body": False}

            scope = {"type": "http", "method": "POST", "headers": [(b"host", b"127.0.0.1")], "query_string": b""}
            await guard(scope, receive, None)

        tasks = []
        for size in (800, 400, 400, 100, 100):  # 800 + 400 fill three quarters; small ones fit into the rest
            tasks.append(asyncio.create_task(request(size)))
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*tasks)
        await request(800)  # everything was given back
        return found

    assert in_new_loop(run()) == ["read", "read", 503, "read", "read", "read"]


# Connections


@contextlib.contextmanager
def running(limits: ConnectionLimits, body: BodyLimits | None = None):
    listening = listen("127.0.0.1", 0)
    guard = Guard(echo(), None, local=True, limits=body or BodyLimits(seconds=30))
    config = uvicorn.Config(guard, http=limit_connections(limits), ws="none", log_level="critical", backlog=16)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def answer(port: int, sent: bytes, *, after: bytes = b"", every: float = 0.0) -> tuple[bytes, float]:
    """What comes back over a connection that sends `after` again and again, and the seconds until it is closed."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        connection.settimeout(every or 10)
        received = b""
        while time.monotonic() < begin + 10:
            try:
                part = connection.recv(65536)
            except TimeoutError:
                with contextlib.suppress(OSError):
                    connection.sendall(after)
                continue
            except OSError:
                break
            if not part:
                break
            received += part
        return received, time.monotonic() - begin


HEAD = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n"


def test_silence_a_slow_header_and_a_slow_body_of_any_method_are_ended():
    with running(ConnectionLimits(first_byte=0.3, header=0.4, body=0.5, unread=0.5)) as port:
        assert answer(port, b"")[0] == b""
        assert b" 408 " in answer(port, b"GET / HT", after=b"x", every=0.1)[0]
        assert b" 408 " in answer(port, HEAD, after=b"x", every=0.1)[0]
        head = HEAD.replace(b"POST", b"GET").replace(b"connection: close\r\n", b"")
        received, seconds = answer(port, head, after=b"x", every=0.1)
        assert b" 200 " in received  # GET does not read its body
        assert seconds < 5
        assert b" 200 " in answer(port, HEAD + b"x" * 1000)[0]


def test_idle_connections_make_room_for_new_ones():
    with running(ConnectionLimits(connections=20, first_byte=30, header=30, body=30)) as port:
        idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
        for sent in (b"", b"GET / HT", HEAD):
            for connection in idle[-10:]:
                with contextlib.suppress(OSError):
                    connection.sendall(sent)
            request = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
            received, seconds = answer(port, request)
            assert b" 200 " in received
            assert seconds < 5
        for connection in idle:
            connection.close()


def test_connections_that_are_kept_alive_make_room_for_new_ones():
    with running(ConnectionLimits(connections=8)) as port:
        kept = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(8)]
        for connection in kept:
            connection.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert b" 200 " in connection.recv(65536)
        assert b" 200 " in answer(port, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")[0]
        for connection in kept:
            connection.close()


def test_a_client_that_does_not_read_its_answer_is_dropped():
    with running(ConnectionLimits(unread=0.3)) as port:
        for pause, complete in ((0.0, True), (2.0, False)):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"GET /large HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                time.sleep(pause)
                received = 0
                with contextlib.suppress(ConnectionResetError):
                    while part := connection.recv(2**20):
                        received += len(part)
            assert (received > LARGE) == complete


# Log lines


def test_repeated_log_lines_are_counted(caplog):
    logger, repeats = logging.getLogger("tagfill.test"), RepeatFilter(seconds=0.2)
    logger.addFilter(repeats)
    for _ in range(1000):
        logger.warning("out of %s", "files")
    logger.warning("another")
    assert repeats.summary() == ["out of %s (and 999 more times)"]
    time.sleep(0.25)
    logger.warning("out of %s", "files")
    logger.removeFilter(repeats)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["out of files", "another", "out of files (and 999 more times since the last such line)"]
