"""Photos of Label Studio's tasks: found in the dataset, or fetched from where the user allows it.

| address in a task | where the photo comes from |
|---|---|
| any that names an image of the dataset | the image root of the dataset |
| `/data/upload/…`, `/data/local-files/?d=…`, also below the address of Label Studio | Label Studio, with its token |
| `http://HOST/…`, `https://HOST/…` | that host, if it was allowed by name |

Nothing else is fetched: a task comes from another program, and must not make this server send requests to any address.
Redirects are not followed, the token is sent to Label Studio alone, and an answer has limits of size and time.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from tagfill.dataset import Dataset
from tagfill.errors import ImageError, ImageLimitError, TagfillError
from tagfill.formats.label_studio import image_path
from tagfill.images import open_root
from tagfill.images.decode import open_header
from tagfill.images.image_files import check_name, is_image
from tagfill.io import atomic_write

_SERVED = ("/data/upload/", "/data/local-files/")  # paths of photos on Label Studio's own server
_CHUNK = 1 << 16
_ACCESS_SECONDS = 240.0  # Label Studio's access tokens last five minutes
_TOKEN_BYTES = 1 << 16


@dataclass(frozen=True)
class FetchLimits:
    """Limits of what is fetched for one photo.

    Attributes:
        size: bytes.
        seconds: for the whole answer.
    """

    size: int = 32 * 2**20
    seconds: float = 20.0


class TaskPhotos:
    """Finds and reads the photos of tasks; safe to use from several threads.

    Args:
        dataset: whose photos are known; None for no dataset.
        prefix: removed from the beginning of each path, where Label Studio's document root lies above the image root.
        server: address of Label Studio, such as `http://127.0.0.1:8080`.
        api_token: a token for it: a personal access token, or a legacy one.
        hosts: other hosts that photos may be fetched from, with their port if it is not the usual one.
        limits: of what is fetched.

    Raises:
        TagfillError: if an address or a host cannot be understood.
    """

    def __init__(
        self,
        dataset: Dataset | None,
        *,
        prefix: str = "",
        server: str | None = None,
        api_token: str | None = None,
        hosts: Collection[str] = (),
        limits: FetchLimits | None = None,
    ) -> None:
        self._dataset, self._prefix, self._limits = dataset, prefix, limits or FetchLimits()
        self._root = None if dataset is None else open_root(dataset.root)
        self._names = set[str]() if dataset is None else set(dataset.names())
        self._server = None if server is None else _server_address(server)
        self._login = None if api_token is None else _Login(api_token.strip())
        self._hosts = {_check_host(host) for host in hosts}

    def name(self, url: str) -> str:
        """The name of a photo in the dataset, whether it is there or not.

        Raises:
            TagfillError: if the address names no file below the image root.
        """
        name = image_path(url, self._prefix, "A task")
        check_name(name)
        return name

    def read(self, url: str) -> bytes:
        """The bytes of a photo.

        Raises:
            TagfillError: if it is not in the dataset and may not be fetched, or cannot be read.
        """
        name = self.name(url)
        if self._root is not None and name in self._names:
            content = self._root.read(name)
            self._check_size(name, len(content))
            return content
        address = self._split(url, name)
        if self._is_served(address):
            return self._fetch_served(address, name)
        if address.scheme in ("http", "https") and _host_of(address) in self._hosts:
            return _get(address, {}, self._limits, name)
        raise TagfillError(self._why_not(address, name))

    def store(self, url: str, name: str) -> None:
        """Fetch a photo and save it below the image root; an existing file is kept.

        Raises:
            TagfillError: if it cannot be fetched, is not a photo, or the image root is not a folder.
        """
        root = None if self._dataset is None else self._dataset.root
        if not isinstance(root, Path) or not root.is_dir():
            raise TagfillError(f"Photo {name} cannot be saved, because the image root {root} is not a folder.")
        check_name(name)
        content = self.read(url)
        open_header(name, content)
        target = root / name
        if not target.resolve().is_relative_to(root.resolve()) or not is_image(name):
            raise TagfillError(f"Photo {name} cannot be saved below {root}; its name must be that of an image there.")
        if not target.exists():
            with atomic_write(target) as file:
                file.write(content)

    def refresh(self, dataset: Dataset) -> None:
        """Use the photos of the dataset as it is now."""
        self._names = set(dataset.names())

    def _check_size(self, name: str, size: int) -> None:
        if size > self._limits.size:
            raise ImageLimitError(name, f"the file has more than {self._limits.size:,} bytes")

    def _split(self, url: str, name: str) -> SplitResult:
        try:
            address = urlsplit(url)
            address.port  # noqa: B018  raises for a port that is not a number
        except ValueError:
            raise TagfillError(f"'{url[:200]}' is not the address of a photo.") from None
        if address.username is not None or address.password is not None:
            raise TagfillError(f"The address of {name} has a user name or password, which is not sent; remove it.")
        return address

    def _is_served(self, address: SplitResult) -> bool:
        """Whether an address is that of a photo on Label Studio's server."""
        here = not address.scheme and not address.netloc
        if self._server is not None and not here:
            here = (address.scheme, _host_of(address)) == (self._server.scheme, _host_of(self._server))
        base = "" if self._server is None else self._server.path
        path = address.path.removeprefix(base) if address.netloc else address.path
        return here and path.startswith(_SERVED) and ".." not in unquote(path)

    def _fetch_served(self, address: SplitResult, name: str) -> bytes:
        if self._server is None or self._login is None:
            raise TagfillError(
                f"Photo {name} is not in the dataset but on Label Studio's server; give --label-studio-url and "
                "--label-studio-token to fetch it."
            )
        path = address.path if address.netloc else self._server.path + address.path
        there = self._server._replace(path=path, query=address.query)
        try:
            return _get(there, self._login.headers(self._server, self._limits), self._limits, name)
        except _UnauthorizedError:
            self._login.forget()
            return _get(there, self._login.headers(self._server, self._limits), self._limits, name)

    def _why_not(self, address: SplitResult, name: str) -> str:
        if address.scheme in ("http", "https"):
            host = _host_of(address)
            return f"Photo {name} is not in the dataset, and {host} is not allowed; allow it with --allow-host {host}."
        where = "there is no dataset" if self._dataset is None else f"dataset {self._dataset.name} does not have it"
        return f"Photo {name} cannot be read: {where}, and addresses like {address.scheme or 'this'} are not fetched."


