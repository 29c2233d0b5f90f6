"""Names of images: paths below an image root, written with forward slashes.

Images in a folder.

Where the members of a tar file lie.

The index of a shard is kept in the cache folder under a name made from the shard's path, and is made again when the
shard's size or time of change differ.

Images in tar shards, read at random.

WebDataset keeps a dataset as a few large tar files that are read from front to back. Per-image state needs images
in any order, so each shard gets an index of where its members lie, and a read is one seek.

Images behind a URL, fetched through fsspec and kept in the cache folder.

An image is fetched once and then read from the cache, also without a network: its name is its identity, and what it
shows is taken to stay the same. Deleting the folder `images` of the cache folder fetches everything again. What lies
on this machine anyway (memory, a zip file) is not kept twice.

Where images come from: a folder, tar shards, or a URL.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from tagfill.errors import ImageError, TagfillError
from tagfill.io import atomic_write, cache_folder, sha256_of_strings
from tagfill.progress import SILENT, Progress

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


@dataclass(frozen=True)
class FolderRoot:
    """A folder of images, with sub-folders; symbolic links are followed.

    Attributes:
        folder: the image root.
    """

    folder: Path

    def read(self, name: str) -> bytes:
        """The bytes of an image file.

        Raises:
            ImageError: if there is no such file, or it cannot be read.
        """
        check_name(name)
        path = self.folder / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for ever
                raise ImageError(name, "this is a folder or a special file, not an image")
            check_bytes(name, status.st_size)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise ImageError(name, f"there is no such file below {self.folder}") from None
        except OSError as error:
            raise ImageError(name, f"the file cannot be read ({error.strerror})") from None

    def names(self) -> list[str]:
        """The files that end like images, in alphabetical order."""
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        visited: set[str] = set()
        for place, folders, files in os.walk(self.folder, followlinks=True):
            real = os.path.realpath(place)
            folders[:] = [] if real in visited else [name for name in folders if not name.startswith(".")]
            if real in visited:  # a link leads back
                continue
            visited.add(real)
            relative = Path(place).relative_to(self.folder)
            yield from ((relative / name).as_posix() for name in files if is_image(name))


_VERSION = 1


@dataclass(frozen=True)
class ShardIndex:
    """Members of one tar file.

    Attributes:
        stamp: size and time of change (ns) of the tar file when it was indexed.
        members: offset and size in bytes of each member's content, by name.
    """

    stamp: tuple[int, int]
    members: dict[str, tuple[int, int]]


def index_shard(path: Path) -> ShardIndex:
    """The index of a tar file, from the cache or made anew.

    Raises:
        TagfillError: if there is no such file, or it is not a whole, uncompressed tar file.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise TagfillError(f"Shard {path} cannot be read: {error.strerror}.") from None
    stamp = (status.st_size, status.st_mtime_ns)
    place = cache_folder() / "shards" / f"{sha256_of_strings([str(path.absolute())])[:32]}.json"
    kept = _read(place)
    if kept is not None and kept.stamp == stamp:
        return kept
    index = ShardIndex(stamp, _scan(path))
    content = {"version": _VERSION, "shard": str(path.absolute()), "stamp": stamp, "members": index.members}
    with suppress(OSError), atomic_write(place) as file:  # a cache that cannot be written costs time, nothing else
        file.write(json.dumps(content).encode())
    return index


