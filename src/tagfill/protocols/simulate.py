"""What every protocol shares: draw labels, assemble the simulated dataset, and record what was done.

Only training images lose labels. Validation and test images keep all of theirs; the rows of validation images that the
draw would have kept get the flag `observed`, so that a method can also be validated on partial labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.dataset import SCHEMA, Dataset
from tagfill.dataset.identity import RowsHash
from tagfill.dataset.lookup import Lookup
from tagfill.dataset.tables import OBSERVED, RowSpool
from tagfill.errors import DatasetError, TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN, LabelMatrix, in_sorted
from tagfill.protocols.pairs import Pairs, known_pairs
from tagfill.rng import PairNumbers

SECONDS_PER_LABEL = 1.0
_HASHED = ["image", "label", "present", "kind", "x", "y", "w", "h", "seconds"]
_BLOCK_ROWS = 1 << 18

Rule = Callable[[LabelMatrix, PairNumbers], LabelMatrix]
"""Returns the labels that are kept, given all labels and a random number for each pair."""


def simulate(
    data: Dataset, name: str, rule: Rule, *, seed: int, parameters: Mapping[str, Any], complete: bool
) -> Dataset:
    """Apply the rule of a protocol to the training and validation splits, and assemble the simulated dataset.

    Args:
        data: the source.
        name: of the protocol.
        rule: which labels are kept.
        seed: of the draw.
        parameters: to record beside the seed.
        complete: whether the rule requires complete labels.
    """
    check_seed(seed)
    drawn = {}
    for split in drawn_splits(data):
        labels = complete_labels(data, split, name) if complete else data.labels(split)
        drawn[split] = rule(labels, PairNumbers.of(data.names(data.split(split)), data.classes, seed))
    return assemble(data, name, merge_splits(data, drawn), seed=seed, parameters=parameters)


def drawn_splits(data: Dataset) -> list[str]:
    """The training split, which must exist, and the validation split if it exists."""
    data.split("train")
    return [name for name in ("train", "val") if name in data.splits]


def complete_labels(data: Dataset, split: str, name: str) -> LabelMatrix:
    """The labels of a split; raise if some are unknown."""
    labels = data.labels(split)
    if not labels.complete():
        known = int((labels.values != UNKNOWN).sum())
        raise DatasetError(
            f"The {name} protocol draws from complete labels, but in split {split} of {data.name} only "
            f"{known:,} of {len(labels) * labels.width:,} are known; start from a fully labeled dataset."
        )
    return labels


def check_seed(seed: int, most: int | None = None) -> None:
    """Raise if a seed is negative, or larger than `most`."""
    if seed < 0:
        raise TagfillError(f"The seed is {seed}; give 0 or more.")
    if most is not None and seed > most:
        raise TagfillError(f"The seed is {seed}; the published generator accepts at most {most:,}.")


def merge_splits(data: Dataset, drawn: Mapping[str, LabelMatrix]) -> LabelMatrix:
    """Merge the kept labels of some splits into one label matrix over all images of the dataset."""
    image = [data.split(split)[kept.images()] for split, kept in drawn.items()]
    return LabelMatrix.from_entries(
        np.concatenate(image),
        np.concatenate([kept.classes for kept in drawn.values()]),
        np.concatenate([kept.values for kept in drawn.values()]),
        (len(data), len(data.classes)),
    )


def assemble(
    data: Dataset,
    name: str,
    kept: LabelMatrix,
    *,
    seed: int,
    parameters: Mapping[str, Any],
    splits: NDArray[np.object_] | None = None,
    rows: Iterable[pa.RecordBatch] | None = None,
    seconds: float | None = None,
    details: Mapping[str, Any] | None = None,
) -> Dataset:
    """Build the simulated dataset.

    Args:
        data: the source.
        name: of the protocol.
        kept: labels that are kept, over all images of `data`; test images are ignored.
        seed: to record.
        parameters: to record.
        splits: the new split of each image; unchanged by default.
        rows: rows of training images; by default image-level rows of the kept labels.
        seconds: total cost of the kept labels; by default one second each.
        details: more to record about the kept labels.
    """
    if splits is None:
        splits = data.split_of_images()
    training = splits == "train"
    spool, content = RowSpool(), RowsHash()
    for batch in image_label_rows(data, kept, training, name) if rows is None else rows:
        content.update(batch.select(_HASHED))
        spool.add(batch)
    for batch in other_rows(data, kept, splits):
        spool.add(batch)
    return data.with_splits(splits).replace(
        annotations=spool.close(),
        truth=data.folder,
        protocol={
            "name": name,
            "seed": seed,
            "parameters": dict(parameters),
            "source": data.name,
            "images": {split: int((splits == split).sum()) for split in dict.fromkeys(splits.tolist())},
            "kept": {**_counts(kept, training, seconds), **(details or {})},
            "hash": content.hexdigest(),
        },
        folder=None,
    )


def _counts(kept: LabelMatrix, training: NDArray[np.bool_], seconds: float | None) -> dict[str, Any]:
    """Counts of the kept labels of training images."""
    per_image = np.diff(kept.starts)
    mine = np.repeat(training, per_image)
    positives = int(((kept.values == POSITIVE) & mine).sum())
    negatives = int(((kept.values == NEGATIVE) & mine).sum())
    return {
        "positives": positives,
        "negatives": negatives,
        "unknown": int(training.sum()) * kept.width - positives - negatives,
        "images": int(((per_image > 0) & training).sum()),
        "seconds": float(SECONDS_PER_LABEL * (positives + negatives) if seconds is None else seconds),
    }


def image_label_rows(
    data: Dataset, kept: LabelMatrix, training: NDArray[np.bool_], source: str, seconds: float | None = None
) -> Iterator[pa.RecordBatch]:
    """Make an image-level row for each kept label of a training image, in batches.

    Args:
        data: the dataset whose images and classes `kept` is about.
        kept: labels over all images of `data`.
        training: which images are training images.
        source: of the rows.
        seconds: cost of each row.
    """
    for pairs in known_pairs(kept, _BLOCK_ROWS):
        yield rows_of_pairs(data, pairs.take(training[pairs.image]), source, seconds)


def rows_of_pairs(
    data: Dataset, pairs: Pairs, source: str, seconds: float | NDArray[np.floating] | None
) -> pa.RecordBatch:
    """Make an image-level row for each pair, with dictionary-encoded text."""
    columns: dict[str, pa.Array] = {
        **name_columns(data, pairs),
        "present": pa.array(pairs.value == POSITIVE),
        "kind": repeated_text("image", len(pairs)),
        "source": repeated_text(source, len(pairs)),
    }
    if seconds is not None:
        columns["seconds"] = pa.array(np.broadcast_to(np.asarray(seconds, dtype=np.float32), len(pairs)))
    return row_batch(columns, len(pairs))


def name_columns(data: Dataset, pairs: Pairs) -> dict[str, pa.Array]:
    """The columns `image` and `label` of pairs, dictionary-encoded."""
    first = int(pairs.image.min(initial=len(data)))
    names = data.images["image"].slice(first, int(pairs.image.max(initial=first)) - first + 1).combine_chunks()
    return {
        "image": pa.DictionaryArray.from_arrays((pairs.image - first).astype(np.int32), names),
        "label": pa.DictionaryArray.from_arrays(pairs.label.astype(np.int32), pa.array(data.classes, pa.string())),
    }


def repeated_text(text: str, size: int) -> pa.DictionaryArray:
    """The same text `size` times, dictionary-encoded."""
    return pa.DictionaryArray.from_arrays(np.zeros(size, dtype=np.int32), pa.array([text]))


def row_batch(columns: dict[str, pa.Array], size: int) -> pa.RecordBatch:
    """A batch with all columns of the schema; missing ones are null."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(size, field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)


