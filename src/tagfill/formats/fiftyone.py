"""FiftyOne: its dataset folders (`FiftyOneDataset`) are read and written, and live datasets where it is installed.

| in FiftyOne | here |
|---|---|
| sample | image; width and height from its metadata |
| `split` of a sample, or its tag `train`, `val`, `validation` or `test` | split |
| Classification, Classifications | present labels; the attribute `state` says `present`, `absent` or `unknown` |
| Detection, Detections | boxes |
| empty Classifications or Detections | looked and found nothing |
| no value in the field | not annotated |

`unknown` says that an annotator could not tell. A label that is not listed is unknown if labels have states; otherwise
the reader asks for `absent_means`. A label with a confidence below 1 is the guess of a model, so the reader asks for
the `minimum` from which it counts as present.

`write` writes `metadata.json` and `samples.json`, which `fo.Dataset.from_dir` reads. Identities are hashes of names, so
that the same dataset is written as the same bytes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root, local_root
from tagfill.errors import DatasetError, TagfillError
from tagfill.formats import image_files
from tagfill.formats.dataset_builder import DatasetBuilder, name_some, resolve_absent_means
from tagfill.formats.fiftyone_documents import STATES, classifications, dataset_document, sample_document
from tagfill.formats.image_files import CopyMode
from tagfill.formats.json_stream import JsonFile, check_structure, short_json
from tagfill.formats.writer import iter_images
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "FiftyOne: dataset folders with classifications or boxes, and live datasets"

FIELD, PREDICTIONS = "ground_truth", "predictions"  # names of fields, as in FiftyOne's own datasets

_LISTS = {"Classifications": "classifications", "Detections": "detections"}
_SINGLE = {"Classification", "Detection"}


class SampleCollection(Protocol):
    """What is used of a live dataset or view of FiftyOne."""

    name: str
    info: Mapping[str, Any]
    classes: Mapping[str, Any]
    default_classes: Sequence[str]

    def iter_samples(self) -> Iterable[Any]:
        """Iterate over its samples."""


def read(
    source: str | os.PathLike[str] | SampleCollection,
    *,
    field: str | None = None,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    minimum: float | None = None,
    classes: Sequence[str] | None = None,
    state_attribute: str = "state",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a dataset folder, or a live dataset or view.

    Args:
        source: the folder that `dataset.export(…, dataset_type=fo.types.FiftyOneDataset)` wrote, or a `fo.Dataset` or
            view of it.
        field: with the labels; by default `ground_truth`, or the only one.
        root: where the images are; by default the folder for relative paths, else the folder that holds all images.
        absent_means: what classes are that a field does not list, `unknown` or `absent`; required unless labels have
            states.
        minimum: confidence from which a label counts as present; others are left out. Required if labels have
            confidences below 1.
        classes: their names in order; by default those of the dataset, then others that occur, sorted.
        state_attribute: name of the attribute with the state of a label.
        split: of samples that have none.
        progress: told about the bytes read.

    Raises:
        DatasetError: an option is missing, or the folder is damaged or contradicts itself.
    """
    samples = _open(source)
    where = samples.title
    fields: dict[str, _Field] = {}
    images: list[tuple[str, str, tuple[int | None, int | None]]] = []
    skipped: Counter[str] = Counter()
    for sample in samples.read(progress):
        if sample.kind != "image":
            skipped[sample.kind] += 1
            continue
        images.append((sample.path, sample.split(split), sample.size()))
        for name, value in sample.content.items():
            if isinstance(value, dict) and not isinstance(value.get("_cls", ""), str):
                raise DatasetError(
                    f"{sample.where}: field '{name}' is of class {short_json(value['_cls'])}; export again."
                )
            if _kind_of(value) is not None:
                fields.setdefault(name, _Field()).count(sample.labels(name, state_attribute))
    for kind, count in sorted(skipped.items()):
        progress.say(f"{where}: {count:,} samples of media type {kind[:60]} were left out; only images are read.")
    chosen = _choose_field(fields, field, where)
    found = fields.get(chosen, _Field())
    if minimum is None and found.lowest < 1:
        raise DatasetError(
            f"{where}: labels of field '{chosen}' have confidences down to {found.lowest:g}, so they are guesses; say "
            "with minimum= from which confidence they count as present, or name another field with field=."
        )
    names = _class_names(samples.listed_classes(chosen), found.labels, classes, where)
    if absent_means is not None or not found.has_states:
        counts = {"images": len(images), "classes": len(names), "present": found.present}
        absent_means = resolve_absent_means(absent_means, where, **counts)
    place, prefix = _find_root(samples, [image[0] for image in images], root)
    builder = DatasetBuilder(samples.name, place, names, source="fiftyone")
    named = {path: _relative(path, prefix, where) for path, *_ in images}
    for path, part, size in images:
        builder.add_image(named[path], part, *size)
    for sample in samples.read(progress):
        if sample.kind == "image" and sample.content.get(chosen) is not None:
            _add_rows(builder, sample, named, chosen, state_attribute, minimum, exhaustive=absent_means == "absent")
    return builder.build()


