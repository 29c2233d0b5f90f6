"""The common part of all per-image state: declared tensors, a budget, checkpoints and resharding.

A `Store` declares its content once, as named fields, and implements only how the content is updated and read:

    class Scores(Store):
        values: Tensor
        visited: bool

        def __init__(self, labels, shard):
            super().__init__(shard, values=Rows((labels.width,), torch.float16), visited=Flag())

From the fields follow its size in bytes, known before anything is allocated, what a checkpoint holds, and how state
moves when a run is resumed with another number of processes:

    Rows    one row per image            each process takes the rows of its images
    Sparse  a list of (image, class)     each process takes the entries of its images
    Shared  the same on all processes    taken from any of them
    Total   summed over all processes    each old sum goes to exactly one of the new processes
    Flag    true once it happened        on all processes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory.disk import BackgroundArray, JournaledArray

_BLOCK = 256  # rows that are copied at a time
STEPS_TOGETHER = 16  # whose updates leave an accelerator in one copy


class Shard:
    """The images of one rank. State is kept in the order of their positions in the training set, ascending."""

    def __init__(self, index: NDArray[np.integer]) -> None:
        self.index = np.sort(np.asarray(index, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor) -> NDArray[np.int64]:
        """The rows in which this process keeps the state of these images.

        Raises:
            IndexError: if another process keeps the state of one of them.
        """
        wanted = index.cpu().numpy()
        rows = np.searchsorted(self.index, wanted)
        if len(wanted) and not np.array_equal(self.index[np.minimum(rows, len(self) - 1)], wanted):
            raise IndexError("a batch holds an image whose state is kept by another process")
        return rows


@dataclass(frozen=True)
class SavedPart:
    """State that one process saved.

    Attributes:
        shard: the images that it kept.
        tensors: its state, by name.
        files: paths of its state on disk, by the name of the store.
    """

    shard: Shard
    tensors: Mapping[str, Tensor]
    files: Mapping[str, Path] = field(default_factory=dict)

    def of_store(self, name: str) -> SavedPart:
        """The state of one store, under its own names."""
        files = {key: path for key, path in self.files.items() if key == name}
        return SavedPart(self.shard, sub_state(self.tensors, name), files)


def sub_state(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it.

    >>> sorted(sub_state({"scores.values": torch.zeros(1), "prior.sums": torch.zeros(1)}, "scores"))
    ['values']
    """
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class Field(ABC):
    """One tensor of a store.

    Attributes:
        shape: of the tensor, or of one row.
        dtype: of its numbers.
        fill: initial value.
    """

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    fill: float = 0

    def bytes(self, images: int) -> float:
        """Bytes that it takes for a shard with this number of images."""
        return prod(self.shape) * self.dtype.itemsize

    def allocate(self, images: int) -> Any:
        """The initial content."""
        return torch.full(self.shape, self.fill, dtype=self.dtype)

    def load(self, content: Any, saved: Tensor) -> Any:
        """The content after loading a saved tensor; tensors are overwritten in place."""
        return content.copy_(saved)

    @abstractmethod
    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """What belongs to `shard` of the tensors that several processes saved under `name`."""


