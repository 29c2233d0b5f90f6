"""Finding the images of a dataset that cannot be decoded, before a run does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tagfill.errors import ImageError, TagfillError
from tagfill.images.decode import decode
from tagfill.images.roots import Root
from tagfill.progress import SILENT, Progress

_CHUNK = 16

_root: Root | Path | None = None  # of a worker process


def check(
    root: Root | Path, names: Sequence[str], *, workers: int = 0, progress: Progress = SILENT
) -> list[ImageError]:
    """Decode every image completely and collect what is wrong.

    Args:
        root: the image root, or the folder that it is.
        names: of the images.
        workers: processes that decode; 0 decodes in this one.
        progress: told about each image.

    Returns:
        One error for each bad image, in the order of the names.

    Raises:
        TagfillError: if a worker process was killed, as happens when memory runs out.

    Example:
        `root = open_root("photos"); bad = check(root, root.names(), workers=2)`
    """
    bad = []
    with progress.bar("decoding", len(names), "img") as bar:
        for found, count in _checked(root, names, workers):
            bad += found
            bar.advance(count)
            if found:
                bar.note(f"{len(bad)} bad")
    return bad


def _checked(root: Root | Path, names: Sequence[str], workers: int) -> Iterator[tuple[list[ImageError], int]]:
    """The bad images of each chunk of names, and how many names were looked at."""
    chunks = [names[at : at + _CHUNK] for at in range(0, len(names), _CHUNK)]
    if workers == 0:
        yield from ((_decode_all(root, chunk), len(chunk)) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(workers, initializer=_start, initargs=(root,))
    try:
        yield from zip(pool.map(_decode_in_worker, chunks), map(len, chunks), strict=True)
    except BrokenProcessPool:
        raise TagfillError(
            "A process that decoded images was killed, perhaps because memory ran out; try fewer workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _decode_all(root: Root | Path, names: Sequence[str]) -> list[ImageError]:
    bad = []
    for name in names:
        try:
            decode(root, name)
        except ImageError as error:
            bad.append(error)
    return bad


def _start(root: Root | Path) -> None:
    global _root
    _root = root


def _decode_in_worker(names: Sequence[str]) -> list[ImageError]:
    assert _root is not None
    return _decode_all(_root, names)
