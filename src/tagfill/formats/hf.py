"""Datasets of Hugging Face: photos and labels in Parquet or Arrow files.

    README.md                                 which files belong to which split
    data/train-00000-of-00002.parquet         image {bytes, path}, labels [ClassLabel]
    data/validation-00000-of-00001.parquet

A folder that was downloaded from the hub, one that `Dataset.save_to_disk` wrote, and single files are read without the
package `datasets`; objects of that package, streamed ones too, are read by `from_datasets`. Photos are written as
files, since Tagfill reads images from files.

What Tagfill writes is a folder for `datasets.load_dataset(folder)`. A list of labels cannot say "unknown", so there are
three: `labels` are present, `absent` are verified absent, and `undecided` are those that an annotator could not
decide; all others are unknown. Reading the folder again gives the same three states.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError
from tagfill.formats import dataset_builder
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.hf_columns import STATES, Columns, LabelColumn, features_of, find_columns, schema_with_features
from tagfill.formats.image_files import SPLIT_NAMES, SUFFIXES, split_for_folder
from tagfill.formats.writer import iter_images
from tagfill.images import open_root
from tagfill.images.image_files import read_limited
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "Hugging Face datasets: Parquet and Arrow files with photos and lists of classes"

_BATCH = 64  # rows in memory at once, each with the bytes of a photo
_SHARD_BYTES = 400 << 20
_SIGNATURES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp"}
_HUB_SPLITS = {"val": "validation"}  # what the hub calls a split

Part = tuple[str, Iterable[pa.RecordBatch | pa.Table]]  # a split and its rows


def read(
    source: str | os.PathLike[str],
    *,
    images_to: str | os.PathLike[str],
    image_column: str | None = None,
    label_column: str | None = None,
    absent_means: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read a dataset folder or file of Hugging Face, and write its photos as files.

    Args:
        source: a folder with Parquet files, a folder that `save_to_disk` wrote, or one file.
        images_to: the folder to put photos into, under the names that they have; it becomes the image root.
        image_column: the column of photos; by default the only one that can hold them.
        label_column: the column of present labels; by default `labels`, or else the only one with classes.
        absent_means: what labels that are not listed are, `absent` or `unknown`; not needed if a column `absent` lists
            those that are absent.
        progress: told about each photo.

    Raises:
        DatasetError: a file is damaged, or it is not clear which columns are meant.
    """
    path = Path(source)
    files = list(_find_files(path))
    if not files:
        raise DatasetError(f"{path} has no Parquet or Arrow files; give the folder of a downloaded or saved dataset.")
    parts = [(split, _read_file(file)) for split, file in files]
    schema = _schema_of(files[0][1])
    return _build(
        path.resolve().name,
        parts,
        schema,
        features_of(schema),
        path,
        images_to=Path(images_to),
        image_column=image_column,
        label_column=label_column,
        absent_means=absent_means,
        progress=progress,
    )