class _UnauthorizedError(TagfillError):
    """A server wants another token."""


class _Login:
    """Headers for Label Studio: of a legacy token, or of access tokens that a personal access token gets."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._access, self._until = "", 0.0

    @cached_property
    def _is_personal(self) -> bool:
        return self._token.count(".") == 2  # a JSON web token

    def forget(self) -> None:
        """Get another access token next time."""
        self._until = 0.0

    def headers(self, server: SplitResult, limits: FetchLimits) -> dict[str, str]:
        """The headers of a request."""
        if not self._is_personal:
            return {"authorization": f"Token {self._token}"}
        with self._lock:
            if time.monotonic() > self._until:
                body = json.dumps({"refresh": self._token}).encode()
                path = f"{server.path}/api/token/refresh"
                small = FetchLimits(_TOKEN_BYTES, limits.seconds)
                answer = _get(server._replace(path=path), {"content-type": "application/json"}, small, "token", body)
                try:
                    self._access = str(json.loads(answer)["access"])
                except (ValueError, KeyError, TypeError):
                    raise TagfillError("Label Studio's answer to the personal access token has no token.") from None
                self._until = time.monotonic() + _ACCESS_SECONDS
            return {"authorization": f"Bearer {self._access}"}


def _server_address(text: str) -> SplitResult:
    with suppress(ValueError):
        address = urlsplit(text.strip().rstrip("/"))
        if address.scheme in ("http", "https") and _host_of(address) and not address.query:
            return address
    raise TagfillError(f"'{text[:200]}' is not the address of Label Studio; give one like http://127.0.0.1:8080.")


def _check_host(text: str) -> str:
    with suppress(ValueError):
        address = urlsplit(f"//{text.strip()}")
        if _host_of(address) and not address.path and not address.username:
            return _host_of(address)
    raise TagfillError(
        f"--allow-host {text[:200]} is not a host; give its name, such as photos.example.org or host:81."
    )


def _host_of(address: SplitResult) -> str:
    """Host and port, without the port if it is the usual one.

    >>> _host_of(urlsplit("https://Example.org:443/a")), _host_of(urlsplit("http://example.org:8080"))
    ('example.org', 'example.org:8080')
    """
    port = address.port
    usual = {"http": 80, "https": 443}.get(address.scheme)
    name = address.hostname or ""
    return name if port is None or port == usual else f"{name}:{port}"


def _get(
    address: SplitResult, headers: dict[str, str], limits: FetchLimits, name: str, body: bytes | None = None
) -> bytes:
    """The body of the answer to a request; redirects are not followed, and proxies are not used.

    Raises:
        TagfillError: if there is no answer within the limits, or another status than 200.
    """
    until = time.monotonic() + limits.seconds
    kind: Any = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname, address.port, timeout=limits.seconds)
    where = _host_of(address)
    target = quote(address.path or "/", safe="/%:@!$&'()*+,;=~-._") + (
        f"?{quote(address.query, safe='/%:@!$&()*+,;=~-._?')}" if address.query else ""
    )
    try:
        connection.request("GET" if body is None else "POST", target, body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status == 401:
            raise _UnauthorizedError(f"{where} refuses the token for {name}; check --label-studio-token.")
        if answer.status != 200:
            raise TagfillError(f"{where} answers with status {answer.status} for {name}; redirects are not followed.")
        if (answer.length or 0) > limits.size:
            raise ImageLimitError(name, f"the file has more than {limits.size:,} bytes")
        content = bytearray()
        while chunk := answer.read1(_CHUNK):
            content += chunk
            if len(content) > limits.size:
                raise ImageLimitError(name, f"the file has more than {limits.size:,} bytes")
            if time.monotonic() > until:
                raise ImageLimitError(name, f"{where} did not send it within {limits.seconds:g} seconds")
        if answer.length:
            raise ImageError(name, f"{where} closed the connection before the end")
        return bytes(content)
    except (OSError, http.client.HTTPException) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TagfillError(f"{name} cannot be fetched from {where}: {problem}.") from None
    finally:
        connection.close()
