"""Names of images: paths below an image root, written with forward slashes."""

from __future__ import annotations

from pathlib import PureWindowsPath

from tagfill.errors import ImageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_BYTES = 512 * 2**20  # a file of more bytes is not read: the largest picture within the pixel limit needs fewer


def check_name(name: str) -> None:
    r"""Refuse a name that could lead out of the image root.

    Both kinds of slash separate folders and a drive letter counts, whatever the system, so that a dataset means
    the same everywhere.

    >>> check_name("cats/0001.jpg")
    >>> check_name("../secret.jpg")
    Traceback (most recent call last):
    ...
    tagfill.errors.ImageError: Image ../secret.jpg: the name leads out of the image root; names are paths below it.

    Raises:
        ImageError: if the name is empty, absolute, contains `..`, or is no text that a file system can hold.
    """
    path = PureWindowsPath(name)
    if not path.parts or "\0" in name or not _is_utf8(name):
        raise ImageError(repr(name), "this cannot be the name of a file")
    if path.anchor or ".." in path.parts:
        raise ImageError(name, "the name leads out of the image root; names are paths below it")


def check_bytes(name: str, size: int) -> None:
    """Refuse a file of more bytes than any picture within the pixel limit needs."""
    if size > MAX_BYTES:
        raise ImageError(name, f"the file has {size:,} bytes, more than the limit of {MAX_BYTES:,}")


def is_image(name: str) -> bool:
    """Whether a listed file is an image, by its ending; hidden files are not.

    >>> [is_image(name) for name in ("a/b.JPG", "a/b.json", "a/._b.jpg")]
    [True, False, False]
    """
    last = name.rsplit("/", 1)[-1]
    return last.lower().endswith(SUFFIXES) and not last.startswith(".")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
