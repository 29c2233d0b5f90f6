"""Image roots: the places that images are read from.

An image is named by its path below the root, with forward slashes. A root is one of

- a folder;
- tar shards in WebDataset layout. WebDataset reads them from front to back; per-image state needs images in any order,
  so each shard gets an index of where its members are, and a read is one seek. Indexes are kept in the cache folder and
  made again when the size or modification time of the shard changes;
- a URL, fetched through fsspec and kept in the cache folder; see `tagfill.images.remote`.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import stat
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ValidationError

from tagfill.errors import ImageError, TagfillError, TagfillWarning
from tagfill.images.image_files import check_bytes, check_name, is_image, read_limited
from tagfill.images.remote import RemoteRoot
from tagfill.io import atomic_write, cache_folder, sha256_of_strings
from tagfill.progress import SILENT, Progress

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
WITNESSES = 100  # images of which one proves that a machine sees them
_ENDS = 1 << 16  # bytes at each end of a file that tell it from another


class Root(Protocol):
    """Images by name; it can be sent to worker processes."""

    def read(self, name: str) -> bytes:
        """The bytes of an image file; raises `ImageError` if it cannot be read."""
        ...

    def names(self) -> list[str]:
        """The names of all images, sorted; raises `TagfillError` if the root cannot be listed."""
        ...


def open_root(root: str | os.PathLike[str], *, progress: Progress = SILENT) -> Root:
    """Open an image root.

    | root | meaning |
    |---|---|
    | `photos` | a folder; one with tar files but no subfolders or images is read as shards |
    | `shards-{000000..000012}.tar`, `photos.tar` | tar shards in WebDataset layout, read through an index |
    | `https://host/photos`, `s3://bucket/photos` | a URL that fsspec can open; images are cached |
    | `photos.zip`, `zip://::https://host/photos.zip` | a local or remote zip archive |

    Args:
        root: one of these.
        progress: receives the shards that have to be indexed.

    Raises:
        TagfillError: if it does not exist.

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
        return _open_shards(found, progress) if found else FolderRoot(path)
    if path.is_file() and path.suffix == ".zip":
        return RemoteRoot(f"zip://::{path}")
    shards = expand_braces(str(path))
    if path.suffix == ".tar" and (path.is_file() or len(shards) > 1):
        return _open_shards([path] if path.is_file() else [Path(shard) for shard in shards], progress)
    raise TagfillError(
        f"There is no image root {path}; it may be a folder, a zip file, tar shards such as "
        "shards-{000..012}.tar, or a URL."
    )


def shared_files(root: Root, names: Sequence[str]) -> list[Path]:
    """Local files that prove that another machine sees the same root: its shards, or its folder and one image.

    Args:
        root: the root.
        names: of images in it; the first one that exists is taken.
    """
    if isinstance(root, ShardRoot):
        return [path.absolute() for path in root.shards]
    if isinstance(root, FolderRoot):
        found = next((name for name in names[:WITNESSES] if root.size(name)), None)
        return [root.folder.absolute(), *([] if found is None else [root.folder.absolute() / found])]
    return []


def file_sizes(root: Root, names: Sequence[str]) -> list[int | None]:
    """Bytes of the files of images: 0 if there is none, None if the root does not tell, as a URL does not."""
    if isinstance(root, FolderRoot | ShardRoot):
        return [root.size(name) for name in names]
    return [None] * len(names)


def file_times(root: Root, names: Sequence[str]) -> list[int | None]:
    """Modification times (ns) of the files of images: None if there is no file, or the root is not a folder."""
    return [root.time(name) if isinstance(root, FolderRoot) else None for name in names]


