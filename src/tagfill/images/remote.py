"""Images behind a URL, fetched through fsspec: web servers, S3, Google Cloud Storage, archives.

An image is fetched once and then read from the cache folder, also without a network: its content is assumed not to
change. Delete the folder `images` of the cache folder to fetch everything again. Images that are on this machine anyway
(memory, a zip file) are not cached.

`read_ahead` fetches the images of the next batches while the current one is being worked on. A failing request is
repeated twice, unless the file is missing or access is refused.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from tagfill.errors import ImageError, TagfillError
from tagfill.images.image_files import check_name, is_image, read_limited
from tagfill.io import atomic_write, cache_folder, sha256_of_strings

_NOT_CACHED = ("file", "local", "memory")  # protocols of URLs
_RETRY_PAUSES = (0.2, 1.0)  # seconds before another attempt, unless the file is missing or access is refused
_HTTP_STREAM = {"block_size": 0, "size": 1}  # fsspec: one request whose answer is streamed, without asking for a size
_FETCHERS = 16  # requests at once; they wait for the network, not for a core
_AHEAD = 256  # images that are fetched before they are needed

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of a protocol, the extra that installs its package
_S3_HINT = (
    "check AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set FSSPEC_S3_ANON=true for a public bucket"
)
_HINTS = {
    "s3": _S3_HINT,
    "gcs": "check GOOGLE_APPLICATION_CREDENTIALS, or set FSSPEC_GS_TOKEN=anon for a public bucket",
}
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")  # of botocore and Google

Item = TypeVar("Item")


@dataclass(frozen=True)
class RemoteRoot:
    """A URL that fsspec can open.

    Attributes:
        url: such as `https://host/photos` or `zip://::https://host/photos.zip`.
    """

    url: str

    def __post_init__(self) -> None:
        if self._is_http and "?" in self.url:
            raise TagfillError(f"{self.url} cannot be an image root: names are appended to it, and it has a query.")

    def read(self, name: str) -> bytes:
        """The bytes of an image file.

        Raises:
            ImageError: if the file does not exist or cannot be fetched.
        """
        check_name(name)
        if not self.is_cached:
            return self._fetch(name)
        cached = self._cached_path(name)
        if cached.is_file():
            with cached.open("rb") as file:
                return read_limited(file, name, cached.stat().st_size)
        content = self._fetch(name)
        with atomic_write(cached) as file:
            file.write(content)
        return content

    def fetch(self, name: str) -> None:
        """Bring an image into the cache folder; one that cannot be fetched is left to `read`, which names it."""
        if not self._cached_path(name).is_file():
            with suppress(ImageError):
                self.read(name)

    def names(self) -> list[str]:
        """The image files, sorted; a web server must provide a listing.

        Raises:
            TagfillError: if the root cannot be listed.
        """
        filesystem, base = self._open()
        try:
            paths: list[str] = filesystem.find(base)
        except Exception as error:  # file systems raise errors of their own
            if _is_refusal(error):
                raise _refused(self.url, error) from None
            raise TagfillError(f"The images of {self.url} cannot be listed ({_describe(error)}).") from None
        if not paths:  # also the result for an unreachable server or one without listings
            raise TagfillError(f"The images of {self.url} cannot be listed (no file was found).")
        names = (path[len(base) :].lstrip("/") for path in paths)
        return sorted(name for name in (map(unquote, names) if self._is_http else names) if is_image(name))

    @property
    def _is_http(self) -> bool:
        return self.url.startswith(("http://", "https://"))

    @property
    def is_cached(self) -> bool:
        """Whether images are kept in the cache folder."""
        protocol, separator, _ = self.url.rsplit("::", 1)[-1].partition("://")
        return bool(separator) and protocol not in _NOT_CACHED

    def _cached_path(self, name: str) -> Path:
        """Where an image is cached."""
        key = sha256_of_strings([self.url, name])
        return cache_folder() / "images" / key[:2] / key[2:]

    def _fetch(self, name: str) -> bytes:
        filesystem, base = self._open()
        path = "/".join(filter(None, [base, quote(name) if self._is_http else name]))
        for pause in (*_RETRY_PAUSES, None):
            try:
                with filesystem.open(path, "rb", **(_HTTP_STREAM if self._is_http else {})) as file:
                    content = read_limited(file, name, _declared_size(file))
            except (FileNotFoundError, IsADirectoryError, KeyError):
                raise ImageError(name, f"there is no such file below {self.url}") from None
            except ImageError:
                raise
            except Exception as error:  # file systems raise errors of their own
                if _is_refusal(error):
                    self._require_access()
                    raise ImageError(name, f"{self.url} refuses access to it ({_describe(error)})") from None
                if pause is None:
                    raise ImageError(name, f"it cannot be fetched from {self.url} ({_describe(error)})") from None
                time.sleep(pause)
            else:
                _ANSWERED.add(self.url)
                return content
        raise AssertionError("the last attempt returns or raises")

    def _require_access(self) -> None:
        """Raise `TagfillError` if a bucket that has not given a single image refuses to be listed, too."""
        if self._is_http or self.url in _ANSWERED:  # one image may be private, and web servers list nothing
            return
        filesystem, base = self._open()
        try:
            filesystem.ls(base)
        except Exception as error:
            if _is_refusal(error):
                raise _refused(self.url, error) from None

    def _open(self) -> tuple[Any, str]:
        return _open_filesystem(self.url, os.getpid(), threading.get_ident())


_ANSWERED: set[str] = set()  # URLs of which this process has fetched an image


def read_ahead(batches: Iterable[Item], images: Callable[[Item], Iterable[tuple[object, str]]]) -> Iterator[Item]:
    """Pass batches on once their remote images are in the cache folder, and fetch those of the next ones meanwhile.

    Local images cost nothing: their batches are passed on at once.

    Args:
        batches: any objects, in the order in which they are needed.
        images: root and name of each image of a batch.

    Raises:
        TagfillError: if a bucket refuses access.

    >>> list(read_ahead([["a.jpg"], ["b.jpg"]], lambda batch: [(Path("photos"), name) for name in batch]))
    [['a.jpg'], ['b.jpg']]
    """
    pending: deque[tuple[Item, list[Future[None]]]] = deque()
    pool: ThreadPoolExecutor | None = None
    ahead = 0
    try:
        for batch in batches:
            fetched = []
            for root, name in images(batch):
                if isinstance(root, RemoteRoot) and root.is_cached:
                    pool = pool or ThreadPoolExecutor(_FETCHERS, thread_name_prefix="fetching")
                    fetched.append(pool.submit(root.fetch, name))
            pending.append((batch, fetched))
            ahead += len(fetched)
            while pending and (ahead > _AHEAD or not pending[0][1]):
                ahead -= len(pending[0][1])
                yield _wait(*pending.popleft())
        while pending:
            yield _wait(*pending.popleft())
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _wait(batch: Item, fetched: list[Future[None]]) -> Item:
    for future in fetched:
        future.result()
    return batch


@lru_cache(maxsize=64)
def _open_filesystem(url: str, process: int, thread: int) -> tuple[Any, str]:
    """The file system of a URL and the path in it; connections and open files are per process and thread."""
    import fsspec

    try:
        filesystem, base = fsspec.url_to_fs(url)
    except ImportError as error:
        extra = _extra_of(url)
        remedy = f"pip install 'tagfill[{extra}]'" if extra else _describe(error)
        raise TagfillError(f"{url} cannot be opened, because a package is missing: {remedy}.") from None
    except Exception as error:  # unknown protocol, missing archive
        if _is_refusal(error):
            raise _refused(url, error) from None
        raise TagfillError(f"{url} cannot be opened ({_describe(error)}).") from None
    return filesystem, str(base).rstrip("/")


def _extra_of(url: str) -> str | None:
    """The extra that installs what a URL needs.

    >>> _extra_of("zip://::s3://bucket/photos.zip"), _extra_of("https://host/photos")
    ('s3', None)
    """
    return _EXTRAS.get(url.rsplit("::", 1)[-1].partition("://")[0])


def _is_refusal(error: Exception) -> bool:
    """Whether a server answered that this user may not."""
    status = getattr(error, "status", None) or getattr(error, "code", None)
    return isinstance(error, PermissionError) or status in (401, 403) or type(error).__name__ in _NO_CREDENTIALS


def _refused(url: str, error: Exception) -> TagfillError:
    hint = _HINTS.get(_extra_of(url) or "", "fetch the photos into a folder, if they need a login")
    return TagfillError(f"{url} refuses access ({_describe(error)}); {hint}.")


def _describe(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _declared_size(file: Any) -> int | None:
    """How many bytes an archive or a server says that a file has."""
    answer = getattr(file, "r", None)  # of a server
    size = getattr(file, "size", None) if answer is None else answer.content_length
    return size if isinstance(size, int) else None
