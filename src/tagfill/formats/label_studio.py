"""Label Studio: its JSON export is read, and tasks that it can import are written.

| in Label Studio | here |
|---|---|
| choices | present labels of the image; the control `absent` lists absent ones, `cannot-tell` undecided ones |
| choices of `others` | whether all classes that the annotation does not mention are absent, or unknown |
| choices of `class:NAME` | whether this class is present, absent, or undecided |
| rectanglelabels | boxes; a rotated one becomes the box around it, with the flag `rotated` |
| keypointlabels | points |
| polygonlabels | masks |
| completed_by, updated_at | source and time of each row |
| lead_time | seconds, divided evenly among the rows of an annotation |

A choice that was not taken is absent only if annotators had to decide about each of them: unless the file has one of
the controls of `tagfill.formats.label_studio_config`, it requires `absent_means`. Cancelled annotations and predictions
are skipped, and brushes and other kinds of regions are left out, with a message that counts them.

An image is identified by its path: the part after `?d=` for local files, after `/data/` for uploads, and after the host
for URLs, without `prefix`.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import ijson

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, json_stream, rasterize, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, resolve_absent_means
from tagfill.formats.json_stream import short_json
from tagfill.formats.label_studio_config import (
    ABSENT,
    CLASS_PREFIX,
    CONTROLS,
    OTHERS,
    STATES,
    UNKNOWN,
    LabelingConfig,
    labeling_config,
)
from tagfill.formats.writer import ImageRows, iter_images
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "Label Studio: JSON export, and tasks to import"

_POINT_SIZE = 0.5  # percent of the image's width


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    classes: Sequence[str] | None = None,
    image_key: str = "image",
    prefix: str = "",
    split: str = "train",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a JSON export.

    Args:
        source: the file; export as JSON, not as JSON-MIN.
        root: where the images are, a folder or a URL; by default the folder of the file.
        absent_means: what labels are that an annotation does not mention, `unknown` or `absent`; required unless the
            file says itself what is absent.
        classes: their names in order; by default those of the file, sorted.
        image_key: the key of the image in the data of a task.
        prefix: removed from the beginning of each path.
        split: of images whose task has no `split` in its data.
        progress: told about the bytes read.

    Raises:
        DatasetError: `absent_means` is missing, or the file is damaged or contradicts itself.
    """
    path = Path(source)
    images: dict[str, tuple[str, int | None, int | None]] = {}
    labels: set[str] = set()
    present = 0
    states_absences = False
    skipped: Counter[str] = Counter()
    for task in _iter_tasks(path, image_key, prefix, progress):
        known = images.get(task.image, (task.split or split, None, None))
        if known[0] != (task.split or split):
            found = f"image '{task.image[:200]}' in split '{task.split or split}', but it was in '{known[0]}' before"
            raise DatasetError(f"{path}: found {found}; an image belongs to one split.")
        images[task.image] = known if known[1] else (known[0], task.width, task.height)
        for annotation in task.annotations:
            labels |= {label for label, _, _ in annotation.statements}
            present += len({label for label, state, _ in annotation.statements if state})
            states_absences |= annotation.others is not None or any(not state for _, state, _ in annotation.statements)
            skipped += annotation.skipped
    names = tuple(sorted(labels) if classes is None else classes)
    if unlisted := sorted(labels - set(names)):
        raise DatasetError(f"{path} uses label '{unlisted[0]}', which is not among the classes given; add it to them.")
    if absent_means is not None or not states_absences:
        absent_means = resolve_absent_means(absent_means, path, images=len(images), classes=len(names), present=present)
    builder = DatasetBuilder(path.stem, path.parent if root is None else image_root(root), names, source="label-studio")
    for image, record in images.items():
        builder.add_image(image, *record)
    for task in _iter_tasks(path, image_key, prefix, progress):
        for annotation in task.annotations:
            annotation.add_rows(builder, task.image, exhaustive=absent_means == "absent")
    for kind, count in sorted(skipped.items()):
        progress.say(f"{path.name}: {count:,} results of type {kind} were left out; they have no counterpart here.")
    return builder.build()