@dataclass(frozen=True)
class _Label:
    """A label of a sample: its class, state, confidence, and columns of its location."""

    name: str
    present: bool | None
    confidence: float | None
    has_state: bool
    columns: dict[str, Any]


@dataclass
class _Field:
    """What a field with labels holds."""

    labels: set[str] = field(default_factory=set)
    present: int = 0
    has_states: bool = False
    lowest: float = 1.0

    def count(self, labels: list[_Label]) -> None:
        self.labels |= {label.name for label in labels}
        self.present += len({label.name for label in labels if label.present})
        self.has_states |= any(label.has_state for label in labels)
        self.lowest = min([self.lowest, *(label.confidence for label in labels if label.confidence is not None)])


@dataclass(frozen=True)
class _Sample:
    """A sample as FiftyOne writes it."""

    content: dict[str, Any]
    where: str

    @property
    def kind(self) -> str:
        kind = self.content.get("_media_type", "image")
        if not isinstance(kind, str):
            raise DatasetError(f"{self.where} has the media type {short_json(kind)}; export the dataset again.")
        return kind

    @property
    def path(self) -> str:
        path = self.content.get("filepath")
        if not isinstance(path, str) or not path:
            raise DatasetError(f"{self.where} has no 'filepath' but {short_json(path)}; export the dataset again.")
        return path

    def split(self, default: str) -> str:
        given = self.content.get("split")
        if given is not None and (not isinstance(given, str) or not given):
            raise DatasetError(f"{self.where} has a split of {short_json(given)}; the name of a split is expected.")
        if given is not None:
            return str(given)
        tags = [] if self.content.get("tags") is None else self.content["tags"]
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise DatasetError(f"{self.where} has tags of {short_json(tags)}; a list of names is expected.")
        found = {image_files.split_for_folder(tag) for tag in tags if tag.lower() in image_files.SPLIT_NAMES}
        if len(found) > 1:
            raise DatasetError(f"{self.where} is tagged {' and '.join(sorted(found))}; an image belongs to one split.")
        return found.pop() if found else default

    def size(self) -> tuple[int | None, int | None]:
        metadata = {} if self.content.get("metadata") is None else self.content["metadata"]
        if not isinstance(metadata, dict):
            raise DatasetError(f"{self.where} has metadata of {short_json(metadata)}; an object is expected.")
        sides = metadata.get("width"), metadata.get("height")
        if sides == (None, None):
            return None, None
        width, height = (side if type(side) is int and 0 < side < 2**31 else 0 for side in sides)
        if not (width and height):
            raise DatasetError(f"{self.where} has the size {short_json(sides)}; width and height are expected.")
        return width, height

    def labels(self, name: str, state_attribute: str) -> list[_Label]:
        """The labels of a field; none if it has no value."""
        value = self.content.get(name)
        if value is None:
            return []
        kind = _kind_of(value)
        if kind is None:
            raise DatasetError(
                f"{self.where}: field '{name}' is {short_json(value)}; classifications or detections are expected."
            )
        entries = [value] if kind in _SINGLE else value.get(_LISTS[kind])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise DatasetError(
                f"{self.where}: field '{name}' holds {short_json(entries)}; a list of labels is expected."
            )
        return [self._label(entry, kind, name, state_attribute) for entry in entries]

    def _label(self, entry: dict[str, Any], kind: str, name: str, state_attribute: str) -> _Label:
        label, confidence, state = entry.get("label"), entry.get("confidence"), entry.get(state_attribute)
        where = f"{self.where}: a label of field '{name}'"
        if not isinstance(label, str) or not label:
            raise DatasetError(f"{where} has the name {short_json(label)}; the name of a class is expected.")
        if confidence is not None and not (_is_number(confidence) and 0 <= confidence <= 1):
            raise DatasetError(f"{where} has a confidence of {short_json(confidence)}; 0 to 1 is expected.")
        if state is not None and (not isinstance(state, str) or state not in STATES):
            raise DatasetError(
                f"{where} has the {state_attribute} {short_json(state)}; {', '.join(STATES)} are expected, or name "
                "another attribute with state_attribute=."
            )
        present = True if state is None else STATES[state]
        columns = _box(entry.get("bounding_box"), where) if kind.startswith("Detection") and present else {}
        return _Label(label, present, confidence, state is not None, columns)


