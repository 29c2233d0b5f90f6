"""Which images' state lives in this process, and how state moves when the number of processes changes.

Memory that is used again at each step.

Large tensors of their own each step would cost more than the arithmetic on them: the system hands their pages out anew
each time, emptied.

What all state of a run has in common: it is budgeted, saved with checkpoints, resumed, and written once a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory.disk import BackgroundArray


class Shard:
    """The images of one rank; state is kept in the order of their ascending positions in the training set."""

    def __init__(self, index: NDArray[np.integer]) -> None:
        self.index = np.sort(np.asarray(index, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: Tensor) -> NDArray[np.int64]:
        """Where the state of these images lies in this process."""
        wanted = index.cpu().numpy()
        rows = np.searchsorted(self.index, wanted)
        if len(wanted) and not np.array_equal(self.index[np.minimum(rows, len(self) - 1)], wanted):
            raise IndexError("a batch holds an image whose state is kept by another process")
        return rows

    def collect(self, parts: Sequence[SavedPart], name: str) -> Tensor:
        """The rows of this shard out of a table that several processes saved a part of each.

        Args:
            parts: what each process saved, tensors with a row an image.
            name: of the table.
        """
        wanted = np.concatenate([part.shard.index for part in parts])
        order = np.argsort(wanted)
        rows = order[np.searchsorted(wanted, self.index, sorter=order)]
        return torch.cat([part.tensors[name] for part in parts])[torch.from_numpy(rows)]


@dataclass(frozen=True)
class SavedPart:
    """State that one process saved.

    Attributes:
        shard: the images that it kept.
        tensors: its state, by name.
        files: paths of its state on disk, by name.
    """

    shard: Shard
    tensors: Mapping[str, Tensor]
    files: Mapping[str, Path] = field(default_factory=dict)

    def below(self, name: str) -> SavedPart:
        """The part of one store, under its own names."""
        files = {key: path for key, path in self.files.items() if key == name}
        return SavedPart(self.shard, sub_state(self.tensors, name), files)


def sub_state(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors below a name, under their own names.

    >>> sorted(below({"scores.values": torch.zeros(1), "prior.sums": torch.zeros(1)}, "scores"))
    ['values']
    """
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


class ScratchBuffers:
    """Float32 memory by name; it grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._parts: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A contiguous tensor with any content, which is good until the same name is taken again.

        Example:
            >>> Room().take("rows", (2, 3)).shape
            torch.Size([2, 3])
        """
        size = math.prod(shape)
        if name not in self._parts or len(self._parts[name]) < size:
            self._parts[name] = torch.empty(size)
        return self._parts[name][:size].view(shape)


class Store(Protocol):
    """One kind of state.

    If it is kept in a file, it has an attribute `disk`; `expect` and `warm_start` of a store that has them are called
    with the coming batches and at the beginning of a stage.
    """

    def state_dict(self) -> dict[str, Tensor]:
        """What goes into a checkpoint; what is in a file does not."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what was saved."""

    def reshard(self, parts: Sequence[SavedPart]) -> None:
        """Take over what other processes kept."""


S = TypeVar("S", bound=Store)


class Stores:
    """Stores of one rank, one object per name.

    Args:
        labels: of the training images.
        shard: positions of the images that this rank keeps.
        seed: of the run.
        folder: where files may be kept; None keeps everything in memory.
        budget: bytes that the state may take on this rank, on disk and in memory together.
        saved: what `state_dict` gave, to start from instead of the initial state.
        disk: what `mark` gave for the files, with the number of that checkpoint.
        parts: what another number of processes saved, instead of `saved` and `disk`.
        warm: `saved` comes from an earlier stage, which stores may begin from otherwise than they go on.
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
        """A store that somebody has asked for, to look at; None where nobody has."""
        return self._stores.get(name)

    def begin_stage(self) -> None:
        """Another stage goes on with this memory."""
        for store in self._stores.values():
            _warm_start(store)

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """The images of the coming batches, in their order; stores on disk read them ahead."""
        for store in self._stores.values():
            expect: Callable[[Sequence[NDArray[np.int64]]], None] | None = getattr(store, "expect", None)
            if expect is not None:
                expect(batches)

    def begin_step(self) -> None:
        """A new batch: every store may be written once more."""
        self._written.clear()

    def first_write(self, name: str) -> bool:
        """Whether nobody has written this store for the current batch yet; whoever asks first is the writer."""
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
        """Tell the files that their content belongs to a checkpoint; gives the checksum of each."""
        checksums = {}
        for name, array in self._files().items():
            array.mark(checkpoint)
            checksums[name] = array.checksum()
        return checksums

    def checksums(self) -> dict[str, str]:
        """The checksum of each file's content as of now."""
        return {name: array.checksum() for name, array in self._files().items()}

    def paths(self) -> list[Path]:
        """The files, with everything written that was changed."""
        return [array.written() for array in self._files().values()]

    def forget(self, before: int) -> None:
        """Checkpoints older than `before` are gone."""
        for array in self._files().values():
            array.forget(before)

    def close(self) -> None:
        """Let go of all files."""
        for array in self._files().values():
            array.close()

    def _files(self) -> dict[str, BackgroundArray]:
        found = {name: getattr(store, "disk", None) for name, store in self._stores.items()}
        return {name: array for name, array in found.items() if array is not None}

    def _get(self, name: str, options: dict[str, Any], size: int, make: Callable[[], S]) -> S:
        if name in self._stores:
            there = self._options[name]
            if differing := [option for option in options if there[option] != options[option]]:
                one, other = ({option: made[option] for option in differing} for made in (there, options))
                raise TagfillError(
                    f"Two methods of this run want different '{name}' memories ({one} and {other}); give both the "
                    "same options."
                )
            return self._stores[name]  # type: ignore[return-value]
        self._afford(name, size)
        store = make()
        if self._saved is not None:
            state = sub_state(self._saved, name)
            if state:  # a stage may ask for a store that the one before it did not have
                store.load_state_dict(state)
                if self._warm:
                    _warm_start(store)
        if self._parts is not None:
            store.reshard([part.below(name) for part in self._parts])
        array: BackgroundArray | None = getattr(store, "disk", None)
        if self._disk is not None and array is not None and name in self._disk[1]:
            array.roll_back(self._disk[0], self._disk[1][name])
        self._stores[name], self._options[name], self._bytes[name] = store, options, size
        return store

    def _afford(self, name: str, size: int) -> None:
        taken = sum(self._bytes.values()) + size
        if self._budget is not None and taken > self._budget:
            raise TagfillError(
                f"The memory '{name}' takes {size / 1e9:.2f} GB for {len(self._shard):,} images and "
                f"{self._labels.width:,} classes, {taken / 1e9:.2f} GB with what is there, above the budget of "
                f"{self._budget / 1e9:.2f} GB; raise memory.budget_gb (--memory-budget), keep fewer classes an image "
                "where the method can, or choose another."
            )


def _warm_start(store: Store) -> None:
    """Let a store begin a stage from where an earlier one ended, if that is more than going on."""
    warm_start: Callable[[], None] | None = getattr(store, "warm_start", None)
    if warm_start is not None:
        warm_start()
