"""Atomic writes, folder replacement, locks and hashes.

A file is written under a temporary name, synced and renamed, so that a reader sees either the old file or the new one.
"""

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
    """Open a temporary file that replaces `path` when the block ends without an error.

    Args:
        path: the file to write; its folder is created if it is missing.
        sync: make the new file survive a power cut.
    """
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
    """Write `content` as indented JSON, atomically."""
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
    sync_file(folder)  # fsync of a folder writes its list of names


def sync_file(path: Path) -> None:
    """Make the content of `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_folder(new: Path, folder: Path) -> None:
    """Move the folder `new` to `folder`, which it replaces; `recover_folder` repairs an interrupted call."""
    old = folder.with_name(f".{folder.name}.old")
    recover_folder(folder)  # after an interrupted call `old` is the only copy, which rmtree would delete
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Undo a `replace_folder` that was interrupted between its two renames."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_strings(strings: Iterable[str]) -> str:
    """SHA-256 of a sequence of strings, in hexadecimal; depends on their order and on where each ends."""
    digest = hashlib.sha256()
    for text in strings:
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Folder for files that can be recreated: `$TAGFILL_CACHE`, else `tagfill` in the XDG cache."""
    if chosen := os.environ.get("TAGFILL_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tagfill"


_held_locks: set[IO[bytes]] = set()


def _drop_inherited_locks() -> None:
    """A forked worker must not keep a lock alive when the process that took it dies."""
    for file in _held_locks:
        file.close()
    _held_locks.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


@contextmanager
def exclusive_lock(folder: Path, doing: str, *, choose: str = "folder") -> Iterator[None]:
    """Lock a folder against other processes; the system releases the lock if this process dies.

    Args:
        folder: created if it is missing.
        doing: what the process that holds the lock does, for the error, such as "is extracting features".
        choose: what the error advises to change.

    Raises:
        TagfillError: if the lock is held, by another process or by this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TagfillError(
                f"Another process {doing} in {folder}; wait for it or choose another {choose}."
            ) from None
        _held_locks.add(file)
        try:
            yield
        finally:
            _held_locks.discard(file)