def from_datasets(
    data: Any,
    *,
    images_to: str | os.PathLike[str],
    name: str = "huggingface",
    split: str = "train",
    image_column: str | None = None,
    label_column: str | None = None,
    absent_means: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read a `Dataset`, an `IterableDataset` (streamed), or a dictionary of either by split.

    Args:
        data: an object of the package `datasets`.
        images_to: the folder to put photos into, under the names that they have; it becomes the image root.
        name: of the dataset.
        split: of all photos, if `data` is not a dictionary.
        image_column: as in `read`.
        label_column: as in `read`.
        absent_means: as in `read`.
        progress: told about each photo.

    Example:
        >>> import datasets  # doctest: +SKIP
        >>> stream = datasets.load_dataset("owner/photos", streaming=True)  # doctest: +SKIP
        >>> hf.from_datasets(stream, images_to="photos").save("my-data")  # doctest: +SKIP
    """
    by_split = dict(data) if isinstance(data, dict) else {split: data}
    if not by_split:
        raise DatasetError("The dataset has no splits.")
    parts = [(split_for_folder(str(key)), value.with_format("arrow").iter(_BATCH)) for key, value in by_split.items()]
    described = next(iter(by_split.values())).features
    if described is None:
        raise DatasetError(
            "The dataset does not say what its columns are; call its method cast with features that have an Image and "
            "a list of ClassLabel."
        )
    return _build(
        name,
        parts,
        described.arrow_schema,
        described.to_dict(),
        name,
        images_to=Path(images_to),
        image_column=image_column,
        label_column=label_column,
        absent_means=absent_means,
        progress=progress,
    )


def write(
    dataset: Dataset, target: str | os.PathLike[str], *, shard_bytes: int = _SHARD_BYTES, progress: Progress = SILENT
) -> None:
    """Write a folder that `datasets.load_dataset` reads, with the photos in it; locations become labels of their image.

    Args:
        dataset: to be written.
        target: the folder; it must not hold Parquet files yet.
        shard_bytes: a file is closed when it has more bytes of photos than this.
        progress: told about each photo.

    Raises:
        DatasetError: the folder holds files of another dataset.
    """
    folder = Path(target)
    if any((folder / "data").glob("*.parquet")):
        raise DatasetError(f"{folder / 'data'} already holds Parquet files; write to another folder.")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    shards = _Shards(folder / "data", dataset, shard_bytes)
    root = open_root(dataset.root)
    try:
        with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
            for entry in iter_images(dataset, with_rows=False):
                shards.add(entry.split, entry.image, root.read(entry.image), entry.states)
                bar.advance()
        names = shards.close()
    except BaseException:
        shards.discard()
        raise
    with atomic_write(folder / "README.md") as file:
        file.write(_card(dataset, names).encode())


class _Shards:
    """Parquet files of each split, which get their final names once their number is known."""

    def __init__(self, folder: Path, dataset: Dataset, shard_bytes: int) -> None:
        self._folder, self._limit = folder, shard_bytes
        self._schema = schema_with_features(dataset.classes)
        self._codes = {label: code for code, label in enumerate(dataset.classes)}
        self._written: dict[str, list[Path]] = {}
        self._open: dict[str, pq.ParquetWriter] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._bytes: dict[str, int] = {}

    def add(self, split: str, image: str, content: bytes, states: dict[str, bool | None]) -> None:
        row: dict[str, Any] = {"image": {"bytes": content, "path": image}}
        for column, wanted in STATES.items():
            row[column] = [self._codes[label] for label, state in states.items() if state is wanted]
        rows = self._rows.setdefault(split, [])
        rows.append(row)
        self._bytes[split] = self._bytes.get(split, 0) + len(content)
        if len(rows) >= _BATCH:
            self._flush(split)
        if self._bytes[split] > self._limit:
            self._flush(split)
            self._open.pop(split).close()
            self._bytes[split] = 0

    def close(self) -> dict[str, list[str]]:
        """The names of the files of each split."""
        for split in list(self._rows):
            self._flush(split)
        for writer in self._open.values():
            writer.close()
        names: dict[str, list[str]] = {}
        for split, paths in self._written.items():
            for number, path in enumerate(paths):
                final = f"{_HUB_SPLITS.get(split, split)}-{number:05d}-of-{len(paths):05d}.parquet"
                path.rename(self._folder / final)
                names.setdefault(split, []).append(final)
        return names

    def discard(self) -> None:
        """Remove what was written."""
        for writer in self._open.values():
            writer.close()
        for path in (path for paths in self._written.values() for path in paths):
            path.unlink(missing_ok=True)

    def _flush(self, split: str) -> None:
        rows, self._rows[split] = self._rows[split], []
        if not rows:
            return
        if split not in self._open:
            paths = self._written.setdefault(split, [])
            paths.append(self._folder / f".{split}-{len(paths)}.part")
            self._open[split] = pq.ParquetWriter(paths[-1], self._schema, compression="none")  # photos are compressed
        self._open[split].write_table(pa.Table.from_pylist(rows, self._schema))


def _card(dataset: Dataset, names: dict[str, list[str]]) -> str:
    """The README.md of the folder, whose first lines say which files belong to which split."""
    files = "\n".join(
        f"  - split: {_HUB_SPLITS.get(split, split)}\n    path: data/{_HUB_SPLITS.get(split, split)}-*.parquet"
        for split in names
    )
    columns = "\n".join(
        f"| `{column}` | {meaning} |"
        for column, meaning in (
            ("image", "the photo"),
            ("labels", "classes that it shows"),
            ("absent", "classes that it is known not to show"),
            ("undecided", "classes that an annotator looked for and could not decide"),
        )
    )
    counts = "\n".join(f"- {split}: {len(rows):,} photos" for split, rows in dataset.splits.items())
    return (
        "---\ntask_categories:\n- image-classification\ntask_ids:\n- multi-label-image-classification\n"
        f"configs:\n- config_name: default\n  data_files:\n{files}\n---\n\n# {dataset.name}\n\n"
        f"Photos with {len(dataset.classes):,} classes; a class that is in none of the three lists of a photo is "
        f"**unknown**, not absent.\n\n| column | meaning |\n|---|---|\n{columns}\n\n{counts}\n"
    )


def _find_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Splits and files, train first."""
    if path.is_file():
        yield _split_of(PurePosixPath(path.name)), path
        return
    found = [
        (_split_of(PurePosixPath(file.relative_to(path).as_posix())), file)
        for suffix in ("parquet", "arrow")
        for file in sorted(path.rglob(f"*.{suffix}"))
        if not any(part.startswith(".") for part in file.relative_to(path).parts) and not file.name.startswith("cache-")
    ]
    order = {"train": 0, "val": 1, "test": 2}
    yield from sorted(found, key=lambda entry: (order.get(entry[0], 3), entry[0], entry[1]))


def _split_of(path: PurePosixPath) -> str:
    """The split that a path names, as the hub's rules find it.

    >>> _split_of(PurePosixPath("data/validation-00000-of-00002.parquet")), _split_of(PurePosixPath("0000.parquet"))
    ('val', 'train')
    """
    for part in reversed((*path.parts[:-1], path.stem)):
        for word in part.lower().replace("_", "-").replace(".", "-").split("-"):
            if word in SPLIT_NAMES:
                return split_for_folder(word)
    return "train"


def _schema_of(file: Path) -> pa.Schema:
    try:
        if file.suffix == ".parquet":
            return pq.read_schema(file)
        with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
            return reader.schema
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, error) from None


