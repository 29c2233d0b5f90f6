"""Atomic writes, folder replacement, locks and hashes.

A file is written under a temporary name, synced and renamed, so that a reader sees either the old file or the new one.
Files that belong together are replaced together (`replace_files`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tagfill.errors import LockedError, TagfillError


@contextmanager
def atomic_write(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    Args:
        path: the file to write; its folder is created if it is missing.
        sync: make the new file survive a power cut.
    """
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or another special file"
        raise TagfillError(f"{path} is {what}, not a file that can be replaced; give the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    file, temporary = _open_temporary(path)
    try:
        with file:  # holds the lock until after the rename
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _name_file(error, path)
        raise
    if sync:
        sync_folder(path.parent)


def _name_file(error: BaseException, path: Path) -> None:
    """Add the name of a file to an error of the system, for the sentence about it; a full disk names none."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def _open_temporary(path: Path) -> tuple[IO[bytes], Path]:
    """Open a temporary file beside `path`.

    It has the same name each time and is locked, so that the next writer takes over what a killed process left. While
    another process or thread writes the same file, the name is a unique one.
    """
    shared = path.with_name(f".{path.name}.tmp")
    with suppress(OSError):  # no permission to take over
        file = os.fdopen(os.open(shared, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), shared.stat()):  # not renamed by another writer meanwhile
                file.truncate(0)
                return file, shared
        except OSError:  # another writer holds it or has renamed it, or there are no locks
            pass
        file.close()
    unique = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        return unique.open("wb"), unique
    except OSError as error:
        error.filename = str(path)  # the file that the user named
        raise


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


FORMULA = r"^('*[=+\-@\t\r])"  # the beginning of a text that a spreadsheet may run, with apostrophes or without


def spreadsheet_cell(text: str) -> str:
    """The text with an apostrophe before it if a spreadsheet would run it as a formula; `plain_cell` undoes it.

    >>> [spreadsheet_cell(text) for text in ("=1+1", "@cat", "cat=1", "'=x", "")]
    ["'=1+1", "'@cat", 'cat=1', "''=x", '']
    """
    return re.sub(FORMULA, r"'\1", text)


def plain_cell(text: str) -> str:
    """The text that `spreadsheet_cell` was given.

    >>> [plain_cell(text) for text in ("'=1+1", "'@cat", "cat=1", "''=x", "'quoted'")]
    ['=1+1', '@cat', 'cat=1', "'=x", "'quoted'"]
    """
    return text[1:] if text.startswith("'") and re.match(FORMULA, text) else text


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
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tagfill"
    except RuntimeError:  # neither $HOME nor an entry in the list of users
        raise TagfillError(
            "There is no home directory for the cache; set TAGFILL_CACHE to a folder that can be written."
        ) from None


_LOCK = ".lock"
_MARK = ".unfinished"  # the task of a process that fills the folder
_STAGING = ".writing"  # new files that are not complete yet
_PENDING = ".replacing"  # complete files that have yet to be moved to their places
_held_locks: dict[IO[bytes], tuple[str, int]] = {}  # the locked folder, and the thread that locked it


def _drop_inherited_locks() -> None:
    """A forked worker must not keep a lock alive when the process that took it dies."""
    for file in _held_locks:
        file.close()
    _held_locks.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


@contextmanager
def exclusive_lock(
    folder: Path, doing: str, *, choose: str = "folder", wait: float = 0.0, reentrant: bool = False
) -> Iterator[None]:
    """Lock a folder against other processes; the system releases the lock if this process dies.

    Args:
        folder: created if it is missing.
        doing: what the process that holds the lock does, for the error, such as "is extracting features".
        choose: what the error advises to change.
        wait: seconds to wait for a lock that is held.
        reentrant: do nothing if this thread holds the lock already.

    Raises:
        LockedError: if the lock is held, by another process or by this one.
    """
    owner = (os.path.realpath(folder), threading.get_ident())
    if reentrant and owner in _held_locks.values():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("wb") as file:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() < until:
                    time.sleep(0.02)
                    continue
                raise LockedError(
                    f"Another process {doing} in {folder}; wait for it or choose another {choose}."
                ) from None
        _held_locks[file] = owner
        try:
            yield
        finally:
            _held_locks.pop(file, None)


@contextmanager
def new_folder(folder: Path, doing: str, *, force: bool, task: str = "") -> Iterator[None]:
    """Lock a folder that is about to be filled; after an error, remove it again if nothing was written.

    A process that is killed or interrupted leaves a mark with its task. The same task may then fill the folder without
    `force`.

    Args:
        folder: created if it is missing.
        doing: what this process does, for the error of another one, such as "is importing a dataset".
        force: allow a folder that is not empty.
        task: everything that decides what will be in the folder, such as the command line.

    Raises:
        TagfillError: if the folder is not empty, or another process fills it.
    """
    mark = folder / _MARK
    require_unused(folder, force or _is_marked(mark, task))
    with exclusive_lock(folder, doing, choose="--out"):
        require_unused(folder, force or _is_marked(mark, task))  # another process may have filled it meanwhile
        mark.write_bytes(task.encode("utf-8", "surrogateescape"))
        interrupted = False
        try:
            yield
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            if not interrupted:
                mark.unlink(missing_ok=True)
            if {path.name for path in folder.iterdir()} <= {_LOCK, _MARK}:
                mark.unlink(missing_ok=True)
                (folder / _LOCK).unlink()
                folder.rmdir()


def _is_marked(mark: Path, task: str) -> bool:
    try:
        return mark.read_bytes() == task.encode("utf-8", "surrogateescape")
    except OSError:
        return False


def require_unused(folder: Path, force: bool) -> None:
    """Raise if a folder has files in it, unless `force`; leftovers of a killed process do not count."""
    if folder.exists() and not folder.is_dir():
        raise TagfillError(f"{folder} is a file; choose another --out.")
    if not force and not is_unused(folder):
        raise TagfillError(f"{folder} is not empty; choose another --out, or give --force to write into it.")


def is_unused(folder: Path) -> bool:
    """Whether a folder does not exist, or holds nothing except what a process left that was killed while writing."""
    return not folder.exists() or all(
        path.name in (_LOCK, _MARK, _STAGING) or (path.name.startswith(".") and path.name.endswith(".tmp"))
        for path in folder.iterdir()
    )


# Several files of a folder, replaced together


def replace_files(folder: Path, write: Callable[[Path], None]) -> None:
    """Replace several files of a folder together: all of them or none, also if this process is killed.

    The new files are written into a subfolder, whose rename is the moment from which they count; then they are moved
    into the folder. `finish_replacing` does the moves of a process that was killed.

    Args:
        folder: whose lock the caller holds.
        write: writes the new files into the folder it is called with. A file `x.csv` also replaces `x.parquet`, and
            the other way around.
    """
    finish_replacing(folder)
    staging = folder / _STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        write(staging)
        for path in staging.iterdir():
            sync_file(path)
        sync_folder(staging)
        staging.rename(folder / _PENDING)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        _name_file(error, folder)
        raise
    sync_folder(folder)
    finish_replacing(folder)


def is_replacing(folder: Path) -> bool:
    """Whether files of a folder are being replaced, or the process that did it was killed."""
    return (folder / _PENDING).is_dir()


def finish_replacing(folder: Path) -> None:
    """Move files to their places that a killed process did not move; the caller holds the lock of the folder."""
    pending = folder / _PENDING
    if not pending.is_dir():
        return
    for path in sorted(pending.iterdir()):
        for twin in (path.with_suffix(".csv"), path.with_suffix(".parquet")):
            if path.suffix in (".csv", ".parquet") and twin.name != path.name:
                (folder / twin.name).unlink(missing_ok=True)
        path.replace(folder / path.name)
    sync_folder(folder)
    pending.rmdir()