def _box(sides: Any, where: str) -> dict[str, Any]:
    """The columns of a box: FiftyOne has left, top, width and height relative to the image."""
    if not isinstance(sides, list) or len(sides) != 4 or not all(_is_number(side) for side in sides):
        raise DatasetError(
            f"{where} has a bounding_box of {short_json(sides)}; left, top, width and height are expected."
        )
    left, top, width, height = sides
    return {"kind": "box", "x": left + width / 2, "y": top + height / 2, "w": width, "h": height}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def _kind_of(value: Any) -> str | None:
    """The class of a value, if it holds labels that can be read."""
    kind = value.get("_cls") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and (kind in _LISTS or kind in _SINGLE) else None


class _Samples:
    """The samples of a folder or a live dataset, which can be read several times."""

    def __init__(self, title: str, name: str, metadata: Mapping[str, Any], folder: Path | None) -> None:
        self.title, self.name, self.metadata, self.folder = title, name, metadata, folder

    def read(self, progress: Progress) -> Iterator[_Sample]:
        for number, content in enumerate(self.contents(progress)):
            yield _Sample(content, f"{self.title}, sample {number}")

    def contents(self, progress: Progress) -> Iterator[dict[str, Any]]:
        assert self.folder is not None
        if (path := self.folder / "samples.json").is_file():
            yield from JsonFile.open(path).items("samples", f"Reading {path.name}", progress)
            return
        paths = sorted((self.folder / "samples").glob("*.json"))
        with progress.bar("Reading samples", len(paths), "samples") as bar:
            for path in paths:
                yield _read_object(path)
                bar.advance()

    def listed_classes(self, field: str) -> list[str]:
        """The classes that the dataset lists for a field, or for all."""
        classes = self.metadata.get("classes")
        listed = classes.get(field) if isinstance(classes, Mapping) else classes
        for found in (listed, self.metadata.get("default_classes")):
            if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
                raise DatasetError(f"{self.title} lists {short_json(found)} as classes; a list of names is expected.")
        return listed or self.metadata.get("default_classes") or []

    @property
    def written_root(self) -> str | None:
        """The image root of the dataset that `write` wrote, which FiftyOne keeps."""
        info = self.metadata.get("info")
        ours = info.get("tagfill") if isinstance(info, Mapping) else None
        root = ours.get("root") if isinstance(ours, Mapping) else None
        return root if isinstance(root, str) else None


