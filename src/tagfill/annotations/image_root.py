"""Where the images of a dataset are: a folder, an archive, or a URL."""

from __future__ import annotations

import os
from pathlib import Path

from tagfill.errors import DatasetError


def image_root(root: str | os.PathLike[str]) -> Path | str:
    """A URL as it is written, and anything else as a path.

    >>> image_root("s3://bucket/photos/"), image_root("my/photos") == Path("my/photos")
    ('s3://bucket/photos/', True)
    """
    text = os.fspath(root)
    return text if "://" in text else Path(text)


def local(root: str | os.PathLike[str], purpose: str) -> Path:
    """The image root for something that can only use files of this machine, and says so about a URL."""
    found = image_root(root)
    if isinstance(found, str):
        raise DatasetError(
            f"{purpose} needs image files on this machine, but the image root is {found}; "
            "download the images and make their folder the root of the dataset."
        )
    return found