def content_digest(root: Root, name: str) -> int | None:
    """A number for the content of a file in a folder, from its size and its first and last 64 kB; None if unknown."""
    if not isinstance(root, FolderRoot):
        return None
    try:
        with (root.folder / name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = hashlib.sha256(size.to_bytes(8, "little") + file.read(_ENDS))
            file.seek(max(size - _ENDS, 0))
            content.update(file.read(_ENDS))
    except (OSError, ValueError):
        return None
    return int.from_bytes(content.digest()[:7], "little")


def _open_shards(shards: list[Path], progress: Progress) -> ShardRoot:
    root = ShardRoot(tuple(shards))
    root.index(progress)
    return root


def _shards_in(folder: Path) -> list[Path]:
    """The tar files of a folder of shards, sorted; none for a folder of images."""
    shards = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if Path(entry.path).is_dir() or is_image(entry.name):  # DirEntry.is_dir raises for a link to itself
                return []
            if entry.name.endswith(".tar"):
                shards.append(folder / entry.name)
    return sorted(shards)


@dataclass(frozen=True)
class FolderRoot:
    """A folder of images, including subfolders; symbolic links are followed.

    Attributes:
        folder: the image root.
    """

    folder: Path

    def read(self, name: str) -> bytes:
        """The bytes of an image file.

        Raises:
            ImageError: if the file does not exist or cannot be read.
        """
        check_name(name)
        path = self.folder / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # opening a named pipe would block
                raise ImageError(name, "this is a folder or a special file, not an image")
            with path.open("rb") as file:
                return read_limited(file, name, status.st_size)
        except (FileNotFoundError, NotADirectoryError):
            raise ImageError(name, f"there is no such file below {self.folder}") from None
        except OSError as error:
            raise ImageError(name, f"the file cannot be read ({error.strerror})") from None

    def size(self, name: str) -> int:
        """Bytes of an image file; 0 if there is none."""
        try:
            return (self.folder / name).stat().st_size
        except (OSError, ValueError):
            return 0

    def time(self, name: str) -> int | None:
        """Modification time of an image file in nanoseconds; None if there is none."""
        try:
            return (self.folder / name).stat().st_mtime_ns
        except (OSError, ValueError):
            return None

    def names(self) -> list[str]:
        """The image files, sorted."""
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        visited: set[str] = set()
        for place, folders, files in os.walk(self.folder, followlinks=True):
            real = os.path.realpath(place)
            folders[:] = [] if real in visited else [name for name in folders if not name.startswith(".")]
            if real in visited:  # a link that leads back
                continue
            visited.add(real)
            relative = Path(place).relative_to(self.folder)
            for name in files:
                if is_image(name) and not _is_loop(Path(place, name)):
                    yield (relative / name).as_posix()


def _is_loop(path: Path) -> bool:
    """Whether a path is a symbolic link that leads to itself; a warning names it."""
    if not path.is_symlink():
        return False
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            warnings.warn(f"{path} is a link that leads to itself; it is skipped.", TagfillWarning, stacklevel=2)
            return True
    return False


@dataclass(frozen=True)
class ShardRoot:
    """Tar files whose members are the images.

    Only the list of shards is sent to another process, which reads the indexes again.

    Attributes:
        shards: the tar files; a name may occur in only one of them.
    """

    shards: tuple[Path, ...]

    def __reduce__(self) -> tuple[type[ShardRoot], tuple[tuple[Path, ...]]]:
        return type(self), (self.shards,)

    def read(self, name: str) -> bytes:
        """The bytes of a member.

        Raises:
            ImageError: if no shard contains it, or its shard has changed since it was indexed.
        """
        check_name(name)
        indexes, places = self._indexes
        if name not in places:
            raise ImageError(name, f"none of the {len(self.shards)} shards starting with {self.shards[0]} contains it")
        number = places[name]
        offset, size = indexes[number].members[name]
        check_bytes(name, size)
        shard = self.shards[number]
        try:
            with shard.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != indexes[number].stamp:
                    raise ImageError(name, f"its shard {shard} has changed since it was opened; start again")
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise ImageError(name, f"its shard {shard} cannot be read ({error.strerror})") from None

    def size(self, name: str) -> int:
        """Bytes of a member; 0 if there is none."""
        indexes, places = self._indexes
        return indexes[places[name]].members[name][1] if name in places else 0

    def names(self) -> list[str]:
        """The image members, sorted."""
        return sorted(name for name in self._indexes[1] if is_image(name))

    def index(self, progress: Progress = SILENT) -> None:
        """Index new shards, and check that no name occurs in two of them."""
        with progress.bar("indexing shards", len(self.shards), "shard") as bar:
            for shard in self.shards:
                index_shard(shard)
                bar.advance()
        _ = self._indexes

    @cached_property
    def _indexes(self) -> tuple[list[ShardIndex], dict[str, int]]:
        """The index of each shard, and the shard number of each name."""
        indexes = [index_shard(shard) for shard in self.shards]
        places: dict[str, int] = {}
        for number, index in enumerate(indexes):
            for name in index.members:
                if name in places:
                    raise TagfillError(
                        f"'{name}' is in {self.shards[places[name]]} and in {self.shards[number]}; names identify "
                        "images, so each may be in only one shard."
                    )
                places[name] = number
        return indexes, places


class ShardIndex(BaseModel):
    """The members of one tar file, as kept in the cache folder.

    Attributes:
        version: of this format.
        shard: path of the tar file.
        stamp: size and modification time (ns) of the tar file when it was indexed.
        members: offset and size in bytes of each member's content, by name.
    """

    version: Literal[1]
    shard: str
    stamp: tuple[int, int]
    members: dict[str, tuple[int, int]]


def index_shard(path: Path) -> ShardIndex:
    """The index of a tar file, from the cache folder if the file has not changed since.

    Raises:
        TagfillError: if the file does not exist, or is not a complete, uncompressed tar file.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise TagfillError(f"Shard {path} cannot be read: {error.strerror}.") from None
    stamp = (status.st_size, status.st_mtime_ns)
    cached = cache_folder() / "shards" / f"{sha256_of_strings([str(path.absolute())])[:32]}.json"
    with suppress(OSError, ValidationError):  # no index that can be used
        index = ShardIndex.model_validate_json(cached.read_bytes())
        if index.stamp == stamp:
            return index
    # not validated: pydantic refuses names that are not UTF-8, which a tar file can contain
    index = ShardIndex.model_construct(version=1, shard=str(path.absolute()), stamp=stamp, members=_scan(path))
    with suppress(OSError), atomic_write(cached) as file:  # a cache that cannot be written costs only time
        file.write(json.dumps(dict(index)).encode())
    return index


def _scan(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each regular file and hard link of a tar file."""
    members: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            while member := tar.next():
                tar.members = []  # type: ignore[attr-defined]  # otherwise it keeps every header
                name = member.name.removeprefix("./")
                if member.isreg() and not member.issparse():
                    place = (member.offset_data, member.size)
                elif member.islnk() and (target := member.linkname.removeprefix("./")) in members:
                    place = members[target]
                else:
                    continue
                if name in members:
                    raise TagfillError(f"Shard {path} has two members '{name}'; names identify images.")
                members[name] = place
            end = tar.offset
        with path.open("rb") as file:  # tarfile takes a damaged header for the end of the file
            file.seek(end)
            if any(file.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError(f"damaged at byte {end:,}")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise TagfillError(
            f"Shard {path} cannot be read as an uncompressed tar file ({error}); make it again, without compression."
        ) from None
    return members


def expand_braces(pattern: str) -> list[str]:
    """Expand ranges of numbers in a pattern.

    >>> expand_braces("shards-{08..10}.tar")
    ['shards-08.tar', 'shards-09.tar', 'shards-10.tar']
    """
    texts = _RANGE.split(pattern)[::3]
    ranges = [
        [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        for first, last in _RANGE.findall(pattern)
    ]
    chosen = itertools.product(*ranges)
    return ["".join(itertools.chain(*zip(texts, [*numbers, ""], strict=True))) for numbers in chosen]
