"""Per-image state between steps: named, budgeted, saved with checkpoints, kept on the rank that sees the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tagfill.contract import LabelMatrix
from tagfill.errors import TagfillError
from tagfill.memory.background import BackgroundArray
from tagfill.memory.class_distances import ClassDistances
from tagfill.memory.entries import Entries
from tagfill.memory.estimates import Estimates, EstimatesOptimizer
from tagfill.memory.found_labels import FoundLabels
from tagfill.memory.heatmaps import Heatmaps, Rounding
from tagfill.memory.journal import JournaledArray
from tagfill.memory.kept_scores import KeptScores
from tagfill.memory.neighbours import Neighbours
from tagfill.memory.overlay import ChangedLabels
from tagfill.memory.prior import Prior, read_prior
from tagfill.memory.pseudo_labels import PseudoLabels
from tagfill.memory.scores import Scores
from tagfill.memory.shard import SavedPart, Shard

__all__ = [
    "BackgroundArray",
    "ChangedLabels",
    "ClassDistances",
    "Entries",
    "Estimates",
    "FoundLabels",
    "Heatmaps",
    "JournaledArray",
    "KeptScores",
    "Memory",
    "Neighbours",
    "Prior",
    "PseudoLabels",
    "SavedPart",
    "Scores",
    "Shard",
    "read_prior",
]


class Store(Protocol):
    """One kind of state; if it is kept in a file, it has an attribute `disk`."""

    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...
    def reshard(self, parts: Sequence[SavedPart]) -> None: ...


S = TypeVar("S", bound=Store)


class Memory:
    """All state of one rank, one object per name, however many methods ask for it.

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

    def scores(self, *, momentum: float, classes_per_image: int | None = None) -> Scores | KeptScores:
        """Running probabilities of each image and class, or of a few classes an image."""
        count = self._few(classes_per_image)
        options = {"momentum": momentum, "classes_per_image": count}
        if count is None:
            size = Scores.bytes(self._labels, self._shard)
            return self._get("scores", options, size, lambda: Scores(self._labels, self._shard, momentum=momentum))
        return self._get(
            "scores",
            options,
            KeptScores.bytes(self._shard, count),
            lambda: KeptScores(self._labels, self._shard, momentum=momentum, count=count),
        )

    def heatmaps(
        self, *, momentum: float, size: int, classes_per_image: int | None = None, rounding: Rounding = "nearest"
    ) -> Heatmaps:
        """Running class maps of each image, size×size, of all classes or of a few."""
        path = None if self._folder is None else self._folder / "heatmaps.u8"
        resume = self._disk is not None and "heatmaps" in self._disk[1]
        count = self._few(classes_per_image)
        return self._get(
            "heatmaps",
            {"momentum": momentum, "size": size, "classes_per_image": count, "rounding": rounding},
            Heatmaps.bytes(self._labels, self._shard, size, count),
            lambda: Heatmaps(
                self._labels,
                self._shard,
                momentum=momentum,
                size=size,
                path=path,
                resume=resume,
                count=count,
                rounding=rounding,
                seed=self._seed,
            ),
        )

    def estimates(self, *, optimizer: EstimatesOptimizer = "dense_adam") -> Estimates:
        """Trainable label estimates."""
        return self._get(
            "estimates",
            {"optimizer": optimizer},
            Estimates.bytes(self._labels, self._shard, optimizer),
            lambda: Estimates(self._labels, self._shard, seed=self._seed, optimizer=optimizer),
        )

    def pseudo_labels(self) -> PseudoLabels:
        """Labels that a method gave by itself; there are none at first."""
        return self._get(
            "pseudo_labels",
            {},
            PseudoLabels.bytes(self._labels, self._shard),
            lambda: PseudoLabels(self._labels, self._shard),
        )

    def entries(self, name: str, *, most: int | None = None) -> Entries:
        """A sparse set of at most so many (image, class) entries; it starts empty."""
        size = Entries.bytes(self._labels, self._shard, most)
        return self._get(name, {}, size, lambda: Entries(self._shard, self._labels.width))

    def neighbours(self, *, count: int) -> Neighbours:
        """The nearest images of each image; whoever finds them not ready fills them."""
        return self._get(
            "neighbours",
            {"count": count},
            Neighbours.bytes(self._labels, self._shard, count),
            lambda: Neighbours(self._labels, self._shard, count=count),
        )

    def class_distances(self, *, prototype: str, distance: str) -> ClassDistances:
        """Distances of classes; whoever finds them not ready fills them."""
        return self._get(
            "class_distances",
            {"prototype": prototype, "distance": distance},
            ClassDistances.bytes(self._labels.width),
            lambda: ClassDistances(self._labels.width),
        )

    def found_labels(self, *, limit: int) -> FoundLabels:
        """Pseudo-labels, at most `limit` an image."""
        size = FoundLabels.bytes(self._shard, self._labels.width, limit)
        return self._get("found_labels", {"limit": limit}, size, lambda: FoundLabels(self._shard, self._labels.width))

    def overlay(self, *, changes: float) -> ChangedLabels:
        """Labels that a method changed for good; `changes` are expected by the end, and it grows as they come."""
        size = ChangedLabels.bytes(changes)
        return self._get("overlay", {}, size, lambda: ChangedLabels(self._labels, self._shard))

    def prior(self) -> Prior:
        """The mean predicted probability of each class."""
        size = Prior.bytes(self._labels.width)
        return self._get("prior", {}, size, lambda: Prior(self._shard, self._labels.width))

    def begin_stage(self) -> None:
        """Another stage goes on with this memory."""
        for store in self._stores.values():
            _warm_start(store)

    def expect(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """The images of the coming batches, in their order; stores on disk read them ahead."""
        for store in self._stores.values():
            if isinstance(store, Heatmaps):
                store.expect(batches)

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

    def _few(self, classes_per_image: int | None) -> int | None:
        """How many classes an image keeps; None for all, also where as many are asked for as there are."""
        few = classes_per_image is not None and classes_per_image < self._labels.width
        return classes_per_image if few else None

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
            prefix = f"{name}."
            state = {k.removeprefix(prefix): v for k, v in self._saved.items() if k.startswith(prefix)}
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
