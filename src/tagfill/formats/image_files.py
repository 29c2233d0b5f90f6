"""Image files on disk: which there are, how large they are, and putting them elsewhere.

Unpacking tar archives, without letting one write outside of the folder that it is given.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from PIL import Image, UnidentifiedImageError

from tagfill.dataset.dataset import local_root
from tagfill.errors import DatasetError, ImageError, one_of
from tagfill.io import write_json
from tagfill.progress import SILENT, Progress

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
    place = local_root(root, f"The size of {name}, which the dataset does not know,") / name
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
        self._root = None if how == "none" else local_root(root, f"images='{how}'")
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


_RECEIPT = ".unpacked.json"  # written last: a folder without it was interrupted
_HeaderError, _ReadError = tarfile.HeaderError, tarfile.ReadError
_EndError: type[Exception] = tarfile.EOFHeaderError  # type: ignore[attr-defined]  # zeros, as at the end of an archive


def is_archive(path: Path) -> bool:
    """Whether the path is a tar archive, compressed or not."""
    return path.is_file() and tarfile.is_tarfile(path)


def unpack(archive: Path, folder: Path, progress: Progress = SILENT) -> Path:
    """Unpack the files of an archive; a folder that already holds them is used as it is.

    Args:
        archive: a tar file, compressed or not.
        folder: to unpack into; created, or empty, or unpacked from the same archive before.
        progress: told about the bytes.

    Returns:
        The folder.

    Raises:
        DatasetError: the archive is damaged or holds a path that leads elsewhere, or the folder holds something else.
    """
    status = archive.stat()
    receipt = {"archive": archive.name, "bytes": status.st_size, "changed": status.st_mtime_ns}
    if (folder / _RECEIPT).is_file():
        if json.loads((folder / _RECEIPT).read_text(encoding="utf-8")) == receipt:
            return folder
        raise DatasetError(f"{folder} holds the files of another archive; unpack {archive.name} into another folder.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DatasetError(f"{folder} is not an empty folder; unpack {archive.name} into another one.")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tarfile.open(archive, tarinfo=_Member) as content,
            progress.bar(f"Unpacking {archive.name}", status.st_size, "B") as bar,
        ):
            for member in content:
                _unpack_one(content, member, folder, archive)
                bar.advance(member.size)
    except (tarfile.TarError, EOFError, OSError) as error:
        shutil.rmtree(folder)
        raise DatasetError(f"{archive} cannot be unpacked: {error}.") from None
    except BaseException:
        shutil.rmtree(folder)
        raise
    write_json(folder / _RECEIPT, receipt)
    return folder


class _Member(tarfile.TarInfo):
    """A file of an archive; where its description is damaged or missing, that is an error and not the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile)
        except _EndError:
            raise
        except _HeaderError as error:
            raise _ReadError(f"it is cut off or damaged ({error})") from None


def _unpack_one(content: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise DatasetError(f"{archive} holds '{member.name}', a path that leads out of the folder; it is not unpacked.")
    if member.isdir():
        return
    stream = content.extractfile(member) if member.isfile() else None
    if stream is None:
        raise DatasetError(f"{archive} holds '{member.name}', which is a link or a device; it is not unpacked.")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
