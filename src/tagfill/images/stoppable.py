"""Decoding with a time limit, in a process that can be stopped.

A thread inside a decoder cannot be interrupted, a process can. Most images are decoded where they are needed: their
work (`tagfill.images.structure`) is known to be small. Those with more work than `LIGHT` go to a helper process, which
ends itself after `SECONDS` of computing time. Computing time does not depend on what else the machine does, so the same
images are refused on a busy machine and on an idle one.

A helper process is started when it is first needed and then reused; each thread that decodes has its own. It ends
together with the process that started it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, TypeVar

from tagfill.errors import ImageError, ImageLimitError, TagfillError
from tagfill.images.structure import measure

LIGHT = 30_000_000  # work of images that are decoded right away: about 0.3 s
SECONDS = 10.0  # of computing time for one image
_PATIENCE = 12  # the clock may show this many times as much before a process counts as stuck
_CHECK_SECONDS = 0.05  # between two looks at whether a request was given up

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def with_limits(
    function: Callable[Concatenate[str, bytes, Parameters], Result],
    name: str,
    content: bytes,
    *args: Parameters.args,
    **options: Parameters.kwargs,
) -> Result:
    """Call `function(name, content, …)`, which decodes an image, within the limits of structure and time.

    Args:
        function: of a module, since it may be called in another process.
        name: the image's identity.
        content: of its file.
        args: further arguments.
        options: further keyword arguments.

    Raises:
        ImageLimitError: if the file has too many scans or segments, or decoding it takes too long.
        ImageError: if `function` raises it, or the process that decodes was killed.
    """
    if measure(name, content).work <= LIGHT:
        return function(name, content, *args, **options)
    _check(name, _thread.given_up)
    process = _take(_thread.nice)
    try:
        result: Result = process.call(_thread.given_up, function, name, content, *args, **options)
    finally:
        _give_back(process)
    return result


class _Settings(threading.local):
    """How images of a thread are decoded."""

    given_up: Callable[[], bool] | None = None
    nice: int = 0


_thread = _Settings()


@contextmanager
def for_request(given_up: Callable[[], bool]) -> Iterator[None]:
    """Decode the images of this thread for a request to a server.

    A helper process then has a low priority, so that other requests are not slowed down, and is stopped once
    `given_up()` is true.
    """
    _thread.given_up, _thread.nice = given_up, 10
    try:
        yield
    finally:
        _thread.given_up, _thread.nice = None, 0


class _DecoderProcess:
    """A helper process that calls functions, one at a time."""

    def __init__(self, nice: int) -> None:
        self.nice, self._started = nice, False
        self._connection, theirs = multiprocessing.Pipe()
        code = f"from tagfill.images.stoppable import _work; _work({theirs.fileno()}, {SECONDS}, {nice})"
        paths = os.pathsep.join(path for path in sys.path if path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": paths},
            )
        except OSError as error:
            self._connection.close()
            raise TagfillError(f"A process that decodes images cannot be started ({error.strerror}).") from None
        finally:
            theirs.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def call(
        self, given_up: Callable[[], bool] | None, function: Callable[..., Any], name: str, *args: Any, **options: Any
    ) -> Any:
        """The result of the function; the process has ended if this raises any other error than the function did."""
        until = time.monotonic() + _PATIENCE * SECONDS
        try:
            if not self._started:
                self._wait(name, until, given_up)  # sending would block until the process reads
                self._started = self._connection.recv()
            self._connection.send((function, name, args, options))
            self._wait(name, until, given_up)
            error, result = self._connection.recv()
        except (EOFError, OSError):
            self.stop()
            if self._process.returncode == -signal.SIGPROF:
                raise _slow(name) from None
            raise ImageError(name, "the process that decoded it was killed, perhaps because memory ran out") from None
        except BaseException:  # Ctrl-C, and what stops an image: the next one must not get the answer to this one
            self.stop()
            raise
        if error is not None:
            raise error
        return result

    def _wait(self, name: str, until: float, given_up: Callable[[], bool] | None) -> None:
        """Wait until the process has sent something or ended."""
        while not self._connection.poll(_CHECK_SECONDS):
            _check(name, given_up)
            if time.monotonic() > until:
                raise _slow(name)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._connection.close()
        if self._process.poll() is None:
            try:
                self._process.wait(_CHECK_SECONDS)  # it may be about to end by itself, with its own reason
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def _check(name: str, given_up: Callable[[], bool] | None) -> None:
    """Raise if the request for which an image is decoded was given up."""
    if given_up is not None and given_up():
        raise ImageLimitError(name, "the request was given up before it was decoded")


def _slow(name: str) -> ImageLimitError:
    return ImageLimitError(name, f"decoding it takes more than {SECONDS:g} seconds of computing time")


# Helper processes that wait for the next image, of this process.
_idle: list[_DecoderProcess] = []
_inherited: list[_DecoderProcess] = []  # those of the process that this one was forked from
_lock = threading.Lock()


def _take(nice: int) -> _DecoderProcess:
    with _lock:
        for process in _idle:
            if process.nice == nice:
                _idle.remove(process)
                return process
    return _DecoderProcess(nice)


def _give_back(process: _DecoderProcess) -> None:
    if process.is_running:
        with _lock:
            _idle.append(process)


def stop_all() -> None:
    """End the helper processes that wait."""
    with _lock:
        waiting = _idle[:]
        _idle.clear()
    for process in waiting:
        process.stop()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_idle)
    _idle.clear()


atexit.register(stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _work(descriptor: int, seconds: float, nice: int) -> None:
    """What a helper process does until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, and is for the process that started it
    os.nice(nice)
    connection: Connection[Any, Any] = Connection(descriptor)
    connection.send(True)
    while True:
        try:
            function, name, args, options = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)  # the system then ends this process, also inside a decoder
        error = result = None
        try:
            result = function(name, *args, **options)
        except TagfillError as raised:
            error = raised
        except MemoryError:
            error = ImageError(name, "there is not enough memory to decode it")
        signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            connection.send((error, result))
        except OSError:  # the other end is gone
            return
