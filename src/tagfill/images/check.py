"""Find the images of a root that are missing or cannot be decoded, before a run does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tagfill.errors import ImageError, TagfillError
from tagfill.images.decode import check_decodable
from tagfill.images.remote import RemoteRoot
from tagfill.images.roots import FolderRoot, Root
from tagfill.progress import SILENT, Progress

_CHUNK = 16  # images per task of a worker process


def check_images(
    root: Root | Path, names: Sequence[str], *, workers: int = 0, progress: Progress = SILENT
) -> list[ImageError]:
    """Decode every image completely and collect the errors.

    Args:
        root: the image root, or its folder.
        names: of the images.
        workers: processes that decode; 0 decodes in this process.
        progress: receives the number of images done.

    Returns:
        One error per bad image, in the order of the names.

    Raises:
        TagfillError: if a worker process was killed, for example because memory ran out.

    Example:
        `root = open_root("photos"); bad = check_images(root, root.names(), workers=2)`
    """
    bad = []
    with progress.bar("decoding", len(names), "img") as bar:
        for errors, count in _check_chunks(root, names, workers):
            bad += errors
            bar.advance(count)
            if errors:
                bar.note(f"{len(bad)} bad")
    return bad


def find_missing(root: Root, names: Sequence[str]) -> list[str]:
    """Return the names of images that do not exist, without opening any file.

    Args:
        root: the image root. Images behind a URL are not looked for, which would take a request each.
        names: of the images.

    Example:
        `find_missing(open_root("photos"), ["a.jpg"])`
    """
    if isinstance(root, RemoteRoot):
        return []
    available = set(root.names())
    unlisted = (name for name in names if name not in available)
    if isinstance(root, FolderRoot):  # names without the ending of an image are not listed
        return [name for name in unlisted if not (root.folder / name).is_file()]
    return list(unlisted)


def _check_chunks(root: Root | Path, names: Sequence[str], workers: int) -> Iterator[tuple[list[ImageError], int]]:
    """The errors of each chunk of names, and the number of names in it."""
    chunks = [names[at : at + _CHUNK] for at in range(0, len(names), _CHUNK)]
    if workers == 0:
        yield from ((_errors_of(root, chunk), len(chunk)) for chunk in chunks)
        return
    pool = ProcessPoolExecutor(workers, initializer=_set_worker_root, initargs=(root,))
    try:
        yield from zip(pool.map(_errors_in_worker, chunks), map(len, chunks), strict=True)
    except BrokenProcessPool:
        raise TagfillError(
            "A process that decoded images was killed, perhaps because memory ran out; try fewer workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _errors_of(root: Root | Path, names: Sequence[str]) -> list[ImageError]:
    errors = []
    for name in names:
        try:
            check_decodable(root, name)
        except ImageError as error:
            errors.append(error)
    return errors


# A root with shards reads its indexes again when it arrives in another process, so it is sent to each worker once and
# not with every chunk.
_worker_root: Root | Path | None = None


def _set_worker_root(root: Root | Path) -> None:
    global _worker_root
    _worker_root = root


def _errors_in_worker(names: Sequence[str]) -> list[ImageError]:
    assert _worker_root is not None
    return _errors_of(_worker_root, names)
