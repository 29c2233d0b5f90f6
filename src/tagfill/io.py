"""Files that are either whole or not there: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tagfill.errors import TagfillError


@contextmanager
def atomic_write(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def write_json(path: Path, content: Any, *, sync: bool = True) -> None:
    """Write `content` as indented JSON, whole or not at all."""
    with atomic_write(path, sync=sync) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def nan_to_none(value: float, digits: int | None = None) -> float | None:
    """Convert a number for JSON and CSV, which have no NaN.

    Args:
        value: any number.
        digits: round to this many decimals.

    >>> nan_to_none(float("nan")), nan_to_none(0.5), nan_to_none(61.23456, 4)
    (None, 0.5, 61.2346)
    """
    if math.isnan(value):
        return None
    return value if digits is None else round(float(value), digits)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    sync_file(folder)  # a folder is a file that lists names


def sync_file(path: Path) -> None:
    """Make the content of `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_folder(new: Path, folder: Path) -> None:
    """Put the folder `new` in the place of `folder`; `recover_folder` mends an interruption in between."""
    old = folder.with_name(f".{folder.name}.old")
    recover_folder(folder)  # or what an earlier interruption set aside would be dropped while it is all there is
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Undo a `replace_folder` that was killed between its two renames."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_strings(strings: Iterable[str]) -> str:
    """The hash of an ordered list of strings, in hexadecimal."""
    digest = hashlib.sha256()
    for text in strings:
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where Tagfill keeps what it can make again: `$TAGFILL_CACHE`, else the XDG cache."""
    if chosen := os.environ.get("TAGFILL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tagfill"


@contextmanager
def exclusive_lock(folder: Path, doing: str) -> Iterator[None]:
    """Keep a second process from working in `folder` at the same time; the system lets go when the holder dies.

    Args:
        folder: made if it is not there.
        doing: what the other process would be doing there, such as "is making features".

    Raises:
        TagfillError: if there is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TagfillError(f"Another process {doing} in {folder}; wait for it or choose another folder.") from None
        yield
