"""Look at the photos of a dataset on a local web page.

Example: `tagfill browse photos`

Example: `tagfill browse photos --features photos-features`

The page filters photos by class and state and searches their names. With cached features, it also finds the nearest
photos of a photo and draws a map of all photos. Nothing is changed.
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
    features: Annotated[
        Path | None,
        typer.Option(metavar="CACHE", help="Cache of `tagfill features`, for nearest photos and a map."),
    ] = None,
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
    data = Dataset.open(dataset)
    index = PhotoIndex(data)
    space = None
    if features is not None:  # only features need torch
        from tagfill.curation.browse_features import FeatureSpace

        space = FeatureSpace(features, data)
    from tagfill.curation import browse_server  # needs the libraries that were checked above

    signal.signal(signal.SIGTERM, flags.interrupt)
    progress = terminal.progress(quiet=False)
    hint = "press Ctrl-C to stop"
    listening = announce(f"{len(index):,} photos", hint, host, port, token, browser, progress)
    with suppress(KeyboardInterrupt):
        browse_server.serve(index, listening, token=token, space=space)