@dataclass
class Annotation:
    """The annotation of one image by one person.

    Attributes:
        source: the annotator.
        time: when it was submitted.
        seconds: time that it took.
        statements: label, state and location columns of each statement.
        others: `absent` or `unknown`, what the annotator said of all classes that are not mentioned; None if nothing.
        skipped: number of results of each type that have no counterpart here.
        unmatched: words that stand for no class of the configuration that the annotation was read with.
    """

    source: str
    time: datetime | None
    seconds: float | None
    statements: list[tuple[str, bool | None, dict[str, Any]]] = field(default_factory=list)
    others: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    unmatched: set[str] = field(default_factory=set)

    def add_rows(self, builder: DatasetBuilder, image: str, *, exhaustive: bool) -> None:
        """Add a row per statement and per class that is absent because it is not mentioned.

        Args:
            builder: takes the rows.
            image: name of the image.
            exhaustive: what is not mentioned is absent, unless the annotation itself says what it is.
        """
        rows = list(self.statements)
        if exhaustive if self.others is None else self.others == ABSENT:
            mentioned = {label for label, _, _ in rows}
            rows += [(label, False, {}) for label in builder.classes if label not in mentioned]
        seconds = self.seconds / len(rows) if self.seconds is not None and rows else None
        for label, state, columns in rows:
            builder.add_row(image, label, state, source=self.source, time=self.time, seconds=seconds, **columns)


@dataclass
class _Task:
    """An image with its annotations."""

    image: str
    split: str | None
    width: int | None = None
    height: int | None = None
    annotations: list[Annotation] = field(default_factory=list)


def _iter_tasks(path: Path, image_key: str, prefix: str, progress: Progress) -> Iterator[_Task]:
    """Iterate over the tasks of a file."""
    size = text_files.require_file(path, "a JSON export").stat().st_size
    json_stream.check_structure(path)
    with path.open("rb") as file, progress.bar(f"Reading {path.name}", size, "B") as bar:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        before = 0
        number = -1
        try:
            for number, item in enumerate(ijson.items(file, "item", use_float=True)):
                where = f"{path}, task {short_json(item.get('id', number)) if isinstance(item, dict) else number}"
                yield _parse_task(item, image_key, prefix, where)
                bar.advance(file.tell() - before)
                before = file.tell()
        except (ijson.JSONError, UnicodeDecodeError) as error:
            problem = str(error).strip().splitlines()[0]
            raise DatasetError(f"{path} is not valid JSON after task {number + 1}: {problem}.") from None
    if number < 0:
        raise DatasetError(f"{path} holds no list of tasks; export the project as JSON.")


def _parse_task(item: Any, image_key: str, prefix: str, where: str) -> _Task:
    data = item.get("data") if isinstance(item, dict) else None
    if not isinstance(data, dict):
        raise DatasetError(f"{where} has no 'data'; export the project as JSON, not as JSON-MIN.")
    if not isinstance(data.get(image_key), str):
        raise DatasetError(f"{where} has no '{image_key}' but {', '.join(data)} in its data; name it with image_key=.")
    task = _Task(image_path(data[image_key], prefix, where), data.get("split"))
    if not isinstance(task.split, str | None):
        raise DatasetError(f"{where} has a split of {short_json(task.split)}; the name of a split is expected.")
    image_files.check_image_path(task.image, where)
    annotations = "annotations" if "annotations" in item else "completions"
    for given in _list_of_objects(item, annotations, where):
        if not was_cancelled(given, where):
            task.annotations.append(parse_annotation(given, where))
            for result in _list_of_objects(given, "result", where):
                task.width, task.height = _image_size(result, where) or (task.width, task.height)
    return task


def was_cancelled(given: dict[str, Any], where: str) -> bool:
    """Whether an annotation was skipped by its annotator."""
    if given.get("was_cancelled") not in (None, False, True):
        raise DatasetError(
            f"{where} has was_cancelled={short_json(given['was_cancelled'])}; true or false is expected."
        )
    return bool(given.get("was_cancelled"))


def parse_annotation(given: dict[str, Any], where: str, config: LabelingConfig | None = None) -> Annotation:
    """Read one annotation.

    Args:
        given: as Label Studio exports it or sends it to webhooks.
        where: what it belongs to, for errors.
        config: says which words stand for which classes; by default each word is a class.

    Raises:
        DatasetError: it cannot be read.
    """
    time = given.get("updated_at") or given.get("created_at")
    annotation = Annotation(_source(given), _parse_time(time, where), _seconds(given, where))
    results = _list_of_objects(given, "result", where)
    regions = {str(result.get("id")) for result in results if result.get("type") != "choices"}
    for result in results:
        try:
            _add_result(result, annotation, regions, config)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
            raise DatasetError(f"{where} has a result that cannot be read ({problem}); export it again.") from None
    return annotation


