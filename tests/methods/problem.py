"""A small problem that a linear classifier with class maps learns, and the loop that trains it by any method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.cases import GRID, task_of
from pretended_device import DEVICE, PretendedDevice, host
from tagfill.contract import Batch, Decisions, Marks, Prediction
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.methods import TERMS, create
from tagfill.training.devices import Devices

IMAGES, CLASSES, CHANNELS, BATCH = 24, 6, 8, 12

_RNG = np.random.default_rng(4)
TRUTH = (_RNG.random((IMAGES, CLASSES)) < 0.3).astype(np.int8)
TRUTH[np.arange(IMAGES), np.arange(IMAGES) % CLASSES] = 1
PATTERNS = _RNG.normal(size=(CLASSES, CHANNELS)).astype(np.float32)
FEATURES = torch.from_numpy(
    ((TRUTH @ PATTERNS)[:, :, None, None] + _RNG.normal(size=(IMAGES, CHANNELS, *GRID))).astype(np.float32)
)


class Tagger:
    """Evidence that is right about most pairs, and has no score for some."""

    trust = np.linspace(0.2, 1.0, CLASSES)
    checksum = 7

    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        scores = 2.0 * TRUTH - 1 + rng.normal(size=TRUTH.shape)
        self._scores = np.where(rng.random(TRUTH.shape) < 0.2, np.nan, scores)

    def probabilities(self, index: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return (1 / (1 + np.exp(-2 * self._scores[index]))).astype(np.float32)

    def softmax(self, index: np.ndarray, temperature: float) -> np.ndarray:
        power = np.exp(self._scores[index])
        return (power / np.nansum(power, 1, keepdims=True)).astype(np.float32)


OTHER_TAGGER = Tagger()


def single_positive() -> np.ndarray:
    """One present label per image and nothing else."""
    labels = np.full_like(TRUTH, -1)
    labels[np.arange(IMAGES), np.arange(IMAGES) % CLASSES] = 1
    return labels


def positives_and_negatives() -> np.ndarray:
    """About half of all labels, a different number in each image."""
    kept = np.random.default_rng(5).random(TRUTH.shape) < np.linspace(0.1, 0.9, IMAGES)[:, None]
    return np.where(kept, TRUTH, -1).astype(np.int8)


SITUATIONS = {
    "single positive": single_positive(),
    "positives and negatives": positives_and_negatives(),
    "nothing known": np.full_like(TRUTH, -1),
    "everything known": TRUTH,
}


@dataclass
class Outcome:
    """Weights at the end and at the beginning, and what was seen on the way."""

    weights: Tensor
    initial: Tensor
    losses: list[float] = field(default_factory=list)
    decisions: list[Decisions] = field(default_factory=list)
    waits: list[list[str]] = field(default_factory=list)  # of each step, on the pretended device


class _Maps(torch.nn.Module):
    """A linear classifier of cells."""

    def __init__(self, classifier: torch.nn.Linear) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, features: Tensor) -> Prediction:
        maps = self.classifier(features.movedim(1, -1)).movedim(-1, 1).float()
        return Prediction(maps.mean((2, 3)), maps, features)


def full_name(name: str) -> str:
    """The method itself, or a term beside the simplest method that learns from labels."""
    return f"an+{name}" if name in TERMS else name


def train(
    name: str,
    labels: np.ndarray,
    epochs: int = 3,
    options: Mapping[str, Any] | None = None,
    device: PretendedDevice | None = None,
    batch: int = BATCH,
    precision: str = "float32",
) -> Outcome:
    """A few epochs of a method on the problem with these labels, on the CPU or on the pretended device.

    `precision` is that of the network, in the wrapper that runs use.
    """
    matrix = LabelMatrix.from_dense(labels)
    torch.manual_seed(0)
    classifier = torch.nn.Linear(CHANNELS, CLASSES)
    place = torch.device("cpu") if device is None else DEVICE
    classifier.to(place)
    adam = torch.optim.Adam(classifier.parameters(), lr=2e-2)
    method = create(full_name(name), {name: options} if options else {})
    views = ("weak", "strong") if "weak+strong" in method.needs else ("train",)

    def look(index: np.ndarray, names: tuple[str, ...]) -> Batch:
        inputs = FEATURES[torch.from_numpy(index)].repeat(len(names), 1, 1, 1)
        marks = marks_of(index, matrix) if "marks" in method.needs else None
        known = torch.from_numpy(matrix.rows(index))
        return Batch(torch.from_numpy(index), known, inputs, Geometry.whole(len(inputs)), names, marks).to(place)

    devices = Devices(device="cpu", precision=precision)
    network, stepper = _Maps(classifier), adam
    if device is None:
        network, stepper = devices.wrap(network, adam)

    def answer(seen: Batch) -> Prediction:
        prediction: Prediction = network(seen.inputs)
        return prediction

    def predict(split: str) -> Iterator[tuple[Batch, Prediction]]:
        with torch.no_grad():
            for index in np.split(np.arange(IMAGES), 2):
                seen = look(index, ("eval",))
                yield seen, answer(seen)

    task = task_of(
        matrix,
        epochs=epochs,
        lr=2e-2,
        predict=predict,
        expected_positives=float(TRUTH.sum(1).mean()),
        frozen_features=lambda: FEATURES.mean((2, 3)).numpy(),
        truth=lambda: LabelMatrix.from_dense(TRUTH),
        evidence=lambda names: OTHER_TAGGER,
    )
    outcome = Outcome(host(classifier.weight).detach(), host(classifier.weight).detach().clone())
    method.setup(task)
    for epoch in range(1, epochs + 1):
        method.begin_epoch(epoch)
        for index in np.split(np.random.default_rng(epoch).permutation(IMAGES), IMAGES // batch):
            seen = look(index, views)
            task.memory.begin_step()
            prediction = answer(seen)
            if device is not None:
                device.reset()
            loss = torch.stack(list(method.loss(seen, prediction).values())).sum()
            stepper.zero_grad()
            devices.backward(loss)
            with torch.no_grad():
                method.observe(seen, prediction.detach())
            stepper.step()
            decided = method.decisions()
            if device is not None:
                outcome.waits.append(device.reset().waits)
            outcome.losses.append(loss.item())
            if decided is not None:
                outcome.decisions.append(decided)
    return outcome


def marks_of(index: np.ndarray, labels: LabelMatrix) -> Marks:
    """A point in the middle of the image for each label that is known to be present."""
    row, label = np.nonzero(labels.rows(index) == 1)
    return Marks(row, label, np.tile([0.5, 0.5, 0.0, 0.0], (len(row), 1)), (None,) * len(row))
