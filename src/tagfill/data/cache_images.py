"""The images of a feature cache, `images.parquet`: the name and the file of each, in the order they came.

A cache keeps its own list, so that it can grow. Rows of the cache are positions in this list, and an image keeps its
row whatever happens to the datasets that use the cache: images that are new to it are appended, images that were moved,
reordered or removed from a dataset change nothing. An image whose file has another size than before, or another time
and other content, was replaced; it is appended again, and its last row counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Root, content_digest, file_sizes, file_times, open_root
from tagfill.io import atomic_write, sha256_of_strings

FILE = "images.parquet"
_UNKNOWN, _NO_FILE = -1, 0
_SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("digest", pa.int64(), nullable=False),
    ]
)
_FIRST_COLUMNS = 2  # of caches that do not have the others yet


@dataclass(frozen=True)
class CachedImages:
    """A list of images.

    Attributes:
        names: of the images.
        sizes: bytes of their files, 0 if there was no file, -1 if the size is not known, as of images at a URL.
        times: modification times of their files in nanoseconds, -1 if not known.
        digests: of the content of their files, see `tagfill.images.content_digest`; -1 if not known or not needed yet.
        root: where the files are, to compute digests.
    """

    names: list[str]
    sizes: NDArray[np.int64]
    times: NDArray[np.int64] = None  # type: ignore[assignment]
    digests: NDArray[np.int64] = None  # type: ignore[assignment]
    root: Root | None = None

    def __post_init__(self) -> None:
        for name in ("times", "digests"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(len(self.names), _UNKNOWN, np.int64))

    @classmethod
    def of(cls, dataset: Dataset) -> CachedImages:
        """The images of a dataset."""
        names = dataset.names()
        try:
            root = open_root(dataset.root)
        except TagfillError:  # features that are there can be used without the images
            return cls(names, np.full(len(names), _UNKNOWN, np.int64))
        return cls(names, _numbers(file_sizes(root, names)), _numbers(file_times(root, names)), root=root)

    @classmethod
    def read(cls, folder: Path, count: int, identity: str, names: Sequence[str] = ()) -> CachedImages:
        """Read the first images of the list of a cache.

        Args:
            folder: of the cache.
            count: how many; a process that was killed may have written more.
            identity: hash of their names.
            names: of a dataset, for the caches of older versions, which did not write the list.

        Raises:
            TagfillError: if these are not the names of that identity.
        """
        path = folder / FILE
        if path.is_file():
            try:
                known = _SCHEMA if "digest" in pq.read_schema(path).names else pa.schema(list(_SCHEMA)[:_FIRST_COLUMNS])
                table = pq.read_table(path, schema=known)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, f"cannot be read ({error})") from None
            numbers = [table[name].to_numpy()[:count] for name in table.schema.names[1:]]
            listed = cls(table["image"].to_pylist()[:count], *numbers)
            if sha256_of_strings(listed.names) != identity:
                raise _damaged(path, "is not the list that the manifest describes")
            return listed
        if count > len(names) or sha256_of_strings(names[:count]) != identity:
            raise TagfillError(
                f"The feature cache {folder} was made from other images by an older version of Tagfill; make a new one "
                "in another folder with 'tagfill features'."
            )
        return cls(list(names[:count]), np.full(count, _UNKNOWN, np.int64))

    def save(self, folder: Path) -> None:
        """Write the list atomically."""
        columns = {"image": self.names, "bytes": self.sizes, "time": self.times, "digest": self.digests}
        table = pa.table(columns, schema=_SCHEMA)
        with atomic_write(folder / FILE) as file:
            pq.write_table(table, file)

    @property
    def identity(self) -> str:
        """Hash of the names."""
        return sha256_of_strings(self.names)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def find(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The last row of each of these names; -1 if it is not in the list.

        >>> CachedImages(["a.jpg", "b.jpg", "a.jpg"], np.array([10, 20, 30])).find(["a.jpg", "b.jpg", "c.jpg"]).tolist()
        [2, 1, -1]
        """
        return np.array([self._row_of.get(name, -1) for name in names], np.int64)

    def replaced(self, others: CachedImages) -> NDArray[np.bool_]:
        """Which of the other images are in this list with another size, or with another time and other content.

        What is not known counts as the same. Files are read only where the times differ.
        """
        if not len(self.names):
            return np.zeros(len(others.names), dtype=bool)
        rows = self.find(others.names)
        before = self.sizes[rows]
        known = (rows >= 0) & (before != _UNKNOWN) & (others.sizes != _UNKNOWN) & (others.sizes != _NO_FILE)
        replaced = np.asarray(known & (before != others.sizes))
        touched = known & ~replaced & (others.times != _UNKNOWN) & (self.times[rows] != others.times)
        unsure = np.flatnonzero(touched & (self.digests[rows] != _UNKNOWN))
        digests = others.with_digests(unsure).digests[unsure]
        replaced[unsure] = (digests != _UNKNOWN) & (digests != self.digests[rows[unsure]])
        return replaced

    def with_digests(self, rows: NDArray[np.int64] | None = None) -> CachedImages:
        """This list with the digests of all images, or of these rows."""
        if self.root is None:
            return self
        digests = self.digests.copy()
        wanted = np.arange(len(self.names)) if rows is None else rows
        for row in wanted[digests[wanted] == _UNKNOWN].tolist():
            found = content_digest(self.root, self.names[row])
            digests[row] = _UNKNOWN if found is None else found
        return replace(self, digests=digests)

    def add(self, others: CachedImages) -> CachedImages:
        """This list, and behind it the other images that it does not have or that were replaced.

        >>> first = CachedImages(["a.jpg", "b.jpg"], np.array([10, 20]))
        >>> first.add(CachedImages(["c.jpg", "b.jpg", "a.jpg"], np.array([30, 20, 11]))).names
        ['a.jpg', 'b.jpg', 'c.jpg', 'a.jpg']
        """
        new = np.flatnonzero((self.find(others.names) < 0) | self.replaced(others))
        names, others = self.names + [others.names[row] for row in new], others.with_digests(new)
        return CachedImages(
            names,
            np.concatenate([self.sizes, others.sizes[new]]),
            np.concatenate([self.times, others.times[new]]),
            np.concatenate([self.digests, others.digests[new]]),
        )

    def agreement(self, others: CachedImages) -> int:
        """How many of the other images are surely in this list: with the same name and the same size."""
        rows = self.find(others.names)
        known = rows[(rows >= 0) & (others.sizes > _NO_FILE)]
        there = others.sizes[(rows >= 0) & (others.sizes > _NO_FILE)]
        return int((self.sizes[known] == there).sum())


def _numbers(values: Sequence[int | None]) -> NDArray[np.int64]:
    return np.array([_UNKNOWN if value is None else value for value in values], np.int64)


def _damaged(path: Path, problem: str) -> TagfillError:
    return TagfillError(
        f"{path} of the feature cache {problem}; delete the folder {path.parent} and run 'tagfill features' again."
    )
