"""Matrices of 0 and 1, images × classes: to rows, and from decided labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.annotations import POSITIVE, Dataset
from tagfill.errors import DatasetError
from tagfill.formats.collecting import Collector
from tagfill.progress import Bar

_IMAGES_AT_ONCE = 4096


def add_matrix(
    collector: Collector, images: Sequence[str], matrix: NDArray[np.generic], absent_means: str, where: object, bar: Bar
) -> None:
    """Add the rows that an N×L matrix of 0 and 1 stands for.

    Args:
        collector: of the dataset; its classes are the columns.
        images: names of the N images.
        matrix: may be a memory map.
        absent_means: whether 0 is `absent` or `unknown`.
        where: the file, for the message.
        bar: told about each image.
    """
    classes = pa.array(collector.classes, pa.string())
    for start in range(0, len(images), _IMAGES_AT_ONCE):
        block = np.asarray(matrix[start : start + _IMAGES_AT_ONCE])
        odd = np.argwhere((block != 0) & (block != 1))
        if len(odd):
            row, column = odd[0].tolist()
            raise DatasetError(
                f"{where}, row {start + row}, column {column}: found {block[row, column]}; 1 is present, "
                "0 is not, and other values are not known here."
            )
        image, label = np.nonzero(block == 1) if absent_means == "unknown" else np.indices(block.shape).reshape(2, -1)
        names = pa.array(images[start : start + len(block)], pa.string())
        present = np.asarray(block[image, label] == 1, dtype=bool)
        collector.add_rows(
            {
                "image": names.take(pa.array(image)),
                "label": classes.take(pa.array(label)),
                "present": pa.array(present),
            }
        )
        bar.advance(len(block))


def part(dataset: Dataset, split: str) -> tuple[list[str], NDArray[np.int8]]:
    """Images of a split and their N×L matrix, 1 where a label is present; both are empty if there is no such split."""
    if split not in dataset.splits:
        return [], np.zeros((0, len(dataset.classes)), dtype=np.int8)
    matrix: NDArray[np.int8] = (dataset.labels(split).dense() == POSITIVE).astype(np.int8)
    return dataset.names(dataset.split(split)), matrix
