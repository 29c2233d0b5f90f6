"""Decide suggestions on a local page; each decision becomes a newer row of the dataset.

Example: `tagfill review photos --suggestions suggestions.parquet --run runs/photos-en`

Example: `tagfill review photos --apply`
"""

from __future__ import annotations

import getpass
import signal
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tagfill.cli import flags, terminal
from tagfill.errors import TagfillError


def review(
    dataset: Annotated[Path, typer.Argument(help="A dataset folder.")],
    suggestions: Annotated[
        Path | None, typer.Option(help="What `tagfill suggest` wrote, or a CSV file of image, label, probability.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="A run or model folder; shows where the model sees a label.")] = None,
    reviewer: Annotated[str | None, typer.Option(help="Your name in the log; your login name by default.")] = None,
    host: Annotated[str, typer.Option(help="Listen here; beyond this machine a --token is required.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free one.")] = 8317,
    token: Annotated[str | None, typer.Option(help="Whoever opens the page must have it.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    apply: Annotated[
        bool, typer.Option("--apply", help="Only make rows of the decisions that an interrupted review left.")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Review."""
    from tagfill.curation import Suggestions, server
    from tagfill.dataset import Dataset
    from tagfill.inference import http

    data = Dataset.open(dataset)
    if apply:
        _tell(dataset, server.apply(data), as_json)
        return
    if suggestions is None:
        raise TagfillError("What should be reviewed? Name a file with --suggestions; 'tagfill suggest' makes one.")
    http.check_token(host, token)
    signal.signal(signal.SIGTERM, flags.interrupt)
    with server.open_session(data, Suggestions.read(suggestions)) as desk:
        listening = http.listen(host, port)
        secret = "" if token is None else f"?token={token}"
        address = f"http://{host}:{listening.getsockname()[1]}/{secret}"
        terminal.progress(quiet=False).say(
            f"{len(desk.suggestions):,} suggestions at {address} (Ctrl-C ends the review)"
        )
        if browser:
            webbrowser.open(address)
        before = len(desk.log.entries)
        with suppress(KeyboardInterrupt):  # the way to end it
            server.serve(desk, listening, run=run, reviewer=reviewer or getpass.getuser(), token=token)
        decided = len(desk.log.entries) - before
    _tell(dataset, decided, as_json)


def _tell(dataset: Path, changes: int, as_json: bool) -> None:
    if as_json:
        terminal.show_json({"dataset": str(dataset), "changes": changes})
    else:
        terminal.show(f"{changes:,} decisions and undoings are in {dataset}")
