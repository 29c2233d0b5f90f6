"""Names and sizes of image files: which names are images, which lead nowhere outside of a root, how much is read."""

from __future__ import annotations

import io
from pathlib import PureWindowsPath
from typing import IO

from tagfill.errors import ImageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_BYTES = 512 * 2**20  # more than the largest image within the pixel limit needs

_CHUNK = 1 << 20


def check_name(name: str) -> None:
    r"""Raise if a name could lead out of the image root.

    Both kinds of slash separate folders and drive letters count on every system, so that a dataset means the same
    everywhere.

    >>> check_name("cats/0001.jpg")
    >>> check_name("../secret.jpg")
    Traceback (most recent call last):
    ...
    tagfill.errors.ImageError: Image ../secret.jpg: the name leads out of the image root; names are paths below it.

    Raises:
        ImageError: if the name is empty, absolute, contains `..`, or cannot be a file name.
    """
    path = PureWindowsPath(name)
    if not path.parts or "\0" in name or not _is_utf8(name):
        raise ImageError(repr(name), "this cannot be the name of a file")
    if path.anchor or ".." in path.parts:
        raise ImageError(name, "the name leads out of the image root; names are paths below it")


def check_bytes(name: str, size: int) -> None:
    """Raise if a file has more bytes than any image within the pixel limit needs."""
    if size > MAX_BYTES:
        raise ImageError(name, f"the file has {size:,} bytes, more than the limit of {MAX_BYTES:,}")


def read_limited(file: IO[bytes], name: str, declared: int | None = None) -> bytes:
    """The content of an open image file, which is not read beyond the limit of bytes.

    Args:
        file: a file, a member of an archive, or the answer of a server.
        name: of the image, for the error.
        declared: bytes that it should have, if that is known; more than the limit are refused before the first is read.

    Raises:
        ImageError: if it has more bytes than any image within the pixel limit needs.
    """
    check_bytes(name, declared or 0)
    content, size = io.BytesIO(), 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:
            raise ImageError(name, f"the file has more bytes than the limit of {MAX_BYTES:,}")
        content.write(chunk)
    return content.getvalue()


def is_image(name: str) -> bool:
    """Whether a file is an image, by its ending; hidden files are not.

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