@dataclass(frozen=True)
class Rows(Field):
    """A table with one row per image of this rank, in the order of the shard.

    Attributes:
        path: keep the table in this file, with undo journals; None keeps it in memory. Files hold uint8.
        resume: the file exists, and its content will be rolled back to a checkpoint.
    """

    path: Path | None = None
    resume: bool = False

    def bytes(self, images: int) -> float:
        """Bytes in memory or on disk."""
        return images * super().bytes(images)

    def allocate(self, images: int) -> Tensor | BackgroundArray:
        """The table in memory, or the open file."""
        if self.path is not None:
            return BackgroundArray(JournaledArray(self.path, (images, *self.shape), create=not self.resume))
        return torch.full((images, *self.shape), self.fill, dtype=self.dtype)

    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """The rows of this shard's images."""
        merged = torch.empty(len(shard), *self.shape, dtype=self.dtype)
        for rows, values in self.blocks(name, parts, shard):
            merged[torch.from_numpy(rows)] = values
        return merged

    def blocks(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """The same in blocks: rows of this shard and their content, wherever it was saved."""
        for part in parts:
            theirs = np.flatnonzero(np.isin(part.shard.index, shard.index))
            if not len(theirs):
                continue
            stored: NDArray[Any]
            if name in part.tensors:
                stored = part.tensors[name].numpy()
            else:  # a store has at most one file
                (path,) = part.files.values()
                stored = np.memmap(path, dtype=np.uint8, mode="r", shape=(len(part.shard), *self.shape))
            for start in range(0, len(theirs), _BLOCK):
                chosen = theirs[start : start + _BLOCK]
                rows = np.searchsorted(shard.index, part.shard.index[chosen])
                yield rows, torch.from_numpy(np.asarray(stored[chosen]))


@dataclass(frozen=True)
class Shared(Field):
    """A tensor that is the same on all processes."""

    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """That of the first process."""
        return parts[0].tensors[name]


@dataclass(frozen=True)
class Total(Field):
    """A sum over the visits of this rank; only the sum over all ranks is ever used."""

    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """The sums of those processes whose first image is in this shard, so that each sum is counted once."""
        total = torch.zeros(self.shape, dtype=self.dtype)
        for part in parts:
            if len(part.shard) and part.shard.index[0] in shard.index:
                total += part.tensors[name]
        return total


@dataclass(frozen=True)
class Flag(Field):
    """A bool that becomes true on all processes at the same time."""

    def bytes(self, images: int) -> float:
        """Not counted."""
        return 0

    def allocate(self, images: int) -> bool:
        """False."""
        return False

    def load(self, content: bool, saved: Tensor) -> bool:
        """The saved value."""
        return bool(saved)

    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """True if it is for any process."""
        return torch.tensor(any(bool(part.tensors[name]) for part in parts))


@dataclass(frozen=True)
class Sparse(Field):
    """One column of a list of (image, class) entries, a numpy array; the list is sorted by its column `keys`.

    Attributes:
        width: L; a key is image·L + class.
        most: entries to plan for, at most or as expected.
        by_row: keys are row·L + class instead, with rows of this process.
    """

    width: int = 1
    most: float = 0
    by_row: bool = False

    def bytes(self, images: int) -> float:
        """Bytes of the planned entries."""
        return self.most * self.dtype.itemsize

    def allocate(self, images: int) -> NDArray[Any]:
        """No entries."""
        empty: NDArray[Any] = torch.empty(0, dtype=self.dtype).numpy()
        return empty

    def load(self, content: NDArray[Any], saved: Tensor) -> NDArray[Any]:
        """A copy of the saved column."""
        return saved.numpy().copy()

    def merge(self, name: str, parts: Sequence[SavedPart], shard: Shard) -> Tensor:
        """The entries of this shard's images."""
        keys, columns = [], []
        for part in parts:
            saved = part.tensors["keys"].numpy()
            image = part.shard.index[saved // self.width] if self.by_row else saved // self.width
            mine = np.isin(image, shard.index)
            place = np.searchsorted(shard.index, image[mine]) if self.by_row else image[mine]
            keys.append(place * self.width + saved[mine] % self.width)
            columns.append(keys[-1] if name == "keys" else part.tensors[name].numpy()[mine])
        order = np.argsort(np.concatenate(keys), kind="stable")
        return torch.from_numpy(np.concatenate(columns)[order])


def find_entries(
    keys: NDArray[np.int64], rows: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The entries of some rows in a sparse list.

    Args:
        keys: row·L + class of each entry, ascending.
        rows: B, which to look up.
        width: L.

    Returns:
        For each entry of these rows: its position in `keys`, which of `rows` it belongs to, and its class.

    Example:
        >>> [column.tolist() for column in find_entries(np.array([1, 4, 5]), np.array([2, 0]), 2)]
        [[1, 2, 0], [0, 0, 1], [0, 1, 1]]
    """
    first = np.searchsorted(keys, rows * width)
    count = np.searchsorted(keys, (rows + 1) * width) - first
    entry = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return entry, np.repeat(np.arange(len(rows)), count), keys[entry] % width


class Store:
    """One kind of state: declared fields, which become attributes of the same names when it is allocated.

    Args:
        shard: the images of this rank.
        fields: the content. Their names are those in checkpoints.

    Attributes:
        disk: the file of the field that is kept on disk, if any; checkpoints hold its checksum and not its content.
    """

    disk: BackgroundArray | None = None

    def __init__(self, shard: Shard, **fields: Field) -> None:
        self._shard, self._fields = shard, fields
        self._waiting: list[tuple[Tensor, Tensor, tuple[Any, ...]]] = []

    @property
    def bytes(self) -> int:
        """Bytes in memory and on disk, known before anything is allocated."""
        return ceil(sum(declared.bytes(len(self._shard)) for declared in self._fields.values()))

    def allocate(self) -> Self:
        """Allocate the fields and set their initial content."""
        for name, declared in self._fields.items():
            content = declared.allocate(len(self._shard))
            if isinstance(content, BackgroundArray):
                self.disk = content
            setattr(self, name, content)
        self._initialize()
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """The fields that are in memory, not copied."""
        self.settle()
        self._before_save()
        contents = {name: getattr(self, name) for name in self._fields}
        return {
            name: torch.as_tensor(content)
            for name, content in contents.items()
            if not isinstance(content, BackgroundArray)
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned."""
        for name, declared in self._fields.items():
            content = getattr(self, name)
            if not isinstance(content, BackgroundArray):
                setattr(self, name, declared.load(content, state[name]))
        self._after_load()

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over the state of this rank's images from what any number of processes saved."""
        state = {}
        for name in {**self._fields, **parts[0].tensors}:
            declared = self._fields.get(name) or self._undeclared(name, parts[0].tensors[name])
            content = getattr(self, name, None)
            if isinstance(declared, Rows) and isinstance(content, BackgroundArray):
                for rows, values in declared.blocks(name, parts, self._shard):
                    content.write(rows, values.numpy())
            else:
                state[name] = declared.merge(name, parts, self._shard)
        self.load_state_dict(state)

    def warm_start(self) -> None:
        """Prepare for a new stage that starts from the state of an earlier one."""

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """Learn the images of the coming batches, in order; a store on disk reads them ahead."""

    def settle(self, index: Tensor | None = None) -> None:
        """Write what waits on an accelerator, if it is about these images; all of it without an index."""
        if not self._waiting:
            return
        if index is not None and not np.isin(index.numpy(), torch.cat([at for at, *_ in self._waiting]).numpy()).any():
            return
        waiting, self._waiting = self._waiting, []
        together = torch.cat([values for _, values, _ in waiting]).cpu()  # the one copy that the host waits for
        parts = torch.split(together, [len(values) for _, values, _ in waiting])
        for (at, _, rest), values in zip(waiting, parts, strict=True):
            self._write(at, values, *rest)

    def _write_soon(self, index: Tensor, values: Tensor, *rest: Any) -> None:
        """Call `_write` with values on the host: now if they are there, else after some steps or when they are read.

        The order of writes and what is read between them do not depend on that.
        """
        if values.device.type == "cpu":
            self._write(index, values, *rest)
            return
        self._waiting.append((index, values, rest))
        if len(self._waiting) == STEPS_TOGETHER:
            self.settle()

    def _write(self, index: Tensor, values: Tensor, *rest: Any) -> None:
        """Change the state of these images."""
        raise TypeError(f"{type(self).__name__} does not define how it is written")

    def _undeclared(self, name: str, saved: Tensor) -> Field:
        """How to merge what a store saves besides its fields: the state of an optimizer of a table."""
        return Rows(tuple(saved.shape[1:]), saved.dtype) if saved.ndim else Shared()

    def _initialize(self) -> None:
        """Set initial content that is more than one number for all."""

    def _before_save(self) -> None:
        """Bring the fields up to date."""

    def _after_load(self) -> None:
        """Derive what depends on the fields."""


S = TypeVar("S", bound=Store)


class NamedStores:
    """The stores of one rank, one object per name.

    Args:
        labels: of the training images.
        shard: positions of the images that this rank keeps.
        seed: of the run.
        folder: where files may be kept; None keeps everything in memory.
        budget: bytes that the state may take on this rank, on disk and in memory together.
        saved: what `state_dict` returned, to start from instead of the initial state.
        disk: number of the checkpoint to resume from, and what `mark` returned for it.
        parts: what another number of processes saved, instead of `saved` and `disk`.
        warm: `saved` comes from an earlier stage; call `warm_start` of each store after loading.
    """

    def __init__(
        self,
        labels: LabelMatrix,
        shard: NDArray[np.integer],
        *,
        seed: int,
        folder: Path | None = None,
        budget: int | None = None,
        saved: Mapping[str, Tensor] | None = None,
        disk: tuple[int, Mapping[str, str]] | None = None,
        parts: Sequence[SavedPart] | None = None,
        warm: bool = False,
    ) -> None:
        self._labels = labels
        self._shard = Shard(shard)
        self._seed = seed
        self._folder = folder
        self._budget = budget
        self._saved = saved
        self._disk = disk
        self._parts = parts
        self._warm = warm
        self._stores: dict[str, Store] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._bytes: dict[str, int] = {}
        self._written: set[str] = set()

    def find(self, name: str) -> Store | None:
        """A store that a method asked for, to look at; None if no method did."""
        return self._stores.get(name)

    def begin_stage(self) -> None:
        """Continue with the same memory in another stage."""
        self._settle()
        for store in self._stores.values():
            store.warm_start()

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """Announce the images of the coming batches, in order; stores on disk read them ahead."""
        for store in self._stores.values():
            store.expect(batches)

    def begin_step(self) -> None:
        """Begin a batch: every store may be written once more."""
        self._written.clear()

    def first_write(self, name: str) -> bool:
        """Whether this store was not written for the current batch yet; the first to ask is its writer."""
        first = name not in self._written
        self._written.add(name)
        return first

    def sizes(self) -> dict[str, int]:
        """Bytes of each store."""
        return dict(self._bytes)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that is not in files."""
        return {
            f"{name}.{key}": value for name, store in self._stores.items() for key, value in store.state_dict().items()
        }

    def mark(self, checkpoint: int) -> dict[str, str]:
        """Make the current content of all files belong to a checkpoint.

        Returns:
            The checksum of each file, by the name of its store.
        """
        self._settle()
        checksums = {}
        for name, array in self._files().items():
            array.mark(checkpoint)
            checksums[name] = array.checksum()
        return checksums

    def checksums(self) -> dict[str, str]:
        """The checksum of the current content of each file."""
        self._settle()
        return {name: array.checksum() for name, array in self._files().items()}

    def paths(self) -> list[Path]:
        """The files, with all changes written."""
        self._settle()
        return [array.written() for array in self._files().values()]

    def forget(self, before: int) -> None:
        """Drop what is needed only to go back to checkpoints older than `before`."""
        for array in self._files().values():
            array.forget(before)

    def close(self) -> None:
        """Close all files."""
        self._settle()
        for array in self._files().values():
            array.close()

    def _settle(self) -> None:
        for store in self._stores.values():
            store.settle()

    def _files(self) -> dict[str, BackgroundArray]:
        return {name: store.disk for name, store in self._stores.items() if store.disk is not None}

    def _get(self, name: str, options: dict[str, Any], make: Callable[[], S]) -> S:
        """The store of a name; it is made, checked against the budget, allocated and loaded when first asked for."""
        if name in self._stores:
            there = self._options[name]
            if differing := [option for option in options if there[option] != options[option]]:
                one, other = ({option: made[option] for option in differing} for made in (there, options))
                raise TagfillError(
                    f"Two methods of this run want different '{name}' memories ({one} and {other}); give both the "
                    "same options."
                )
            return self._stores[name]  # type: ignore[return-value]
        store = make()
        size = store.bytes
        self._check_budget(name, size)
        store.allocate()
        if self._saved is not None:
            state = sub_state(self._saved, name)
            if state:  # a stage may ask for a store that the one before it did not have
                store.load_state_dict(state)
                if self._warm:
                    store.warm_start()
        if self._parts is not None:
            store.reshard([part.of_store(name) for part in self._parts])
        if self._disk is not None and store.disk is not None and name in self._disk[1]:
            store.disk.roll_back(self._disk[0], self._disk[1][name])
        self._stores[name], self._options[name], self._bytes[name] = store, options, size
        return store

    def _check_budget(self, name: str, size: int) -> None:
        taken = sum(self._bytes.values()) + size
        if self._budget is not None and taken > self._budget:
            raise TagfillError(
                f"The memory '{name}' takes {size / 1e9:.2f} GB for {len(self._shard):,} images and "
                f"{self._labels.width:,} classes, {taken / 1e9:.2f} GB with what is there, above the budget of "
                f"{self._budget / 1e9:.2f} GB; raise memory.budget_gb (--memory-budget), keep fewer classes per image "
                "where the method can, or choose another method."
            )
