"""Image files on disk: which there are, how large they are, and putting them elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from PIL import Image, UnidentifiedImageError

from tagfill.annotations.image_root import local
from tagfill.errors import DatasetError, ImageError, one_of

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
Carry = Literal["copy", "link", "none"]

_SPLITS = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}
SPLIT_NAMES = frozenset({"train", "val", "test", *_SPLITS})


def split_of(folder_name: str) -> str:
    """The split that a folder stands for, whatever the usual names are in: `valid` and `Validation` are val.

    >>> split_of("Valid"), split_of("Fold2")
    ('val', 'Fold2')
    """
    lower = folder_name.lower()
    return _SPLITS.get(lower, lower) if lower in SPLIT_NAMES else folder_name


def below(folder: Path) -> Iterator[str]:
    """Images below a folder, sorted, as paths relative to it; hidden files and folders are left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield (Path(place) / name).relative_to(folder).as_posix()


def folders_in(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones; none if it does not exist."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def size(root: Path | str, name: str) -> tuple[int, int]:
    """Width and height as the file's header says, before any EXIF rotation."""
    place = local(root, f"The size of {name}, which the dataset does not know,") / name
    try:
        with Image.open(place, formats=("JPEG", "PNG", "WEBP")) as image:
            return image.size
    except FileNotFoundError:
        raise ImageError(name, f"there is no such file below {root}") from None
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ImageError(name, f"its size cannot be read ({error})") from None


def check_name(name: str, where: str) -> None:
    """Refuse an image that is not a path below the image root; `where` is the place in a file, for the message."""
    if not name or name.startswith("/") or ".." in PurePosixPath(name).parts or "\0" in name:
        on_one_line = " ".join(name[:200].split())
        raise DatasetError(
            f"{where}: image '{on_one_line}' is not a path below the image root; name the root with root=."
        )


class Carrier:
    """Puts image files at another place: copied, as symbolic links, or not at all.

    Args:
        root: where they are.
        how: `copy`, `link` or `none`.
    """

    def __init__(self, root: Path | str, how: Carry) -> None:
        one_of("images", how, ["copy", "link", "none"])
        self._root = None if how == "none" else local(root, f"images='{how}'")
        self._linking = how == "link"

    def put(self, name: str, target: Path) -> None:
        """Put one image at `target`."""
        if self._root is None:
            return
        image = self._root / name
        if not image.is_file():
            raise DatasetError(
                f"{image} is missing, so it cannot be put at {target}; images='none' writes labels only."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.samefile(image):
            return
        if self._linking:
            target.unlink(missing_ok=True)
            target.symlink_to(image.absolute())
        else:
            shutil.copyfile(image, target)
