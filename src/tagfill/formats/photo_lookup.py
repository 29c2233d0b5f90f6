"""Finding the photos that a table names: as people write names, not as the files are called.

A name is tried as it is, then without the folder of the photos, then without leading folders, then in any case, then
with another ending or none. It must lead to exactly one photo, and no photo may belong to two names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tagfill.errors import DatasetError, TagfillError
from tagfill.images import open_root
from tagfill.progress import SILENT, Progress

_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic"})


@dataclass(frozen=True)
class FoundPhotos:
    """Which photos the names of a table lead to.

    Attributes:
        found: photo of each name that leads to one.
        ambiguous: names that could be several photos, with two of these.
        repeated: names that lead to a photo to which another name leads, too.
        missing: all other names.
    """

    found: dict[str, str]
    ambiguous: dict[str, tuple[str, str]]
    repeated: tuple[str, ...]
    missing: tuple[str, ...]


def is_photo_name(text: str) -> bool:
    """Whether a text ends as the names of photos do, also of photos that Tagfill does not read.

    >>> [is_photo_name(text) for text in ("a/b.JPG", "IMG_1.HEIC", "cat", "v1.2")]
    [True, True, False, False]
    """
    return PurePosixPath(text).suffix.lower() in _ENDINGS


def list_photos(root: str | os.PathLike[str], *, progress: Progress = SILENT) -> list[str]:
    """The names of all photos below an image root.

    Args:
        root: a folder, tar shards, a zip file or a URL that can be listed.
        progress: told about shards that have to be indexed.

    Raises:
        DatasetError: it does not exist, or has no photo.
    """
    text = os.fspath(root)
    try:
        names = open_root(text, progress=progress).names()
    except TagfillError:
        if "://" in text or Path(text).exists() or "{" in text:
            raise
        raise DatasetError(
            f"There are no photos at {text}: no file or folder has this name; name the folder of the photos with "
            "root= (a zip file, tar shards or a URL will do as well)."
        ) from None
    if not names:
        raise DatasetError(
            f"There is no photo below {text}, where JPEG, PNG and WebP files were looked for; name the folder of the "
            "photos with root=."
        )
    return names


def look_up_photos(names: Sequence[str], available: Sequence[str], root: Path | str) -> FoundPhotos:
    """Find the photo of each name.

    Args:
        names: distinct names, with forward slashes.
        available: paths of the photos below the root.
        root: the image root; names may be paths that begin with it.

    >>> look_up_photos(["my/a.JPG", "b", "c.jpg"], ["a.jpg", "b.jpg"], "").found
    {'my/a.JPG': 'a.jpg', 'b': 'b.jpg'}
    """
    known = set(available)
    found = {name: name for name in names if name in known}
    rest = [name for name in names if name not in known]
    if not rest:
        return FoundPhotos(found, {}, (), ())
    base = None if isinstance(root, str) else root.absolute().as_posix() + "/"
    indexes = [_Index(available, key) for key in (str, str.casefold, _without_ending)]
    guessed: dict[str, str] = {}
    ambiguous: dict[str, tuple[str, str]] = {}
    for name in rest:
        if base is not None and name.removeprefix(base) in known:
            guessed[name] = name.removeprefix(base)
            continue
        for index in indexes:
            photos = index.find(name)
            if len(photos) == 1:
                guessed[name] = photos[0]
            elif photos:
                ambiguous[name] = (photos[0], photos[1])
            if photos:
                break
    taken = Counter([*found.values(), *guessed.values()])
    repeated = tuple(name for name, photo in guessed.items() if taken[photo] > 1)
    found |= {name: photo for name, photo in guessed.items() if taken[photo] == 1}
    missing = tuple(name for name in rest if name not in guessed and name not in ambiguous)
    return FoundPhotos(found, ambiguous, repeated, missing)


class _Index:
    """Photos by the endings of their paths, with a key that ignores differences."""

    def __init__(self, available: Sequence[str], key: Callable[[str], str]) -> None:
        self._key, self._photos = key, dict[str, list[str]]()
        for name in available:
            for ending in _endings(key(name)):
                self._photos.setdefault(ending, []).append(name)

    def find(self, name: str) -> list[str]:
        """The photos that fit the longest ending of a name that any photo fits."""
        return next((self._photos[end] for end in _endings(self._key(name)) if end in self._photos), [])


def _endings(name: str) -> list[str]:
    """A path without its first folders, longest first.

    >>> _endings("a/b/1.jpg")
    ['a/b/1.jpg', 'b/1.jpg', '1.jpg']
    """
    parts = [part for part in name.split("/") if part]
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _without_ending(name: str) -> str:
    """A path in lower case without the ending of an image file.

    >>> _without_ending("my/A.JPG"), _without_ending("v1.2")
    ('my/a', 'v1.2')
    """
    return (str(PurePosixPath(name).with_suffix("")) if is_photo_name(name) else name).casefold()
