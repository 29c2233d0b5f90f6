"""From logits to what is said about an image: probabilities, those that are kept, and which labels are present.

    p = σ(g),   present where p ≥ the threshold of the class

Thresholds are those that were chosen for the model, 0.5 where nobody chose any, or what the caller gives instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError, unknown_name
from tagfill.probabilities import probabilities

DEFAULT_THRESHOLD = 0.5
Threshold = float | Mapping[str, float] | None


@dataclass(frozen=True)
class Decided:
    """What is said about n images, k labels each.

    Attributes:
        labels: n×k, positions of classes.
        scores: n×k float32, their probabilities.
        present: n×k, whether they reach their thresholds.
    """

    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    present: NDArray[np.bool_]


def chosen_thresholds(
    classes: Sequence[str], of_model: Sequence[float] | None, given: Threshold = None
) -> tuple[float, ...]:
    """The threshold of each class.

    Args:
        classes: names.
        of_model: those that were chosen for the model, if they were; otherwise 0.5.
        given: one for all classes, or of some classes by name, in place of the model's.

    >>> chosen_thresholds(["cat", "dog"], None, {"dog": 0.3})
    (0.5, 0.3)
    """
    chosen = dict(zip(classes, of_model or [DEFAULT_THRESHOLD] * len(classes), strict=True))
    if given is not None:
        new = given if isinstance(given, Mapping) else dict.fromkeys(classes, given)
        for name, value in new.items():
            if name not in chosen:
                raise unknown_name("class", name, classes)
            if not 0 <= value <= 1:
                raise TagfillError(f"The threshold {value:g} is not a probability; give one between 0 and 1.")
        chosen |= new
    return tuple(float(chosen[name]) for name in classes)


def decide(logits: NDArray[np.floating], thresholds: Sequence[float], top_k: int | None = None) -> Decided:
    """Decide about images.

    Args:
        logits: n×L.
        thresholds: L.
        top_k: keep the most probable labels of each image, the most probable first; without it all, in the order of
            the classes.

    >>> decided = decide(np.array([[2.0, -1.0, 0.0]]), [0.5, 0.5, 0.5], top_k=2)
    >>> decided.labels.tolist(), decided.scores.round(2).tolist(), decided.present.tolist()
    ([[0, 2]], [[0.8799999952316284, 0.5]], [[True, True]])
    """
    scores = probabilities(logits)
    present = scores >= np.asarray(thresholds)
    labels = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    if top_k is not None:
        labels = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        scores, present = np.take_along_axis(scores, labels, axis=1), np.take_along_axis(present, labels, axis=1)
    return Decided(labels.astype(np.int32), scores, present)
