"""What methods may be told beyond the labels of the training images, when they ask for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations import Dataset, LabelMatrix
from tagfill.errors import TagfillError
from tagfill.loading import FeatureCache, Source
from tagfill.models import Backbone


def true_labels(dataset: Dataset, split: str) -> LabelMatrix:
    """The complete labels of a simulated dataset's split, for oracle methods alone.

    Raises:
        TagfillError: if the dataset was not simulated, or from other images or classes.
    """
    if dataset.truth is None:
        raise TagfillError(
            f"This method is an oracle and needs the complete labels, but {dataset.name} names no truth; use it on a "
            "dataset that 'tagfill simulate' made."
        )
    complete = Dataset.open(dataset.truth)
    if complete.classes != dataset.classes:
        raise TagfillError(f"The truth of {dataset.name}, {dataset.truth}, has other classes.")
    names = pa.array(dataset.names(dataset.split(split)))
    rows = pc.index_in(names, value_set=pa.array(complete.names()))
    if rows.null_count:
        raise TagfillError(f"The truth of {dataset.name}, {dataset.truth}, lacks {rows.null_count} of its images.")
    return complete.labels().take(rows.to_numpy())


def cached_features(dataset: Dataset, cache: FeatureCache, split: str) -> NDArray[np.float32]:
    """Pooled features of a split's images out of a cache: N×D."""
    view = cache.view("eval")
    return np.asarray(view.pooled(view.find(dataset.split(split))))


def frozen_features(backbone: Backbone, source: Source, split: str, size: int) -> NDArray[np.float32]:
    """Pooled features of a split's images by a backbone as it is: N×D; an image that does not decode stays zero."""
    pooled = np.zeros((size, backbone.channels), dtype=np.float32)
    training = backbone.training
    backbone.eval()
    try:
        for batch in source.evaluate(split, np.arange(size)):
            pooled[batch.index.numpy()] = backbone.pooled(batch.inputs).numpy()
    finally:
        backbone.train(training)
    return pooled
