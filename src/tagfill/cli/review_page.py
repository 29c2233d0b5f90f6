"""What `tagfill review` and `tagfill audit` share: the options of the page."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagfill.cli import flags

if TYPE_CHECKING:
    from tagfill.curation.review_page import ReviewPage

Run = Annotated[Path | None, typer.Option(help="Run or model folder, for probabilities and heatmaps on the page.")]
Reviewer = Annotated[str | None, typer.Option(help="Your name in the log; your login name by default.")]
Host = Annotated[str, typer.Option(help="Listening address; remote access needs a --token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")]
Browser = Annotated[bool, typer.Option(help="Open the page in a browser.")]


def open_page(
    host: str, port: int, token: str | None, run: Path | None, reviewer: str | None, browser: bool
) -> ReviewPage:
    """The page of these options; raises before anything is read, if it cannot be served. SIGTERM ends it as Ctrl-C."""
    from tagfill.curation.review_page import ReviewPage

    page = ReviewPage(host, port, token, run, reviewer, browser)
    signal.signal(signal.SIGTERM, flags.interrupt)
    return page
