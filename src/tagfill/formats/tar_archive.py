"""Unpack tar archives without letting one write outside its folder."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Self

from tagfill.errors import DatasetError
from tagfill.io import write_json
from tagfill.progress import SILENT, Progress

_RECEIPT = ".unpacked.json"  # written last: a folder without it was interrupted
_HeaderError, _ReadError = tarfile.HeaderError, tarfile.ReadError
_EndError: type[Exception] = tarfile.EOFHeaderError  # type: ignore[attr-defined]  # zeros, as at the end of an archive


def is_archive(path: Path) -> bool:
    """Whether the path is a tar archive, compressed or not."""
    return path.is_file() and tarfile.is_tarfile(path)


def unpack(archive: Path, folder: Path, progress: Progress = SILENT) -> Path:
    """Unpack the files of an archive; a folder that already holds them is used unchanged.

    Args:
        archive: a tar file, compressed or not.
        folder: to unpack into; it does not exist, is empty, or was unpacked from the same archive before.
        progress: told about the bytes.

    Returns:
        The folder.

    Raises:
        DatasetError: the archive is damaged or holds a path out of the folder, or the folder holds other files.
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
    """A member of an archive; a damaged or missing header is an error instead of the end of the archive."""

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
