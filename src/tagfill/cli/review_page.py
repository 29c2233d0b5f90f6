"""What `tagfill review` and `tagfill audit` share: the options of the page, and serving it until Ctrl-C."""

from __future__ import annotations

import getpass
import signal
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError

if TYPE_CHECKING:
    from tagfill.curation.review import ReviewSession

Run = Annotated[Path | None, typer.Option(help="Run or model folder, for probabilities and heatmaps on the page.")]
Reviewer = Annotated[str | None, typer.Option(help="Your name in the log; your login name by default.")]
Host = Annotated[str, typer.Option(help="Listening address; remote access needs a --token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")]
Token = Annotated[str | None, typer.Option(help="Secret that is required to open the page.")]
Browser = Annotated[bool, typer.Option(help="Open the page in a browser.")]


@dataclass
class ReviewPage:
    """Where the page is served, and to whom.

    Raises:
        TagfillError: if the libraries of the server are missing, or the address needs a token.
    """

    host: str
    port: int
    token: str | None
    run: Path | None
    reviewer: str | None
    browser: bool

    def __post_init__(self) -> None:
        try:
            from tagfill.curation import server  # noqa: F401
            from tagfill.inference import http
        except ModuleNotFoundError as error:
            raise TagfillError(
                f"The review page needs {error.name}; install it with: pip install 'tagfill[serve]'."
            ) from None
        http.check_token(self.host, self.token)
        signal.signal(signal.SIGTERM, flags.interrupt)

    def serve(self, session: ReviewSession, what: str, task: Literal["review", "audit"] = "review") -> None:
        """Say where the page is, open it, and serve it until Ctrl-C."""
        from tagfill.curation import server
        from tagfill.inference import http

        listening = http.listen(self.host, self.port)
        address = http.address_of(self.host, listening.getsockname()[1], self.token)
        terminal.progress(quiet=False).say(f"{what} at {address} (press Ctrl-C to end the {task})")
        if self.browser:
            webbrowser.open(address)
        reviewer = self.reviewer or getpass.getuser()
        with suppress(KeyboardInterrupt):  # ends the review
            server.serve(session, listening, run=self.run, reviewer=reviewer, token=self.token, task=task)
