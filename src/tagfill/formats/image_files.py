"""Image files on disk: list them, read their size, check their names, and copy or link them elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from PIL import Image, UnidentifiedImageError

from tagfill.dataset.dataset import local_root
from tagfill.errors import DatasetError, ImageError, one_of

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
CopyMode = Literal["copy", "link", "none"]

_OTHER_SPLIT_NAMES = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}
SPLIT_NAMES = frozenset({"train", "val", "test", *_OTHER_SPLIT_NAMES})


def list_images(folder: Path) -> Iterator[str]:
    """Iterate over the images below a folder, sorted, as paths relative to it; hidden files and folders are skipped."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield (Path(place) / name).relative_to(folder).as_posix()


def list_folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones; none if it does not exist."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def split_for_folder(folder_name: str) -> str:
    """Return the split that a folder stands for: `valid` and `Validation` are val, other names are splits themselves.

    >>> split_for_folder("Valid"), split_for_folder("Fold2")
    ('val', 'Fold2')
    """
    lower = folder_name.lower()
    return _OTHER_SPLIT_NAMES.get(lower, lower) if lower in SPLIT_NAMES else folder_name


def read_size(root: Path | str, name: str) -> tuple[int, int]:
    """Return width and height as in the header of the file, before any EXIF rotation."""
    path = local_root(root, f"The size of {name}, which the dataset does not know,") / name
    try:
        with Image.open(path, formats=("JPEG", "PNG", "WEBP")) as image:
            return image.size
    except FileNotFoundError:
        raise ImageError(name, f"there is no such file below {root}") from None
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ImageError(name, f"its size cannot be read ({error})") from None


def check_image_path(name: str, where: str) -> None:
    """Raise if the name of an image is not a path below the image root; `where` it stands is named in the message."""
    if not name or name.startswith("/") or ".." in PurePosixPath(name).parts or "\0" in name:
        on_one_line = " ".join(name[:200].split())
        raise DatasetError(
            f"{where}: image '{on_one_line}' is not a path below the image root; name the root with root=."
        )


class ImageCopier:
    """Copies image files, creates symbolic links to them, or does nothing.

    Args:
        root: folder of the images.
        mode: `copy`, `link` or `none`.
    """

    def __init__(self, root: Path | str, mode: CopyMode) -> None:
        one_of("images", mode, ["copy", "link", "none"])
        self._root = None if mode == "none" else local_root(root, f"images='{mode}'")
        self._link = mode == "link"

    def copy(self, name: str, target: Path) -> None:
        """Copy or link one image."""
        if self._root is None:
            return
        image = self._root / name
        if not image.is_file():
            raise DatasetError(
                f"{image} is missing, so it cannot be copied to {target}; images='none' writes labels only."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.samefile(image):
            return
        if self._link:
            target.unlink(missing_ok=True)
            target.symlink_to(image.absolute())
        else:
            shutil.copyfile(image, target)
