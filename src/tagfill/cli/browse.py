"""Look at the photos of a dataset on a local web page.

Example: `tagfill browse photos`

The page filters photos by class and state and searches their names. Nothing is changed.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, review_page, terminal


def browse(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder, or a folder of `tagfill fill`.")],
    host: review_page.Host = "127.0.0.1",
    port: review_page.Port = 8318,
    token: flags.Token = None,
    browser: review_page.Browser = True,
) -> None:
    """Browse."""
    from tagfill.curation.browse import PhotoIndex
    from tagfill.curation.review_page import announce, check_server
    from tagfill.dataset import Dataset

    check_server("The page", host, token)
    if filled := flags.filled_folder(dataset):
        dataset = filled / "known"
    index = PhotoIndex(Dataset.open(dataset))
    from tagfill.curation import browse_server

    signal.signal(signal.SIGTERM, flags.interrupt)
    progress = terminal.progress(quiet=False)
    hint = "press Ctrl-C to stop"
    listening = announce(f"{len(index):,} photos", hint, host, port, token, browser, progress)
    with suppress(KeyboardInterrupt):
        browse_server.serve(index, listening, token=token)
