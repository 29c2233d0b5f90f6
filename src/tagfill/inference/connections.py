"""Limits on the connections of a web server.

uvicorn has a time limit only for connections that are idle between two requests. A connection that sends nothing, a
header that never ends, a body that trickles in and a client that does not read its answer could each stay open forever.
Here each stage has a limit of its own, which bytes that arrive do not extend:

    first byte ──► header ──► body ──► answer ──► (idle) first byte of the next request

If all places are taken, a new connection gets the place of the one that has kept the server waiting longest. So
connections that send nothing cannot shut out clients that send their requests.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_SPARE_FILES = 128  # open files that are left for images, models and helper processes
_REPEAT_SECONDS = 60.0


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        connections: open at the same time.
        first_byte: seconds until the first byte of a request.
        header: seconds from there until its header is complete.
        body: seconds from there until its body is complete.
        unread: seconds in which a client must read some of its answer, and for which the rest of a body that is not
            wanted is still received.
    """

    connections: int = 256
    first_byte: float = 5.0
    header: float = 10.0
    body: float = 20.0
    unread: float = 20.0

    def within_open_files(self) -> ConnectionLimits:
        """These limits, with no more connections than the process may open files."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = self.connections if soft == resource.RLIM_INFINITY else max(8, (soft - _SPARE_FILES) // 2)
        return replace(self, connections=min(self.connections, allowed))


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection, with a time limit for each stage and a limit on connections.

    Create a subclass with `limit_connections` for each server.
    """

    limits: ClassVar[ConnectionLimits]
    _waiting: ClassVar[dict[LimitedProtocol, None]]  # those without a complete request, the oldest first

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stage = ""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first byte; close another connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            oldest = next(iter(self._waiting), self)
            self.logger.warning(
                "There are too many connections; the one that kept the server waiting longest is closed"
            )
            oldest._drop()
            if oldest is self:
                return
        self._enter("first byte", self.limits.first_byte)

    def data_received(self, data: bytes) -> None:
        """Pass data on, and note how far the request has come."""
        if self._stage in ("", "first byte", "idle"):
            self._enter("header", self.limits.header)
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for what the client still has to send and to read."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._enter("rest of the body", min(self.limits.body, self.limits.unread))
        else:
            self._follow()
        if not self.transport.is_closing() or self.transport.get_write_buffer_size():
            self._watch_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._enter("", None)
        if self._write_timer is not None:
            self._write_timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read its answer fast enough: give it some time."""
        super().pause_writing()
        self._watch_writing()

    def _follow(self) -> None:
        """Enter the stage that the request has reached."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            if self._stage != "rest of the body":
                self._enter("body", self.limits.body)
        elif state is not h11.IDLE:  # the request is complete
            self._enter("", None)
        elif not self.conn.trailing_data[0]:  # it was answered
            self._enter("idle", self.limits.first_byte)

    def _enter(self, stage: str, seconds: float | None) -> None:
        if stage == self._stage:
            return
        self._stage = stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is None:
            self._waiting.pop(self, None)
        else:
            self._timer = self.loop.call_later(seconds, self._expire)
            self._waiting.setdefault(self)

    def _expire(self) -> None:
        """Answer 408 if a request has begun and there is no answer yet, and close the connection."""
        unanswered = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        if self._stage in ("header", "body") and unanswered and not self.transport.is_closing():
            text = f"Refused: the {self._stage} of the request did not arrive in time.\n".encode()
            head = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
        self._drop(at_once=False)

    def _drop(self, *, at_once: bool = True) -> None:
        """Close the connection; the application learns that its client is gone."""
        self._enter("", None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if at_once:
            self.transport.abort()
        else:
            self.transport.close()
            self._watch_writing()

    def _watch_writing(self) -> None:
        """Close the connection if the client reads nothing of what is left of its answer."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        size = self.transport.get_write_buffer_size()
        if size:
            self._write_timer = self.loop.call_later(self.limits.unread, self._check_writing, size)

    def _check_writing(self, size: int) -> None:
        if self.transport.get_write_buffer_size() >= size:
            self.transport.abort()
        else:
            self._watch_writing()


def limit_connections(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """The connections of one server."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits.within_open_files(), "_waiting": {}})


class RepeatFilter(logging.Filter):
    """Lets a log line through once a minute, and then says how many like it were left out.

    Args:
        seconds: before the same line is written again.
    """

    def __init__(self, seconds: float = _REPEAT_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds
        self._written: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a line."""
        kind = type(record.exc_info[1]).__name__ if record.exc_info else ""
        key, now = (str(record.msg), kind), time.monotonic()
        if now - self._written.get(key, -self._seconds) < self._seconds:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return False
        self._written[key] = now
        count = self._left_out.pop(key, 0)
        if count:
            record.msg = f"{record.getMessage()} (and {count:,} more times since the last such line)"
            record.args = ()
        return True

    def summary(self) -> list[str]:
        """The lines that were left out since they were last written, with their number."""
        return [
            f"{message.splitlines()[0]} (and {count:,} more times)" for (message, _), count in self._left_out.items()
        ]
