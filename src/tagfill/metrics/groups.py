"""Means over groups of classes, from the rarest to the most frequent.

OpenImages V3 is reported this way: 5,000 classes sorted by their number of verified annotations in the training data,
five groups of 1,000, G1 the rarest. Values stay aligned with their classes when some have none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def group_means(values: ArrayLike, annotations: ArrayLike, *, groups: int = 5) -> NDArray[np.float64]:
    """Mean value of each group of classes; NaNs are left out of their group.

    Args:
        values: L, such as average precisions, NaN where a class has none.
        annotations: L, number of annotations of each class in training; ties keep the order of classes.
        groups: how many, of equal size; earlier ones are larger by one where L does not divide.

    Returns:
        One mean a group, rarest first; NaN for a group without values.

    Example:
        >>> group_means([0.2, 0.8, np.nan, 0.6], [5, 100, 1, 50], groups=2)
        array([0.2, 0.7])
    """
    values, annotations = np.asarray(values, dtype=np.float64), np.asarray(annotations)
    if values.shape != annotations.shape or values.ndim != 1:
        raise ValueError(f"Values {values.shape} and annotations {annotations.shape} must both be (classes,).")
    if not 1 <= groups <= max(len(values), 1):
        raise ValueError(f"{len(values)} classes do not make {groups} groups.")
    members = np.array_split(values[np.argsort(annotations, kind="stable")], groups)
    counted = [group[~np.isnan(group)] for group in members]
    return np.array([group.mean() if len(group) else np.nan for group in counted])
