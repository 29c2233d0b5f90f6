"""Suggestions from files of predictions: the top K pairs per class, over any number of shards.

`tagfill predict --top-k` writes a few labels per image. With one file for each part of a large dataset, made by
different machines, the files together rarely fit into memory. They are streamed one after the other, and only the best
pairs of each class are kept, so memory grows with classes × K and time with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.curation.suggest import Pairs, TopPairs, pair_table
from tagfill.curation.suggestions import MIN_PROBABILITY, MISSING, Suggestions
from tagfill.dataset import Dataset
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.tables import first_line
from tagfill.errors import TagfillError
from tagfill.labels import UNKNOWN
from tagfill.progress import SILENT, Progress

_COLUMNS = ("image", "label", "probability")
_BATCH_ROWS = 1 << 19


def suggest_from_predictions(
    dataset: Dataset,
    files: Sequence[Path],
    *,
    per_class: int | None = 100,
    missing: int | None = None,
    minimum: float = MIN_PROBABILITY,
    progress: Progress = SILENT,
) -> Suggestions:
    """Suggest the most probable pairs that are not annotated.

    Args:
        dataset: whose images were predicted, by the names that they have in it.
        files: Parquet files of `tagfill predict`; an image is in one of them.
        per_class: maximum number of suggestions per class; None for no such limit.
        missing: maximum number of suggestions; by default as many as `per_class` allows.
        minimum: leave out pairs below this probability.
        progress: receives the number of rows read.

    Returns:
        The suggestions, most probable first; ties are in the order of images and classes.

    Raises:
        TagfillError: if a file is not one of predictions, or is about other images or classes.

    Example:
        >>> found = suggest_from_predictions(data, sorted(Path("predictions").glob("*.parquet")))  # doctest: +SKIP
    """
    if per_class is None and missing is None:
        raise TagfillError("Without a limit, everything would be suggested; give --missing or --per-class.")
    limit = missing if missing is not None else (per_class or 0) * len(dataset.classes)
    top = TopPairs(limit, per_class, lambda pairs: pairs.probability)
    lookups = {
        "image": Lookup(dataset.images["image"]),
        "label": Lookup(pa.array(dataset.classes, pa.string())),
    }
    labels = dataset.labels()
    with progress.bar("reading predictions", None, "rows") as bar:
        for path in files:
            for batch in _stream(path):
                probability = _probabilities(batch, path)
                label = _numbers(batch, "label", lookups["label"], dataset, path)
                chosen = np.flatnonzero((probability >= minimum) & (probability >= top.floor(label)))
                batch = batch.take(pa.array(chosen))
                label, probability = label[chosen], probability[chosen]
                row = _numbers(batch, "image", lookups["image"], dataset, path)
                new = np.flatnonzero(~labels.has_entries(row, label))
                unknown = np.full(len(new), UNKNOWN, dtype=np.int8)
                top.add(Pairs(row[new], label[new], probability[new], probability[new], unknown))
                bar.advance(len(probability))
    origin = {"predictions": [str(path.absolute()) for path in files], "dataset": dataset.name}
    return Suggestions(pair_table(dataset, MISSING, top.top()), origin)


def _stream(path: Path) -> Iterator[pa.RecordBatch]:
    """Stream image, label and probability of a file of predictions."""
    if not path.is_file():
        raise TagfillError(f"There is no file {path}; create it with 'tagfill predict RUN DATASET --out FILE'.")
    try:
        found = pq.read_schema(path).names
        if lacking := [name for name in _COLUMNS if name not in found]:
            raise TagfillError(f"{path} has no column '{lacking[0]}', which a file of predictions has.")
        with pq.ParquetFile(path, read_dictionary=list(_COLUMNS[:2])) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS, columns=list(_COLUMNS))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TagfillError(f"{path} is not a Parquet file of predictions: {first_line(error)[:200]}.") from None


def _probabilities(batch: pa.RecordBatch, path: Path) -> NDArray[np.float64]:
    column = batch["probability"]
    if not pa.types.is_floating(column.type) or column.null_count:
        raise TagfillError(f"{path}: the column probability has cells that are no numbers.")
    probability: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if not ((probability >= 0) & (probability <= 1)).all():
        raise TagfillError(f"{path}: a probability is not between 0 and 1.")
    return probability


def _numbers(batch: pa.RecordBatch, column: str, lookup: Lookup, dataset: Dataset, path: Path) -> NDArray[np.int64]:
    """The rows of images or the numbers of classes; raise if the dataset does not have one."""
    codes = lookup.codes(batch[column])
    if len(unknown := np.flatnonzero(codes < 0)):
        name = batch[column][int(unknown[0])].as_py()
        raise TagfillError(
            f"{path} is about the {column} '{name}', which dataset {dataset.name} does not have; predict the images of "
            "this dataset by naming its folder."
        )
    return codes.astype(np.int64)