def _read_file(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        if file.suffix == ".parquet":
            with pq.ParquetFile(file) as parquet:
                yield from parquet.iter_batches(_BATCH)
        else:
            with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
                for batch in reader:
                    yield from (batch.slice(start, _BATCH) for start in range(0, batch.num_rows, _BATCH))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: Exception) -> DatasetError:
    reason = " ".join(str(error).split())[:200].rstrip(".")
    return DatasetError(f"{file} cannot be read ({reason}); download or save it again.")


def _build(
    name: str,
    parts: Sequence[Part],
    schema: pa.Schema,
    features: dict[str, Any],
    where: object,
    *,
    images_to: Path,
    image_column: str | None,
    label_column: str | None,
    absent_means: str | None,
    progress: Progress,
) -> Dataset:
    """Write the photos of all parts, and build the dataset from their labels."""
    columns = find_columns(schema, features, where, image=image_column, label=label_column)
    meaning = None if absent_means is None else dataset_builder.check_absent_means(absent_means)
    labels = columns.labels[True]
    if False in columns.labels:
        meaning = "unknown"
    elif meaning is None:
        raise DatasetError(
            f"{where} does not say whether a class that '{labels.name}' does not list is absent or unknown; choose "
            "absent_means='absent' or absent_means='unknown'."
        )
    photos = _Photos(images_to, where)
    found: list[tuple[str, str, dict[bool | None, list[str]]]] = []
    with progress.bar("Writing photos", None, "images") as bar:
        for split, batches in parts:
            for batch in batches:
                states = {state: _names(batch, column, where) for state, column in columns.labels.items()}
                for row, photo in enumerate(batch[columns.image].to_pylist()):
                    image = photos.write(split, photo)
                    found.append((image, split, {state: values[row] for state, values in states.items()}))
                    bar.advance()
    classes = _classes(columns, found)
    if not classes:
        raise DatasetError(f"{where} has no labels in '{labels.name}'.")
    builder = DatasetBuilder(name, images_to, classes, source="huggingface")
    for image, split, its_labels in found:
        builder.add_image(image, split)
        for state, values in its_labels.items():
            for label in dict.fromkeys(values):
                builder.add_row(image, label, state)
        if meaning == "absent":
            builder.mark_rest_absent(image, set(its_labels[True]))
    return builder.build()


