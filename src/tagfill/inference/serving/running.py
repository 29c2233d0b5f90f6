"""Running a server until somebody ends it."""

from __future__ import annotations

import secrets
import socket
from typing import Any

from tagfill.errors import TagfillError
from tagfill.inference.serving.guarding import HEADER_BYTES, Guard, is_local


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


def run(app: Any, listening: socket.socket, token: str | None, *, grace: float = 10.0) -> None:
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
