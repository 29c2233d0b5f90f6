"""One training step of any method on made-up features: cells → `cam` head → loss → backward → Adam → memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import methods
from tagfill.contract import Batch, Marks, Prediction, Ranks, Task
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory
from tagfill.models import create_head

BATCH, CHANNELS, GRID = 64, 1280, (7, 7)
POSITIVES = 3  # true labels of an image; one of them is known
EPOCH = 3  # rates have risen, sets have been chosen


@dataclass(frozen=True)
class Problem:
    """Images with one known label each, and features for a few batches.

    Attributes:
        labels: N×L, one positive an image.
        truth: complete labels.
        features: a few batches of B×D×G×G, cells last in memory.
        frozen: N×D.
    """

    labels: LabelMatrix
    truth: LabelMatrix
    features: list[Tensor]
    frozen: NDArray[np.float32]


def problem(images: int, classes: int, seed: int = 0) -> Problem:
    """Random labels and features."""
    rng = np.random.default_rng(seed)
    true = np.stack([rng.choice(classes, POSITIVES, replace=False) for _ in range(images)])
    everybody = np.arange(images)
    complete = np.zeros((images, classes), dtype=np.int8)
    complete[everybody[:, None], true] = 1
    observed = LabelMatrix.from_keys(
        everybody * classes + true[:, 0], np.ones(images, dtype=np.int8), (images, classes)
    )
    cells = [torch.from_numpy(rng.random((2 * BATCH, *GRID, CHANNELS), dtype=np.float32)) for _ in range(3)]
    frozen = rng.random((images, CHANNELS), dtype=np.float32)
    return Problem(observed, LabelMatrix.from_dense(complete), [part.permute(0, 3, 1, 2) for part in cells], frozen)


class Contestant:
    """A method with a head and an optimiser of its own, in the middle of its schedule."""

    def __init__(
        self,
        name: str,
        given: Problem,
        *,
        options: dict[str, Any] | None = None,
        boost: float | None = None,
        maps: bool = False,
        seed: int = 0,
    ) -> None:
        if name.startswith("bce"):
            given = replace(given, labels=given.truth)
        self._given, self._rng = given, np.random.default_rng(seed)
        self._method = methods.create(name, {name: options} if options else None)
        self.memory = Memory(given.labels, np.arange(len(given.labels)), seed=seed)
        boosting = {} if boost is None else {"boost": boost}
        self._head = create_head("cam", CHANNELS, given.labels.width, seed=seed, **boosting).train()
        self._optimizer = torch.optim.Adam(self._head.parameters(), lr=1e-3)
        needs = self._method.needs
        self.maps = maps or boost is not None or "maps" in needs
        self._views = ("weak", "strong") if "weak+strong" in needs else ("train",)
        self._marked = "marks" in needs
        self._method.setup(self._task())
        for epoch in range(1, EPOCH + 1):
            self._method.begin_epoch(epoch)

    def steps(self, count: int) -> float:
        """Seconds that some steps take; making up their batches is not counted."""
        batches = [self._batch(self._rng.choice(len(self._given.labels), BATCH, replace=False)) for _ in range(count)]
        begin = time.perf_counter()
        for batch in batches:
            self._step(batch)
        return time.perf_counter() - begin

    def _step(self, batch: Batch) -> None:
        self.memory.begin_step()
        prediction: Prediction = self._head(batch.inputs, maps=self.maps)
        terms = self._method.loss(batch, prediction)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self._method.observe(batch, prediction.detach())
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _batch(self, index: NDArray[np.int64], *, evaluating: bool = False) -> Batch:
        views = ("eval",) if evaluating else self._views
        rows = len(views) * len(index)
        features = self._given.features[int(self._rng.integers(len(self._given.features)))][:rows]
        labels = torch.from_numpy(self._given.labels.rows(index))
        marks = self._marks(labels) if self._marked else None
        return Batch(torch.from_numpy(index), labels, features, Geometry.whole(rows), views, marks)

    def _marks(self, labels: Tensor) -> Marks:
        """A point on each positive label."""
        image, label = np.nonzero(labels.numpy() == 1)
        box = np.zeros((len(image), 4))
        box[:, :2] = self._rng.random((len(image), 2))
        return Marks(image, label, box, (None,) * len(image))

    def _predict(self, split: str) -> Iterator[tuple[Batch, Prediction]]:
        with torch.inference_mode():
            for start in range(0, len(self._given.labels), BATCH):
                index = np.arange(start, min(start + BATCH, len(self._given.labels)))
                batch = self._batch(index, evaluating=True)
                yield batch, self._head(batch.inputs, maps=self.maps)

    def _task(self) -> Task:
        given = self._given
        return Task(
            classes=tuple(map(str, range(given.labels.width))),
            labels=given.labels,
            size=len(given.labels),
            epochs=10,
            seed=0,
            grid=GRID,
            expected_positives=float(POSITIVES),
            lr=1e-3,
            memory=self.memory,
            ranks=Ranks(),
            predict=self._predict,
            shard=np.arange(len(given.labels)),
            frozen_features=lambda: given.frozen,
            truth=lambda: given.truth,
        )
