"""Import scores of any tagger from a table, and find out what they mean.

A *long* table has one row per score, with the columns image, label and score; a *wide* table has one row per image and
one column per class. Both may be CSV or Parquet files or data frames. Empty cells and NaN are missing scores.

The scale of the scores decides how they are used later. If it is not given, it is found:

    any score outside −1…1                                  logits
    any negative score within −1…1                          cosines
    none negative, and sum 1 over the classes of an image   softmax
    none negative, and spread over most of 0…1              probabilities
    none negative, but all close together                   refused: probabilities and cosines look alike
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, one_of, unknown_name
from tagfill.evidence.scores import SCALES, Evidence, ScoreMatrix, check_name, locate, now

if TYPE_CHECKING:
    import pandas

AUTO = "auto"
_SPREAD = 0.5  # between the 1 % and 99 % quantiles of probabilities; cosines of CLIP span about 0.2
_SUM_ERROR = 0.01  # of the probabilities of an image that sum to one
_BATCH = 1 << 18
_LISTED = 3  # names that an error lists


@dataclass(frozen=True)
class ImportResult:
    """What was imported.

    Attributes:
        evidence: the scores, saved beside the dataset.
        layout: `long` or `wide`.
        scale_found: whether the scale was found, and not given.
        skipped_images: images of the table that the dataset does not have.
        skipped_labels: labels of the table that the dataset does not have.
    """

    evidence: Evidence
    layout: str
    scale_found: bool
    skipped_images: int
    skipped_labels: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        scores = self.evidence.scores
        images = int((np.diff(scores.starts) > 0).sum())
        return {
            "name": self.evidence.name,
            "scale": self.evidence.scale,
            "scale_found": self.scale_found,
            "layout": self.layout,
            "source": self.evidence.source,
            "time": self.evidence.time.isoformat(),
            "scores": len(self.evidence),
            "images": images,
            "images_without_scores": len(scores) - images,
            "classes": len(np.unique(scores.classes)),
            "skipped_images": self.skipped_images,
            "skipped_labels": list(self.skipped_labels),
        }


def import_scores(
    source: str | os.PathLike[str] | pa.Table | pandas.DataFrame,
    dataset: Dataset | str | os.PathLike[str],
    *,
    name: str,
    scale: str = AUTO,
    column: str | None = None,
    image_column: str = "image",
    label_column: str = "label",
    class_map: Mapping[str, str] | None = None,
    skip_unknown: bool = False,
    origin: str | None = None,
    force: bool = False,
) -> ImportResult:
    """Import scores from a table and store them beside a dataset.

    Args:
        source: a .csv or .parquet file, a data frame, or an Arrow table.
        dataset: the dataset or its folder; it must be on disk.
        name: of the evidence.
        scale: `logits`, `probabilities`, `softmax`, `cosines`, or `auto` to find it.
        column: with the scores, in a long table; by default `score`.
        image_column: with the names of images.
        label_column: with the names of classes, in a long table; a table without it is wide.
        class_map: name of a class in the table → name in the dataset. Of several scores that end at the same pair, the
            largest counts.
        skip_unknown: leave out images and labels that the dataset does not have, which are an error otherwise.
        origin: description of the source to store; by default the name of the file.
        force: replace evidence of the same name.

    Raises:
        TagfillError: if the table has unknown images or labels, scores that are not finite, or the same pair twice.

    Example:
        >>> from tagfill.evidence import import_scores
        >>> import_scores("clip.parquet", "photos", name="clip").evidence  # doctest: +SKIP
        <evidence clip: 114,340 cosines of 5,717 images, from clip.parquet>
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    check_name(name)
    one_of("scale", scale, (AUTO, *SCALES))
    table = _Source(source, image_column, label_column, column, dict(class_map or {}), data, skip_unknown)
    keys, values = table.read()
    if not len(keys):
        raise TagfillError(f"{table.name} has no score of an image and a class of dataset {data.name}.")
    matrix = ScoreMatrix.from_keys(keys, values, (len(data), len(data.classes)))
    found = find_scale(matrix, table.name) if scale == AUTO else scale
    _check_range(matrix, found, data, table.name)
    evidence = Evidence(name, found, origin or table.origin, now(), matrix)
    evidence.save(data, force=force)
    layout = "long" if table.long else "wide"
    return ImportResult(evidence, layout, scale == AUTO, len(table.skipped_images), tuple(sorted(table.skipped_labels)))