def _list_of_objects(item: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return a list of objects; an empty one if there is no such key."""
    found = [] if item.get(key) is None else item[key]
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DatasetError(f"{where} has a '{key}' of {short_json(found)}; a list of objects is expected.")
    return found


def _image_size(result: dict[str, Any], where: str) -> tuple[int, int] | None:
    sides = [result.get("original_width"), result.get("original_height")]
    if sides == [None, None]:
        return None
    width, height = (side if type(side) is int and 0 < side < 2**31 else 0 for side in sides)
    if not (width and height):
        raise DatasetError(f"{where} has a result whose original size is {short_json(sides)}; export it again.")
    return width, height


def _seconds(annotation: dict[str, Any], where: str) -> float | None:
    seconds = annotation.get("lead_time")
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise DatasetError(f"{where} has a lead_time of {short_json(seconds)}; a number of seconds is expected.")
    return seconds


def image_path(url: str, prefix: str, where: str) -> str:
    """Return the path of an image, which is its identity.

    Args:
        url: in the data of a task.
        prefix: removed from the beginning of the path.
        where: what it belongs to, for errors.

    >>> image_path("/data/local-files/?d=photos/a%20b.jpg", "photos/", "task 1")
    'a b.jpg'
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise DatasetError(f"{where}: '{url[:200]}' is not the URL of an image ({error}).") from None
    if parts.path.endswith("/local-files/") and parts.query.startswith("d="):
        name = unquote(parts.query[2:])
    elif parts.scheme or url.startswith("/data/"):
        name = unquote(parts.path).removeprefix("/data/").lstrip("/")
    else:
        name = url
    return name.removeprefix(prefix)


def _source(annotation: dict[str, Any]) -> str:
    person = annotation.get("completed_by")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id")
    return "label-studio" if person is None else f"label-studio:{person}"


def _parse_time(text: Any, where: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(f"{where}: {short_json(text)} is not a time in ISO 8601.") from None


def _add_result(
    result: dict[str, Any], annotation: Annotation, regions: set[str], config: LabelingConfig | None
) -> None:
    """Add the statements of one result, or count it among the skipped ones."""
    kind, value, control = result.get("type", "none"), result.get("value", {}), str(result.get("from_name", ""))
    if not isinstance(value, dict):
        raise ValueError(f"its value is {short_json(value)}")
    if kind == "choices" and str(result.get("id")) not in regions:
        words = _label_names(value, "choices")
        if control == OTHERS and words in ([ABSENT], [UNKNOWN]):
            annotation.others = words[0]
        elif control.startswith(CLASS_PREFIX) and set(words) <= set(STATES):
            named = control.removeprefix(CLASS_PREFIX)
            about = None if config is None else config.control(control)
            label = named if config is None else None if about is None else about.label
            if label is None:
                annotation.unmatched.add(named)
            else:
                annotation.statements += [(label, STATES[word], {}) for word in words]
        else:
            labels = _classes_of(words, control, annotation, config)
            annotation.statements += [(label, STATES.get(control, True), {}) for label in labels]
    elif kind in _REGION_COLUMNS and value.get(kind):
        columns = _REGION_COLUMNS[kind](value, result)
        labels = _classes_of(_label_names(value, kind), control, annotation, config)
        annotation.statements += [(label, True, columns) for label in labels]
    else:
        annotation.skipped[kind] += 1


def _classes_of(words: list[str], control: str, annotation: Annotation, config: LabelingConfig | None) -> list[str]:
    """Return the classes that words of a control stand for; others are noted as unmatched."""
    if config is None:
        return words
    found = config.control(control)
    classes = {} if found is None else found.classes
    annotation.unmatched.update(word for word in words if word not in classes)
    return [classes[word] for word in words if word in classes]


def _label_names(value: dict[str, Any], key: str) -> list[str]:
    labels = value[key]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"its {key} are {short_json(labels)}, not a list of names")
    return labels


def _rectangle_columns(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    left, top, width, height = (float(value[side]) / 100 for side in ("x", "y", "width", "height"))
    angle = math.radians(float(value.get("rotation") or 0))
    if not angle:
        return {"kind": "box", "x": left + width / 2, "y": top + height / 2, "w": width, "h": height}
    aspect = result["original_width"] / result["original_height"]  # corners turn in pixels, around the first one
    corners = [(0.0, 0.0), (width * aspect, 0.0), (0.0, height), (width * aspect, height)]
    xs = [left + (x * math.cos(angle) - y * math.sin(angle)) / aspect for x, y in corners]
    ys = [top + x * math.sin(angle) + y * math.cos(angle) for x, y in corners]
    return {**_bounding_box(xs, ys), "flags": ["rotated"]}


def _keypoint_columns(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "point", "x": float(value["x"]) / 100, "y": float(value["y"]) / 100}


def _polygon_columns(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    xs, ys = zip(*((float(x) / 100, float(y) / 100) for x, y in value["points"]), strict=True)
    width, height = int(result["original_width"]), int(result["original_height"])
    pixels = [side for x, y in zip(xs, ys, strict=True) for side in (x * width, y * height)]
    mask = rasterize.from_segmentation([pixels], height, width)
    return {**_bounding_box(xs, ys), **(mask.columns() if mask else {})}


def _bounding_box(xs: Sequence[float], ys: Sequence[float]) -> dict[str, Any]:
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return {
        "kind": "box",
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
        "w": right - left,
        "h": bottom - top,
    }


_REGION_COLUMNS = {
    "rectanglelabels": _rectangle_columns,
    "keypointlabels": _keypoint_columns,
    "polygonlabels": _polygon_columns,
}


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    predictions: bool = False,
    image_prefix: str = "/data/local-files/?d=",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write tasks as JSON, and beside them the labeling configuration (`.xml`) to paste into a project.

    Rows of the same source and time are one annotation. Flags are not written, and only sources that came from Label
    Studio, because it knows no others.

    Args:
        dataset: to be written.
        target: the JSON file.
        predictions: write rows as predictions to be confirmed, not as annotations.
        image_prefix: put before the path of each image; the default serves files below Label Studio's document root.
        masks: `refuse` them, or write their `box`.
        progress: told about each image.

    Raises:
        DatasetError: the format cannot express what the dataset holds; nothing is written.
    """
    path = Path(target)
    one_of("masks", masks, ["refuse", "box"])
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        for number, entry in enumerate(iter_images(dataset)):
            task = {
                "data": {
                    "image": image_prefix + quote(entry.image) if image_prefix else entry.image,
                    "split": entry.split,
                },
                "predictions" if predictions else "annotations": _annotations(entry, masks, predictions, dataset.name),
            }
            file.write((b",\n" if number else b"[\n") + json.dumps(task, ensure_ascii=False).encode())
            bar.advance()
        file.write(b"\n]\n" if len(dataset) else b"[]\n")
    with atomic_write(path.with_suffix(".xml")) as file:
        file.write(labeling_config(dataset.classes, boxes=True, points=True).encode())


def _annotations(entry: ImageRows, masks: str, predictions: bool, name: str) -> list[dict[str, Any]]:
    """Return one annotation per source and time, or one for all rows if they are predictions."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in entry.rows:
        groups.setdefault(None if predictions else (row["source"], row["time"]), []).append(row)
    written = []
    for rows in groups.values():
        annotation: dict[str, Any] = {"result": _results(entry, rows, masks)}
        if predictions:
            annotation["model_version"] = name
        else:
            annotation |= _origin(rows)
        written.append(annotation)
    return written


def _origin(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return annotator, time and duration, as far as Label Studio has a place for them."""
    found: dict[str, Any] = {}
    source, time = rows[0]["source"] or "", rows[0]["time"]
    person = source.removeprefix("label-studio:")
    if person != source:
        found["completed_by"] = int(person) if person.isdigit() else {"email": person}
    if time is not None:
        found["created_at"] = time.isoformat().replace("+00:00", "Z")
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    if seconds:
        found["lead_time"] = sum(seconds)
    return found


def _results(entry: ImageRows, rows: list[dict[str, Any]], masks: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for state, control in CONTROLS.items():
        if chosen := [row["label"] for row in rows if row["kind"] == "image" and row["present"] is state]:
            results.append({"type": "choices", "from_name": control, "value": {"choices": chosen}})
    for row in rows:
        if row["kind"] != "image":
            results.append(_region(entry, row, masks))
    size = dict(zip(("original_width", "original_height"), entry.size, strict=True)) if entry.size else {}
    return [{"id": f"r{number}", "to_name": "image", **size, **result} for number, result in enumerate(results)]


def _region(entry: ImageRows, row: dict[str, Any], masks: str) -> dict[str, Any]:
    if not row["present"]:
        raise DatasetError(
            f"Label Studio cannot express that a region does not show a label, but a {row['kind']} of {entry.image} "
            f"says so about '{row['label']}'; drop that row."
        )
    if row["kind"] == "mask" and masks == "refuse":
        raise DatasetError(
            f"{entry.image} has a mask of '{row['label']}', which is not written; masks='box' writes boxes."
        )
    x, y = 100 * row["x"], 100 * row["y"]
    if row["kind"] == "point":
        value = {"x": x, "y": y, "width": _POINT_SIZE, "keypointlabels": [row["label"]]}
        return {"type": "keypointlabels", "from_name": "point", "value": value}
    w, h = 100 * row["w"], 100 * row["h"]
    value = {"x": x - w / 2, "y": y - h / 2, "width": w, "height": h, "rotation": 0, "rectanglelabels": [row["label"]]}
    return {"type": "rectanglelabels", "from_name": "box", "value": value}