def _read(place: Path) -> ShardIndex | None:
    """A kept index; None if there is none that can be used."""
    try:
        content: Any = json.loads(place.read_bytes())
        if content["version"] != _VERSION:
            return None
        size, changed = content["stamp"]
        return ShardIndex((size, changed), {name: (at, length) for name, (at, length) in content["members"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _scan(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each regular file and hard link of a tar file."""
    members: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(path, "r:") as tar:
            while member := tar.next():
                tar.members = []  # type: ignore[attr-defined]  # it remembers every header otherwise
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
        with path.open("rb") as file:  # tarfile takes a damaged header for the end
            file.seek(end)
            if any(file.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError(f"damaged at byte {end:,}")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise TagfillError(
            f"Shard {path} cannot be read as an uncompressed tar file ({error}); make it again, without compression."
        ) from None
    return members


_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@dataclass(frozen=True)
class ShardRoot:
    """Tar files whose members are the images, named as they are named inside.

    Only the list of shards travels to another process, which reads the indexes again.

    Attributes:
        shards: the tar files; a name may be in one of them only.
    """

    shards: tuple[Path, ...]

    def __reduce__(self) -> tuple[type[ShardRoot], tuple[tuple[Path, ...]]]:
        return type(self), (self.shards,)

    def read(self, name: str) -> bytes:
        """The bytes of a member.

        Raises:
            ImageError: if no shard has it, or its shard has changed since it was indexed.
        """
        check_name(name)
        indexes, places = self._found
        if name not in places:
            raise ImageError(name, f"none of the {len(self.shards)} shards beginning with {self.shards[0]} has it")
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

    def names(self) -> list[str]:
        """The members that end like images, in alphabetical order."""
        return sorted(name for name in self._found[1] if is_image(name))

    def index(self, progress: Progress = SILENT) -> None:
        """Index the shards that were not yet, and check that no name is in two of them."""
        with progress.bar("indexing shards", len(self.shards), "shard") as bar:
            for shard in self.shards:
                index_shard(shard)
                bar.advance()
        _ = self._found

    @cached_property
    def _found(self) -> tuple[list[ShardIndex], dict[str, int]]:
        """The index of each shard, and which shard has a name."""
        indexes = [index_shard(shard) for shard in self.shards]
        places: dict[str, int] = {}
        for number, index in enumerate(indexes):
            for name in index.members:
                if name in places:
                    raise TagfillError(
                        f"'{name}' is in {self.shards[places[name]]} and in {self.shards[number]}; names identify "
                        "images, so each may be in one shard only."
                    )
                places[name] = number
        return indexes, places


def expand_braces(pattern: str) -> list[str]:
    """The names that a pattern with ranges of numbers stands for.

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


_LOCAL = ("file", "local", "memory")
_PAUSES = (0.2, 1.0)  # seconds before trying again what failed for another reason than a missing file


@dataclass(frozen=True)
class RemoteRoot:
    """A place that fsspec can open.

    Attributes:
        url: such as `https://host/photos` or `zip://::https://host/photos.zip`.
    """

    url: str

    def __post_init__(self) -> None:
        if self._is_http and "?" in self.url:
            raise TagfillError(f"{self.url} cannot be an image root: names are put after it, and it has a query.")

    def read(self, name: str) -> bytes:
        """The bytes of an image file.

        Raises:
            ImageError: if there is no such file, or it cannot be fetched.
        """
        check_name(name)
        if not self._is_kept:
            return self._fetch(name)
        place = self._place(name)
        if place.is_file():
            return place.read_bytes()
        content = self._fetch(name)
        with atomic_write(place) as file:
            file.write(content)
        return content

    def names(self) -> list[str]:
        """The files that end like images, in alphabetical order; a web server must show a list of its files.

        Raises:
            TagfillError: if the place cannot be listed.
        """
        filesystem, base = self._open()
        try:
            paths: list[str] = filesystem.find(base)
        except Exception as error:  # each file system has errors of its own
            raise TagfillError(f"The images of {self.url} cannot be listed ({_describe(error)}).") from None
        if not paths:  # a server that cannot be reached or shows no list looks the same
            raise TagfillError(f"The images of {self.url} cannot be listed (no file was found).")
        names = (path[len(base) :].lstrip("/") for path in paths)
        return sorted(name for name in (map(unquote, names) if self._is_http else names) if is_image(name))

    @property
    def _is_http(self) -> bool:
        return self.url.startswith(("http://", "https://"))

    @property
    def _is_kept(self) -> bool:
        protocol, separator, _ = self.url.rsplit("::", 1)[-1].partition("://")
        return bool(separator) and protocol not in _LOCAL

    def _place(self, name: str) -> Path:
        """Where an image is kept."""
        key = sha256_of_strings([self.url, name])
        return cache_folder() / "images" / key[:2] / key[2:]

    def _fetch(self, name: str) -> bytes:
        filesystem, base = self._open()
        path = "/".join(filter(None, [base, quote(name) if self._is_http else name]))
        for pause in (*_PAUSES, None):
            try:
                content: bytes = filesystem.cat_file(path)
                check_bytes(name, len(content))
                return content
            except (FileNotFoundError, IsADirectoryError, KeyError):
                raise ImageError(name, f"there is no such file below {self.url}") from None
            except ImageError:
                raise
            except Exception as error:  # each file system has errors of its own
                if pause is None:
                    raise ImageError(name, f"it cannot be fetched from {self.url} ({_describe(error)})") from None
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _open(self) -> tuple[Any, str]:
        return _open_filesystem(self.url, os.getpid(), threading.get_ident())


@lru_cache(maxsize=64)
def _open_filesystem(url: str, process: int, thread: int) -> tuple[Any, str]:
    """The file system of a URL and the path in it; connections and open files belong to one process and thread."""
    import fsspec

    try:
        filesystem, base = fsspec.url_to_fs(url)
    except Exception as error:  # an unknown protocol, a package that is not installed, an archive that is not there
        raise TagfillError(f"{url} cannot be opened ({_describe(error)}).") from None
    return filesystem, str(base).rstrip("/")


def _describe(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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