class _LiveSamples(_Samples):
    """The samples of a dataset or view in FiftyOne's database."""

    def __init__(self, collection: SampleCollection) -> None:
        metadata = {
            "classes": dict(collection.classes),
            "default_classes": list(collection.default_classes),
            "info": dict(collection.info),
        }
        name = str(getattr(collection, "dataset_name", None) or collection.name)
        super().__init__(f"FiftyOne's dataset {name}", name, metadata, None)
        self._collection = collection

    def contents(self, progress: Progress) -> Iterator[dict[str, Any]]:
        for sample in self._collection.iter_samples():
            yield sample.to_dict(include_private=True)


def _open(source: str | os.PathLike[str] | SampleCollection) -> _Samples:
    if not isinstance(source, str | os.PathLike):
        return _LiveSamples(source)
    folder = Path(source)
    path = folder / "metadata.json"
    if not path.is_file() or not ((folder / "samples.json").is_file() or (folder / "samples").is_dir()):
        raise DatasetError(
            f"{folder} has no metadata.json and samples.json; export the dataset with "
            "dataset_type=fo.types.FiftyOneDataset."
        )
    metadata = _read_object(path)
    name = metadata.get("name", folder.name)
    if not isinstance(name, str) or not name:
        raise DatasetError(f"{path} has the name {short_json(name)}; export the dataset again.")
    return _Samples(str(folder), name, metadata, folder)


def _read_object(path: Path) -> dict[str, Any]:
    check_structure(path)
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise DatasetError(f"{path} is not an object but {short_json(found)}; export the dataset again.")
    return found


def _choose_field(fields: Mapping[str, _Field], wanted: str | None, where: str) -> str:
    if wanted is not None:
        if wanted not in fields:
            listed = f"it has {name_some(sorted(fields))}" if fields else "no field has any"
            raise DatasetError(f"{where} has no labels in field '{wanted}'; {listed}.")
        return wanted
    if FIELD in fields or not fields:
        return FIELD
    if len(fields) > 1:
        raise DatasetError(
            f"{where} has labels in several fields, {name_some(sorted(fields))}; choose one with field=."
        )
    return next(iter(fields))


def _class_names(listed: list[str], used: set[str], given: Sequence[str] | None, where: str) -> tuple[str, ...]:
    if given is None:
        known = dict.fromkeys(listed)
        return (*known, *sorted(used - set(known)))
    if unlisted := sorted(used - set(given)):
        raise DatasetError(f"{where} uses label '{unlisted[0]}', which is not among the classes given; add it to them.")
    return tuple(given)


def _find_root(samples: _Samples, paths: list[str], root: str | os.PathLike[str] | None) -> tuple[Path | str, str]:
    """The image root, and what to remove from the beginning of each path."""
    if root is not None:
        found = image_root(root)
        absolute = found if isinstance(found, str) else str(found.absolute())
        return found, absolute.rstrip("/") + "/"
    if not any(map(os.path.isabs, paths)):
        return samples.folder or Path(), ""
    written = samples.written_root
    if written is not None and all(path.startswith(written.rstrip("/") + "/") for path in paths):
        return Path(written), written.rstrip("/") + "/"
    try:
        common = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:
        raise DatasetError(
            f"{samples.title} has images with absolute and with relative paths; name their folder with root=."
        ) from None
    return Path(common), common.rstrip("/") + "/"


def _relative(path: str, prefix: str, where: str) -> str:
    name = path.removeprefix(prefix)
    image_files.check_image_path(name, where)
    return name


