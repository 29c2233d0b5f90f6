"""Images behind a URL, fetched through fsspec and kept in the cache folder.

An image is fetched once and then read from the cache, also without a network: its name is its identity, and what it
shows is taken to stay the same. Deleting the folder `images` of the cache folder fetches everything again. What lies
on this machine anyway (memory, a zip file) is not kept twice.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tagfill.errors import ImageError, TagfillError
from tagfill.files import cache_folder, replacing, sha256_of_strings
from tagfill.images.names import check_bytes, check_name, is_image

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
        with replacing(place) as file:
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