def find_scale(scores: ScoreMatrix, where: str = "The table") -> str:
    """The scale of scores by their values, see the module's description.

    >>> find_scale(ScoreMatrix.from_dense(np.array([[3.5, -8.0]])))
    'logits'
    >>> find_scale(ScoreMatrix.from_dense(np.array([[0.9, 0.1], [0.3, 0.7]])))
    'softmax'
    """
    values = scores.values
    low, high = float(values.min()), float(values.max())
    if low < -1 or high > 1:
        return "logits"
    if low < 0:
        return "cosines"
    complete = np.diff(scores.starts) == scores.width
    sums = np.add.reduceat(np.append(values, 0.0).astype(np.float64), scores.starts[:-1])[complete]
    if scores.width > 1 and len(sums) and bool((np.abs(sums - 1) < _SUM_ERROR).all()):
        return "softmax"
    lowest, highest = np.quantile(values, (0.01, 0.99))
    if highest - lowest > _SPREAD:
        return "probabilities"
    raise TagfillError(
        f"The scores of {where} lie between {low:.3g} and {high:.3g}: they could be probabilities or cosines; say "
        "which with scale='probabilities' or scale='cosines'."
    )


def read_class_map(texts: list[str]) -> dict[str, str]:
    """A class map from `THEIRS=OURS` texts, or from CSV files with these two columns.

    >>> read_class_map(["motor bike=motorbike"])
    {'motor bike': 'motorbike'}
    """
    found: dict[str, str] = {}
    for text in texts:
        if "=" in text:
            theirs, _, ours = text.partition("=")
            pairs = [(theirs.strip(), ours.strip())]
        else:
            try:
                with Path(text).open(encoding="utf-8-sig", newline="") as file:
                    lines = [line for line in csv.reader(file) if line]
            except (OSError, UnicodeDecodeError):
                raise TagfillError(f"'{text}' is neither THEIRS=OURS nor a CSV file with two columns.") from None
            if wrong := [line for line in lines if len(line) != 2]:
                raise TagfillError(f"{text} needs two columns, their class and ours, but a line is {wrong[0]}.")
            pairs = [(theirs, ours) for theirs, ours in lines]
        for theirs, ours in pairs:
            if found.setdefault(theirs, ours) != ours:
                raise TagfillError(f"The class '{theirs}' is mapped to '{found[theirs]}' and to '{ours}'; choose one.")
    return found


def _check_range(scores: ScoreMatrix, scale: str, data: Dataset, where: str) -> None:
    low, high = {"probabilities": (0, 1), "softmax": (0, 1), "cosines": (-1, 1)}.get(scale, (-np.inf, np.inf))
    outside = np.flatnonzero((scores.values < low - 1e-6) | (scores.values > high + 1e-6))
    if len(outside):
        at = int(outside[0])
        image = int(np.searchsorted(scores.starts, at, "right") - 1)
        pair = f"'{data.names(np.array([image]))[0]}' and '{data.classes[scores.classes[at]]}'"
        raise TagfillError(
            f"The score of {pair} in {where} is {scores.values[at]:.4g}, but {scale} are between {low} and {high}; "
            "choose another scale."
        )


