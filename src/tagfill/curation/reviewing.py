"""A review from start to end: open the log, catch up on rows, serve the page, and fold the decisions in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tagfill.annotations import Dataset
from tagfill.curation.decisions import Log
from tagfill.curation.desk import Desk
from tagfill.curation.folding import fold
from tagfill.curation.looking import Looking
from tagfill.curation.suggestions import Suggestions
from tagfill.errors import TagfillError
from tagfill.files import alone_in
from tagfill.inference.serving import running

FOLDER, LOG = "review", "decisions.jsonl"


@contextmanager
def at_desk(dataset: Dataset, suggestions: Suggestions) -> Iterator[Desk]:
    """Sit down to review a dataset; decisions that were made before and did not become rows yet do so now.

    Args:
        dataset: opened from a folder, which keeps the log in `review/decisions.jsonl`.
        suggestions: about it.

    Raises:
        TagfillError: if somebody else has this dataset's log open.
    """
    if dataset.folder is None:
        raise TagfillError("A review keeps its log in the dataset's folder; save the dataset first.")
    folder = dataset.folder / FOLDER
    with alone_in(folder, "is reviewing"), Log(folder / LOG) as log:
        desk = Desk(suggestions, log, dataset)
        fold(dataset, log.entries, desk.live())
        try:
            yield desk
        finally:
            fold(dataset, log.entries, desk.live())


def apply(dataset: Dataset) -> int:
    """Make rows of the decisions that a killed review left in its log.

    Returns:
        The number of rows that were added or taken away.
    """
    if dataset.folder is None or not (dataset.folder / FOLDER / LOG).exists():
        return 0
    nothing = Suggestions.empty()
    with alone_in(dataset.folder / FOLDER, "is reviewing"), Log(dataset.folder / FOLDER / LOG) as log:
        return fold(dataset, log.entries, Desk(nothing, log, dataset).live())


def serve(desk: Desk, listening: socket.socket, *, run: Path | None, reviewer: str, token: str | None) -> None:
    """Serve the page until interrupted, and finish what is in flight.

    Args:
        desk: of the review.
        listening: from `tagfill.inference.serving.running.listen`.
        run: a run or model folder to show class maps of.
        reviewer: the name of whoever gives none.
        token: that requests must show; required unless only this machine can reach the server.
    """
    try:
        from tagfill.curation.server import application
    except ModuleNotFoundError as error:
        raise TagfillError(
            f"The review page needs {error.name}; install it with: pip install 'tagfill[serve]'."
        ) from None
    running.run(application(desk, Looking(desk.dataset, run), reviewer), listening, token, grace=5.0)
