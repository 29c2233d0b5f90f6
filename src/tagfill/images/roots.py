"""Where images come from: a folder, tar shards, or a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from tagfill.errors import TagfillError
from tagfill.images.folder import FolderRoot
from tagfill.images.names import is_image
from tagfill.images.remote import RemoteRoot
from tagfill.images.shards import ShardRoot, expand_braces
from tagfill.progress import SILENT, Progress


class Root(Protocol):
    """A place that holds images by name; it can be sent to worker processes."""

    def read(self, name: str) -> bytes:
        """The bytes of an image file; an `ImageError` if they cannot be had."""
        ...

    def names(self) -> list[str]:
        """The images there are, in alphabetical order; a `TagfillError` where the place cannot be listed."""
        ...


def open_root(root: str | os.PathLike[str], *, progress: Progress = SILENT) -> Root:
    """Open an image root.

    | root | what it is |
    |---|---|
    | `photos` | a folder; one with tar files and neither sub-folders nor images is read as shards |
    | `shards-{000000..000012}.tar`, `photos.tar` | tar shards in WebDataset layout, read at random through an index |
    | `https://host/photos`, `s3://bucket/photos` | a URL that fsspec can open; images are kept in the cache folder |
    | `photos.zip`, `zip://::https://host/photos.zip` | a zip archive, here or elsewhere |

    Args:
        root: one of these.
        progress: told about the shards that have to be indexed.

    Raises:
        TagfillError: if there is nothing of the kind.

    >>> open_root("memory://photos")
    RemoteRoot(url='memory://photos')
    """
    text = os.fspath(root)
    if text.startswith("file://") and "::" not in text:
        text = unquote(urlsplit(text).path)
    if "://" in text:
        return RemoteRoot(text.rstrip("/") if not text.endswith("://") else text)
    path = Path(text).absolute()
    if path.is_dir():
        found = _shards_in(path)
        return _indexed(found, progress) if found else FolderRoot(path)
    if path.is_file() and path.suffix == ".zip":
        return RemoteRoot(f"zip://::{path}")
    shards = expand_braces(str(path))
    if path.suffix == ".tar" and (path.is_file() or len(shards) > 1):
        return _indexed([path] if path.is_file() else [Path(shard) for shard in shards], progress)
    raise TagfillError(
        f"There is no image root {path}; it may be a folder, a zip file, tar shards such as "
        "shards-{000..012}.tar, or a URL."
    )


def _indexed(shards: list[Path], progress: Progress) -> ShardRoot:
    root = ShardRoot(tuple(shards))
    root.index(progress)
    return root


def _shards_in(folder: Path) -> list[Path]:
    """The tar files of a folder that holds shards, in order; none of a folder that holds images."""
    shards = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir() or is_image(entry.name):
                return []
            if entry.name.endswith(".tar"):
                shards.append(folder / entry.name)
    return sorted(shards)