def other_rows(data: Dataset, kept: LabelMatrix, splits: NDArray[np.object_]) -> Iterator[pa.RecordBatch]:
    """The rows of `data` about images outside the training split, in batches.

    Args:
        data: the source.
        kept: labels that the draw keeps, over all images of `data`.
        splits: the split of each image; rows of `val` that state a kept label get the flag `observed`.
    """
    training, validation = splits == "train", splits == "val"
    width = kept.width
    marked = validation[kept.images()] & (kept.values != UNKNOWN)
    wanted = _answer(kept.images()[marked] * width + kept.classes[marked], kept.values[marked])
    images, classes = Lookup(data.images["image"]), Lookup(pa.array(data.classes, pa.string()))
    column = SCHEMA.get_field_index("flags")
    for batch in data.scan():
        image = images.codes(batch["image"]).astype(np.int64)
        others = np.flatnonzero(~training[image])
        if not len(others):
            continue
        rows, image = batch.take(pa.array(others)), image[others]
        key = image * width + classes.codes(rows["label"])
        present = pc.fill_null(rows["present"].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
        chosen = validation[image] & (present != UNKNOWN) & in_sorted(wanted, _answer(key, present))
        if chosen.any():
            rows = rows.set_column(column, rows.schema.field(column), add_flag(rows["flags"], chosen))
        yield rows


def add_flag(flags: pa.ListArray, chosen: NDArray[np.bool_], flag: str = OBSERVED) -> pa.ListArray:
    """Append a flag to the flags of chosen rows.

    >>> add_flag(pa.array([None, ["crowd"], None], pa.list_(pa.string())), np.array([True, True, False])).to_pylist()
    [['observed'], ['crowd', 'observed'], None]
    """
    lengths = pc.fill_null(pc.list_value_length(flags), 0).to_numpy(zero_copy_only=False)
    old = flags.flatten()
    ends = np.cumsum(lengths + chosen)
    take = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    added = np.zeros(len(take), dtype=bool)
    added[ends[chosen] - 1] = True
    take[added] = len(old)
    take[~added] = np.arange(len(old))
    values = pa.concat_arrays([old.cast(pa.string()), pa.array([flag])]).take(pa.array(take))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    missing = flags.is_null().to_numpy(zero_copy_only=False) & ~chosen
    return pa.ListArray.from_arrays(offsets, values, type=flags.type, mask=pa.array(missing))


def _answer(keys: NDArray[np.int64], present: NDArray[np.int8]) -> NDArray[np.int64]:
    """A pair and its value as one number."""
    return keys * 2 + present


def check_proportion(option: str, value: float) -> None:
    """Raise if a value is not in 0…1.

    >>> check_proportion("fraction", 5)
    Traceback (most recent call last):
    tagfill.errors.TagfillError: fraction is 5; give a number from 0 to 1.
    """
    if not 0 <= value <= 1:
        raise TagfillError(f"{option} is {value}; give a number from 0 to 1.")


def summary(data: Dataset) -> dict[str, Any]:
    """The record of a simulated dataset, with shares added.

    Args:
        data: the result of a protocol, in memory or opened from its folder.

    Returns:
        Name, seed, parameters, source, hash, the numbers of images, and under `kept` counts of the kept labels.

    Example:
        >>> from tagfill.protocols import summary
        >>> summary(part)["kept"]["positives"]  # doctest: +SKIP
        600
    """
    if data.protocol is None or "kept" not in data.protocol:
        raise DatasetError(f"{data.name} was not simulated; it has no protocol in its dataset.yaml.")
    kept = dict(data.protocol["kept"])
    labels, images = kept["positives"] + kept["negatives"], data.protocol["images"]["train"]
    kept["share"] = labels / max(labels + kept["unknown"], 1)
    kept["positives_per_image"] = kept["positives"] / max(images, 1)
    return {**data.protocol, "kept": kept}


def describe(data: Dataset) -> str:
    """The summary as a few lines of text."""
    facts = summary(data)
    kept, images = facts["kept"], facts["images"]
    options = ", ".join(f"{name}={value}" for name, value in {**facts["parameters"], "seed": facts["seed"]}.items())
    lines = [
        f"{facts['name']} ({options}) of {facts['source']}",
        "images: " + ", ".join(f"{name} {count:,}" for name, count in images.items()),
        f"kept for training: {kept['positives']:,} positives, {kept['negatives']:,} negatives; "
        f"{kept['unknown']:,} unknown ({100 * kept['share']:.3g} % known)",
        f"training images with a label: {kept['images']:,} of {images['train']:,}",
        f"annotation time: {kept['seconds']:,.0f} s",
    ]
    return "\n".join(lines)
