"""Opening a page: on which address, for whom, and until Ctrl-C."""

from __future__ import annotations

import getpass
import socket
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tagfill.curation.review import ReviewSession
from tagfill.errors import TagfillError
from tagfill.progress import NOTEBOOK, Progress

LOCAL = "127.0.0.1"


def check_server(what: str, host: str, token: str | None) -> None:
    """Raise if a page cannot be served: libraries are missing, or the address needs a token.

    Args:
        what: would be served; the subject of the error message.
        host: address to listen on.
        token: secret that is required to open the page.
    """
    try:
        from tagfill.curation import server  # noqa: F401
        from tagfill.inference import http
    except ModuleNotFoundError as error:
        raise TagfillError(f"{what} needs {error.name}; install it with: pip install 'tagfill[serve]'.") from None
    http.check_token(host, token)


def announce(
    what: str, hint: str, host: str, port: int, token: str | None, browser: bool, progress: Progress
) -> socket.socket:
    """Listen, say where the page is, and open it; returns the listening socket.

    Args:
        what: is served, such as `120 questions`.
        hint: how to end it.
        host: address to listen on.
        port: 0 picks a free one.
        token: secret that is required to open the page.
        browser: whether to open the page in a browser.
        progress: told the address.
    """
    from tagfill.inference import http

    listening = http.listen(host, port)
    address = http.address_of(host, listening.getsockname()[1], token)
    progress.say(f"{what} at {address} ({hint})")
    if browser:
        webbrowser.open(address)
    return listening


@dataclass(frozen=True)
class ReviewPage:
    """Where the page is served, and to whom.

    Attributes:
        host: address to listen on; one that other machines can reach needs a token.
        port: 0 picks a free one.
        token: secret that is required to open the page.
        run: run or model folder, for probabilities and heatmaps on the page.
        reviewer: name in the log; the login name by default.
        browser: whether to open the page in a browser.

    Raises:
        TagfillError: if the libraries of the server are missing, or the address needs a token.

    Example:
        >>> with open_session(data, suggestions) as session:  # doctest: +SKIP
        ...     ReviewPage(run="runs/photos-en").serve(session, "120 questions")
    """

    host: str = LOCAL
    port: int = 0
    token: str | None = None
    run: Path | None = None
    reviewer: str | None = None
    browser: bool = True

    def __post_init__(self) -> None:
        check_server("The review page", self.host, self.token)

    def serve(
        self,
        session: ReviewSession,
        what: str,
        *,
        task: Literal["review", "audit"] = "review",
        progress: Progress = NOTEBOOK,
    ) -> None:
        """Say where the page is, open it, and serve it until Ctrl-C, or until the cell of a notebook is stopped.

        Args:
            session: the review, open for decisions.
            what: is asked, such as `120 questions`.
            task: what the page is for.
            progress: told the address.
        """
        from tagfill.curation import server

        hint = f"press Ctrl-C to end the {task}"
        listening = announce(what, hint, self.host, self.port, self.token, self.browser, progress)
        reviewer = self.reviewer or getpass.getuser()
        with suppress(KeyboardInterrupt):  # ends the review
            server.serve(session, listening, run=self.run, reviewer=reviewer, token=self.token, task=task)
