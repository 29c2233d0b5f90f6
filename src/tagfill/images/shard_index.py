"""Where the members of a tar file lie.

The index of a shard is kept in the cache folder under a name made from the shard's path, and is made again when the
shard's size or time of change differ.
"""

from __future__ import annotations

import json
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.files import cache_folder, replacing, sha256_of_strings

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
    with suppress(OSError), replacing(place) as file:  # a cache that cannot be written costs time, nothing else
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
