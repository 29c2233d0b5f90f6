"""Review suggestions on a local web page.

Example: `tagfill review photos --suggestions suggestions.parquet --run runs/photos-en`

Example: `tagfill review photos --apply`

Each decision becomes a new row of the dataset.
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
    suggestions: Annotated[Path | None, typer.Option(help="File of `tagfill suggest` or `tagfill predict`.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run or model folder, for heatmaps on the page.")] = None,
    reviewer: Annotated[str | None, typer.Option(help="Your name in the log; your login name by default.")] = None,
    host: Annotated[str, typer.Option(help="Listening address; remote access needs a --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8317,
    token: Annotated[str | None, typer.Option(help="Secret that is required to open the page.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    apply: Annotated[
        bool, typer.Option("--apply", help="Only save the decisions of an interrupted review as rows.")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Review."""
    from tagfill.curation import Suggestions
    from tagfill.curation.review import apply_log, open_session
    from tagfill.dataset import Dataset

    data = Dataset.open(dataset)
    if apply:
        _show(dataset, apply_log(data), as_json)
        return
    if suggestions is None:
        raise TagfillError("There is nothing to review; give a file to --suggestions, which 'tagfill suggest' writes.")
    try:
        from tagfill.curation import server
        from tagfill.inference import http
    except ModuleNotFoundError as error:
        raise TagfillError(
            f"The review page needs {error.name}; install it with: pip install 'tagfill[serve]'."
        ) from None
    http.check_token(host, token)
    signal.signal(signal.SIGTERM, flags.interrupt)
    with open_session(data, Suggestions.read(suggestions, data)) as session:
        listening = http.listen(host, port)
        secret = "" if token is None else f"?token={token}"
        address = f"http://{host}:{listening.getsockname()[1]}/{secret}"
        terminal.progress(quiet=False).say(
            f"{len(session.suggestions):,} suggestions at {address} (press Ctrl-C to end the review)"
        )
        if browser:
            webbrowser.open(address)
        before = len(session.log.entries)
        with suppress(KeyboardInterrupt):  # ends the review
            server.serve(session, listening, run=run, reviewer=reviewer or getpass.getuser(), token=token)
        decided = len(session.log.entries) - before
    _show(dataset, decided, as_json)


def _show(dataset: Path, changes: int, as_json: bool) -> None:
    if as_json:
        terminal.show_json({"dataset": str(dataset), "changes": changes})
    else:
        terminal.show(f"{changes:,} decisions and undos saved to {dataset}")
