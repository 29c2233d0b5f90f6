"""What a model sees where: class maps and probabilities of a few images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError
from tagfill.probabilities import probabilities
from tagfill.training.trained import Trained


def class_maps(
    trained: Trained, split: str, index: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Class maps before any boost, and probabilities, of some images of a split.

    Args:
        trained: opened with class maps.
        split: of the images.
        index: n positions in it.

    Returns:
        n×L×H×W maps and n×L probabilities, in the order of `index`.

    Raises:
        ImageError: if one of the images cannot be read.
    """
    seen, maps, logits = [], [], []
    for batch, prediction in trained.predict(split, index, maps=True):
        assert prediction.maps is not None
        seen.append(batch.index.numpy(force=True))
        maps.append(prediction.maps.float().numpy(force=True))
        logits.append(prediction.logits.float().numpy(force=True))
    lost = np.setdiff1d(index, np.concatenate(seen))
    if len(lost):
        dataset = trained.dataset
        raise ImageError(dataset.names(dataset.split(split)[lost])[0], "it cannot be read")
    return np.concatenate(maps), probabilities(np.concatenate(logits))