class _Source:
    """A table of scores, read in batches.

    Attributes:
        name: for errors.
        origin: to be stored.
        long: whether it has one row per score.
        skipped_images: names that the dataset does not have.
        skipped_labels: the same of labels.
    """

    def __init__(
        self,
        source: Any,
        image_column: str,
        label_column: str,
        column: str | None,
        class_map: dict[str, str],
        data: Dataset,
        skip_unknown: bool,
    ) -> None:
        self._source, self._data, self._map, self._skip = source, data, class_map, skip_unknown
        self._image, self._label, self._score = image_column, label_column, column or "score"
        self.skipped_images: set[str] = set()
        self.skipped_labels: set[str] = set()
        for ours in class_map.values():
            if ours not in data.classes:
                raise unknown_name("class", ours, data.classes, of=f"dataset {data.name}")
        self._path = Path(source) if isinstance(source, str | os.PathLike) else None
        self.name = "the table" if self._path is None else str(self._path)
        self.origin = "a table" if self._path is None else self._path.name
        if self._path is None and not isinstance(source, pa.Table):
            self._source = pa.Table.from_pandas(source, preserve_index=False)
        columns = self._columns()
        if repeated := sorted({column for column in columns if columns.count(column) > 1}):
            raise TagfillError(f"{self.name} has two columns '{repeated[0]}'; drop one of them.")
        if self._image not in columns:
            raise unknown_name("column", self._image, columns, of=self.name)
        self.long = self._label in columns and self._label not in data.classes
        if self.long and self._score not in columns:
            numbers = ", ".join(name for name in columns if name not in (self._image, self._label))
            raise TagfillError(
                f"{self.name} has no column '{self._score}'; name the column of the scores with --column, one of: "
                f"{numbers or 'none'}."
            )
        if not self.long and column is not None:
            raise TagfillError(f"{self.name} has no column '{self._label}', so --column has no meaning; leave it out.")
        self._wide = [name for name in columns if name != self._image]
        if not self.long and not self._wide:
            raise TagfillError(f"{self.name} has no column besides '{self._image}'; scores are missing.")

    def read(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ascending keys image·L + class, and the scores."""
        width = len(self._data.classes)
        keys, values, labels = [np.empty(0, np.int64)], [np.empty(0, np.float32)], [np.empty(0, np.int32)]
        theirs: dict[str, int] = {}  # so that two of their classes may end at one of ours, but none twice
        first = 0
        for batch in self._long_batches():
            image, label, score = locate(batch, self._data)
            self._check_names(batch, image, label, first)
            score = np.asarray(score, dtype=np.float64)
            if (bad := np.flatnonzero(np.isinf(score))).size:
                raise TagfillError(f"{self.name}, row {first + int(bad[0])}: a score is infinite; remove it or fix it.")
            kept = (image >= 0) & (label >= 0) & ~np.isnan(score)
            keys.append(image[kept] * width + label[kept])
            values.append(score[kept].astype(np.float32))
            names = batch["theirs"]
            codes = np.array([theirs.setdefault(text, len(theirs)) for text in names.dictionary.to_pylist()], np.int32)
            labels.append(codes[names.indices.to_numpy()][kept])
            first += len(batch)
        key, value, code = np.concatenate(keys), np.concatenate(values), np.concatenate(labels)
        order = np.lexsort((-value, key))
        key, value, code = key[order], value[order], code[order]
        repeated = np.flatnonzero(key[1:] == key[:-1]) + 1
        same = repeated[code[repeated] == code[repeated - 1]]
        if len(same):
            row, number = divmod(int(key[same[0]]), width)
            raise TagfillError(
                f"{self.name} scores image '{self._data.names(np.array([row]))[0]}' and label "
                f"'{self._data.classes[number]}' twice; keep one of the rows."
            )
        keep = np.ones(len(key), dtype=bool)
        keep[repeated] = False
        return key[keep], value[keep]

    def _check_names(
        self, batch: pa.RecordBatch, image: NDArray[np.int64], label: NDArray[np.int64], first: int
    ) -> None:
        """Raise, or remember, if the dataset does not have an image or a label."""
        for column, found, seen in (
            ("image", image, self.skipped_images),
            ("theirs", label, self.skipped_labels),
        ):
            unknown = np.flatnonzero(found < 0)
            if not len(unknown):
                continue
            names = batch[column]
            missing = pc.unique(names.dictionary.take(names.indices.take(pa.array(unknown)))).to_pylist()
            what = "image" if column == "image" else "label"
            if not self._skip and what == "label":
                raise TagfillError(
                    f"{self.name}: the label '{missing[0]}' is no class of dataset {self._data.name}; map it with "
                    f"--map '{missing[0]}=CLASS', or give --skip-unknown to leave such labels out."
                )
            if not self._skip:
                shown = ", ".join(f"'{name}'" for name in missing[:_LISTED])
                raise TagfillError(
                    f"{self.name}, row {first + int(unknown[0])}: dataset {self._data.name} has no image {shown}; "
                    f"its names look like '{next(iter(self._data.names()), '')}'; give --skip-unknown to leave such "
                    "images out."
                )
            seen.update(missing)

    def _long_batches(self) -> Iterator[pa.RecordBatch]:
        """The columns image, label (of the dataset), theirs (as in the table) and score."""
        for batch in self._batches():
            images = self._text(batch, self._image)
            if self.long:
                theirs = self._text(batch, self._label)
                yield self._scored(images, theirs, self._numbers(batch, self._score))
                continue
            for name in self._wide:
                position = pa.array(np.zeros(len(batch), np.int32))
                theirs = pa.DictionaryArray.from_arrays(position, pa.array([name], pa.string()))
                if self._map.get(name, name) not in self._data.classes:
                    yield self._scored(images.slice(0, 1), theirs.slice(0, 1), pa.array([np.nan]))
                    continue
                yield self._scored(images, theirs, self._numbers(batch, name))

    def _scored(self, images: pa.DictionaryArray, theirs: pa.DictionaryArray, scores: pa.Array) -> pa.RecordBatch:
        ours = [self._map.get(name, name) for name in theirs.dictionary.to_pylist()]
        labels = pa.DictionaryArray.from_arrays(theirs.indices, pa.array(ours, pa.string()))
        return pa.RecordBatch.from_arrays([images, labels, theirs, scores], ["image", "label", "theirs", "score"])

    def _text(self, batch: pa.RecordBatch, column: str) -> pa.DictionaryArray:
        values = batch[column]
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise TagfillError(f"{self.name}: column '{column}' has type {kind}, but names are text; convert it.")
        if values.null_count:
            raise TagfillError(f"{self.name}: the column '{column}' has empty cells; fill them or remove these rows.")
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(pa.int32()), coded.dictionary.cast(pa.string()))

    def _numbers(self, batch: pa.RecordBatch, column: str) -> pa.Array:
        values = batch[column]
        if pa.types.is_null(values.type):
            return pa.array(np.full(len(values), np.nan))
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            raise TagfillError(f"{self.name}: column '{column}' has type {values.type}, but scores are numbers.")
        return values.cast(pa.float64()).fill_null(np.nan)

    def _columns(self) -> list[str]:
        if self._path is None:
            return list(self._source.column_names)
        if not self._path.is_file():
            raise TagfillError(f"There is no file {self._path}.")
        if self._path.suffix.lower() not in (".csv", ".parquet"):
            raise TagfillError(f"Scores are a .csv or .parquet file; {self._path} is neither.")
        try:
            if self._path.suffix.lower() == ".parquet":
                return list(pq.read_schema(self._path).names)
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                return next(csv.reader(file), [])
        except (pa.ArrowException, OSError, ValueError, csv.Error) as error:
            raise self._damaged(error) from None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        wanted = [self._image, self._label, self._score] if self.long else [self._image, *self._wide]
        if self._path is None:
            yield from self._source.select(wanted).combine_chunks().to_batches(max_chunksize=_BATCH)
            return
        try:
            if self._path.suffix.lower() == ".parquet":
                with pq.ParquetFile(self._path) as file:
                    yield from file.iter_batches(batch_size=_BATCH, columns=wanted)
                return
            text = {self._image: pa.string(), **({self._label: pa.string()} if self.long else {})}
            numbers = dict.fromkeys([self._score] if self.long else self._classes_of_columns(), pa.float64())
            options = pacsv.ConvertOptions(
                column_types={**text, **numbers}, include_columns=wanted, strings_can_be_null=False
            )
            with pacsv.open_csv(self._path, convert_options=options) as reader:
                yield from reader
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None

    def _classes_of_columns(self) -> list[str]:
        """The columns of a wide table that hold scores; others may hold anything if they are skipped."""
        return [name for name in self._wide if self._map.get(name, name) in self._data.classes]

    def _damaged(self, error: Exception) -> TagfillError:
        return TagfillError(f"{self.name} is damaged or no table of scores: {str(error).splitlines()[0].rstrip('.')}.")