def _classes(columns: Columns, found: list[tuple[str, str, dict[bool | None, list[str]]]]) -> list[str]:
    names = columns.labels[True].names
    if names is not None:
        return list(names)
    return sorted({label for *_, states in found for values in states.values() for label in values})


def _names(batch: pa.RecordBatch | pa.Table, column: LabelColumn, where: object) -> list[list[str]]:
    """The names of the classes in each row."""
    rows = []
    for value in batch[column.name].to_pylist():
        values = value if isinstance(value, list) else [] if value is None else [value]
        if column.names is None:
            rows.append([str(one) for one in values if one is not None])
            continue
        codes = [one for one in values if one is not None and one != -1]  # -1 is how `datasets` writes no label
        if wrong := next((code for code in codes if not 0 <= code < len(column.names)), None):
            raise DatasetError(
                f"{where}: '{column.name}' has the class {wrong}, but only 0 to {len(column.names) - 1} have names."
            )
        rows.append([column.names[code] for code in codes])
    return rows


class _Photos:
    """Writes photos below a folder, each under a name of its own."""

    def __init__(self, folder: Path, where: object) -> None:
        self._folder, self._where = folder, where
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def write(self, split: str, photo: Any) -> str:
        """Write a photo and return its path below the folder."""
        number = self._numbers[split] = self._numbers.get(split, -1) + 1
        values: dict[str, Any] = {"bytes": photo} if isinstance(photo, bytes) else photo or {}
        content, path = values.get("bytes"), values.get("path")
        if content is None:
            content = self._read(path, f"photo {number} of {split}")
        ending = next((ending for mark, ending in _SIGNATURES.items() if content.startswith(mark)), None)
        if ending is None:
            raise DatasetError(f"{self._where}: photo {number} of {split} is not a JPEG, PNG or WebP file; convert it.")
        name = self._name(split, path, number, ending)
        self._taken.add(name)
        with atomic_write(self._folder / name, sync=False) as file:
            file.write(content)
        return name

    def _read(self, path: str | None, which: str) -> bytes:
        """The content of a photo of which the table holds only the path."""
        file = Path(path or "")
        if not path or not file.is_file():
            what = f"the file {path}, which does not exist" if path else "neither bytes nor a file"
            raise DatasetError(f"{self._where}: {which} has {what}; save the dataset with its photos embedded.")
        with file.open("rb") as stream:
            return read_limited(stream, path, file.stat().st_size)

    def _name(self, split: str, path: str | None, number: int, ending: str) -> str:
        """The path in the table if it can be used and is not taken, or else a number."""
        given = PurePosixPath(path or "")
        if given.is_absolute():
            given = PurePosixPath(given.name)
        if given.suffix.lower() in SUFFIXES and ".." not in given.parts and "\0" not in str(given):
            for name in (given.as_posix(), f"{split}/{given.as_posix()}"):
                if name not in self._taken:
                    return name
        return f"{split}/{number:08d}{ending}"
