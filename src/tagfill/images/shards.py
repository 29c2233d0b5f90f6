"""Images in tar shards, read at random.

WebDataset keeps a dataset as a few large tar files that are read from front to back. Per-image state needs images
in any order, so each shard gets an index of where its members lie, and a read is one seek.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tagfill.errors import ImageError, TagfillError
from tagfill.images.names import check_bytes, check_name, is_image
from tagfill.images.shard_index import ShardIndex, index_shard
from tagfill.progress import SILENT, Progress

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