def _add_rows(
    builder: DatasetBuilder,
    sample: _Sample,
    named: Mapping[str, str],
    field: str,
    state_attribute: str,
    minimum: float | None,
    *,
    exhaustive: bool,
) -> None:
    image, mentioned = named[sample.path], set()
    for label in sample.labels(field, state_attribute):
        mentioned.add(label.name)
        if minimum is None or label.confidence is None or label.confidence >= minimum:
            builder.add_row(image, label.name, label.present, **label.columns)
    if exhaustive:
        builder.mark_rest_absent(image, mentioned)


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    field: str = FIELD,
    predictions: str | os.PathLike[str] | None = None,
    minimum: float = 0.1,
    images: CopyMode = "none",
    progress: Progress = SILENT,
) -> None:
    """Write a folder that `fo.Dataset.from_dir(folder, fo.types.FiftyOneDataset)` reads.

    Args:
        dataset: to be written.
        target: the folder.
        field: for the known labels.
        predictions: Parquet file of `tagfill predict`; its labels become the field `predictions`, with confidences.
        minimum: probability from which a prediction is written; those that are present always are.
        images: `copy` them into the folder, `link` to them, or `none` to refer to where they are.
        progress: told about each image.

    Raises:
        DatasetError: the images are not on this machine, or the predictions cannot be read.
    """
    folder = Path(target)
    root = local_root(dataset.root, "FiftyOne").absolute()
    copier = image_files.ImageCopier(root, images)
    guesses = None if predictions is None else _read_predictions(Path(predictions), minimum)
    with (
        atomic_write(folder / "samples.json") as file,
        progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar,
    ):
        file.write(b'{"samples": [')
        for number, entry in enumerate(iter_images(dataset, with_rows=False)):
            path = str(root / entry.image) if images == "none" else f"data/{entry.image}"
            copier.copy(entry.image, folder / path)
            sample = sample_document(dataset.name, entry, path, field)
            if guesses is not None:
                guessed = guesses.get(entry.image)
                sample[PREDICTIONS] = None if guessed is None else classifications(sample, PREDICTIONS, guessed)
            file.write((b",\n" if number else b"\n") + json.dumps(sample, ensure_ascii=False).encode())
            bar.advance()
        file.write(b"\n]}\n")
    fields = [field] if guesses is None else [field, PREDICTIONS]
    with atomic_write(folder / "metadata.json") as file:
        file.write(json.dumps(dataset_document(dataset, root if images == "none" else None, fields)).encode())


def to_fiftyone(dataset: Dataset, name: str | None = None, **options: Any) -> Any:
    """Return a new dataset in FiftyOne's database, for the App and everything else that FiftyOne does.

    Args:
        dataset: to be shown.
        name: of the new dataset; by default that of the dataset.
        **options: of `write`, such as `predictions`.

    Raises:
        TagfillError: if FiftyOne is not installed.
    """
    try:
        import fiftyone as fo
    except ImportError:
        raise TagfillError("FiftyOne is not installed; install it with 'pip install fiftyone'.") from None
    if options.get("images", "none") != "none":
        raise TagfillError("to_fiftyone refers to images where they are; write a folder to copy or link them.")
    with tempfile.TemporaryDirectory() as folder:
        write(dataset, folder, **options)
        return fo.Dataset.from_dir(dataset_dir=folder, dataset_type=fo.types.FiftyOneDataset, name=name or dataset.name)


def _read_predictions(path: Path, minimum: float) -> dict[str, list[dict[str, Any]]]:
    """What a model says of each image: every image of the file, with its labels from `minimum` on."""
    found: dict[str, list[dict[str, Any]]] = {}
    columns = ["image", "label", "probability", "present"]
    try:
        for batch in pq.ParquetFile(path).iter_batches(columns=columns):
            for image in pc.unique(batch["image"]).to_pylist():
                found.setdefault(image, [])
            kept = batch.filter(pc.or_(pc.greater_equal(batch["probability"], minimum), batch["present"]))
            for row in kept.to_pylist():
                state = "present" if row["present"] else None
                found[row["image"]].append({"label": row["label"], "confidence": row["probability"], "state": state})
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        problem = str(error).splitlines()[0][:200]
        raise DatasetError(f"{path} is no Parquet file of 'tagfill predict' ({problem}).") from None
    return {
        image: sorted(labels, key=lambda label: (-label["confidence"], label["label"]))
        for image, labels in found.items()
    }
