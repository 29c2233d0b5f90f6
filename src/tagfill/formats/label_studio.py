"""Writing tasks for Label Studio, with annotations or predictions, and the labelling set-up that fits them.

Label Studio: its JSON export is read, and tasks that it can import are written.

| in Label Studio | here |
|---|---|
| choices | present labels of the image; the control called `absent` lists absent ones, `cannot-tell` undecided ones |
| rectanglelabels | boxes; a rotated one becomes the box around it, with the flag `rotated` |
| keypointlabels | points |
| polygonlabels | masks |
| completed_by, created_at | source and time of each row |
| lead_time | seconds, shared out evenly among the rows of an annotation |

A choice that was not taken is absent only if annotators had to look for each of them: unless the file has a control
called `absent` or `cannot-tell`, `absent_means` has to say so. Cancelled annotations and predictions say nothing, and
brushes and other kinds of regions are left out, with a line that counts them.

An image is known by its path: that after `?d=` for local files, that after `/data/` for uploads, and that after the
host for addresses, without `prefix`.
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
from xml.sax.saxutils import quoteattr

import ijson

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, one_of
from tagfill.formats import image_files, json_stream, rasterize, reader, text_files
from tagfill.formats.export import ImageRows, by_image
from tagfill.formats.json_stream import shown
from tagfill.formats.reader import Collector
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

PRESENT, ABSENT, CANNOT_TELL = "present", "absent", "cannot-tell"

_CONTROLS = {True: PRESENT, False: ABSENT, None: CANNOT_TELL}
_POINT_SIZE = 0.5  # per cent of the image's width


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    predictions: bool = False,
    image_prefix: str = "/data/local-files/?d=",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write tasks as JSON, and beside them the labelling set-up (`.xml`) to paste into a project.

    Rows of the same source and time are one annotation. Flags are not written, and of sources only those that came from
    Label Studio, because it knows no others.

    Args:
        dataset: what to write.
        target: the JSON file.
        predictions: write rows as suggestions to be confirmed, not as annotations.
        image_prefix: put before each image's path; the default serves files below Label Studio's document root.
        masks: they are refused, or written as a `box`.
        progress: told about each image.
    """
    path = Path(target)
    one_of("masks", masks, ["refuse", "box"])
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        for number, entry in enumerate(by_image(dataset)):
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
        file.write(set_up(dataset.classes).encode())


def set_up(classes: Sequence[str]) -> str:
    """The labelling set-up: choices for what is present, absent or undecided, boxes and points.

    >>> set_up(["cat"]).splitlines()[2:4]
    ['  <Choices name="present" toName="image" choice="multiple">', '    <Choice value="cat"/>']
    """
    controls = [
        *(("Choices", "Choice", name, ' choice="multiple"') for name in _CONTROLS.values()),
        ("RectangleLabels", "Label", "box", ""),
        ("KeyPointLabels", "Label", "point", ""),
    ]
    lines = ["<View>", '  <Image name="image" value="$image"/>']
    for tag, inner, name, more in controls:
        lines.append(f'  <{tag} name="{name}" toName="image"{more}>')
        lines += [f"    <{inner} value={quoteattr(label)}/>" for label in classes]
        lines.append(f"  </{tag}>")
    return "\n".join([*lines, "</View>", ""])


def _annotations(entry: ImageRows, masks: str, predictions: bool, name: str) -> list[dict[str, Any]]:
    """One for each source and time, or one for all if they are predictions."""
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
    """Who said so, when, and how long it took, as far as Label Studio understands it."""
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
    for state, control in _CONTROLS.items():
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
            f"Label Studio cannot say that a region does not show a label, but a {row['kind']} of {entry.image} "
            f"says so of '{row['label']}'; drop that row."
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


TITLE = "Label Studio: JSON export, and tasks to import"

__all__ = ["TITLE", "read", "write"]

_STATES = {ABSENT: False, CANNOT_TELL: None}


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
        root: where the images are, a folder or a URL; the folder of the file unless given.
        absent_means: what labels are that an annotation does not mention, `unknown` or `absent`; has to be said unless
            the file says itself what is absent.
        classes: their names in order; those of the file, sorted, unless given.
        image_key: of a task's data.
        prefix: removed from the beginning of each path.
        split: of images whose task has no `split` in its data.
        progress: told about each megabyte.
    """
    path = Path(source)
    sizes: dict[str, tuple[str, int | None, int | None]] = {}
    labels: set[str] = set()
    present = 0
    outspoken = False
    skipped: Counter[str] = Counter()
    for task in _tasks(path, image_key, prefix, progress):
        known = sizes.get(task.image, (task.split or split, None, None))
        if known[0] != (task.split or split):
            found = f"image '{task.image[:200]}' in split '{task.split or split}', but it was in '{known[0]}' before"
            raise DatasetError(f"{path}: found {found}; an image belongs to one split.")
        sizes[task.image] = known if known[1] else (known[0], task.width, task.height)
        for annotation in task.annotations:
            labels |= {label for label, _, _ in annotation.statements}
            present += len({label for label, state, _ in annotation.statements if state})
            outspoken |= any(not state for _, state, _ in annotation.statements)
            skipped += annotation.skipped
    names = tuple(sorted(labels) if classes is None else classes)
    if unlisted := sorted(labels - set(names)):
        raise DatasetError(f"{path} uses label '{unlisted[0]}', which is not among the classes given; add it to them.")
    if absent_means is not None or not outspoken:
        absent_means = reader.reading(absent_means, path, images=len(sizes), classes=len(names), present=present)
    collector = Collector(path.stem, path.parent if root is None else image_root(root), names, source="label-studio")
    for image, record in sizes.items():
        collector.add_image(image, *record)
    for task in _tasks(path, image_key, prefix, progress):
        for annotation in task.annotations:
            annotation.add_to(collector, task.image, exhaustive=absent_means == "absent")
    for kind, count in sorted(skipped.items()):
        progress.say(f"{path.name}: {count:,} results of type {kind} were left out; they have no counterpart here.")
    return collector.dataset()


@dataclass
class _Annotation:
    """What one person said about one image: label, state and columns of each statement."""

    source: str
    time: datetime | None
    seconds: float | None
    statements: list[tuple[str, bool | None, dict[str, Any]]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def add_to(self, collector: Collector, image: str, *, exhaustive: bool) -> None:
        rows = list(self.statements)
        if exhaustive:
            mentioned = {label for label, _, _ in rows}
            rows += [(label, False, {}) for label in collector.classes if label not in mentioned]
        seconds = self.seconds / len(rows) if self.seconds is not None and rows else None
        for label, state, columns in rows:
            collector.add(image, label, state, source=self.source, time=self.time, seconds=seconds, **columns)


@dataclass
class _Task:
    image: str
    split: str | None
    width: int | None = None
    height: int | None = None
    annotations: list[_Annotation] = field(default_factory=list)


def _tasks(path: Path, image_key: str, prefix: str, progress: Progress) -> Iterator[_Task]:
    """The tasks of a file, one at a time."""
    size = text_files.needed(path, "a JSON export").stat().st_size
    json_stream.require_whole(path)
    with path.open("rb") as file, progress.bar(f"Reading {path.name}", size, "B") as bar:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        before = 0
        number = -1
        try:
            for number, item in enumerate(ijson.items(file, "item", use_float=True)):
                where = f"{path}, task {shown(item.get('id', number)) if isinstance(item, dict) else number}"
                yield _task(item, image_key, prefix, where)
                bar.advance(file.tell() - before)
                before = file.tell()
        except (ijson.JSONError, UnicodeDecodeError) as error:
            problem = str(error).strip().splitlines()[0]
            raise DatasetError(f"{path} is not valid JSON after task {number + 1}: {problem}.") from None
    if number < 0:
        raise DatasetError(f"{path} holds no list of tasks; export the project as JSON.")


def _task(item: Any, image_key: str, prefix: str, where: str) -> _Task:
    data = item.get("data") if isinstance(item, dict) else None
    if not isinstance(data, dict):
        raise DatasetError(f"{where} has no 'data'; export the project as JSON, not as JSON-MIN.")
    if not isinstance(data.get(image_key), str):
        raise DatasetError(f"{where} has no '{image_key}' but {', '.join(data)} in its data; name it with image_key=.")
    task = _Task(_image(data[image_key], prefix, where), data.get("split"))
    if not isinstance(task.split, str | None):
        raise DatasetError(f"{where} has a split of {shown(task.split)}; the name of a split is expected.")
    image_files.check_name(task.image, where)
    annotations = "annotations" if "annotations" in item else "completions"
    for given in _objects(item, annotations, where):
        if given.get("was_cancelled") not in (None, False, True):
            raise DatasetError(f"{where} has was_cancelled={shown(given['was_cancelled'])}; true or false is expected.")
        if given.get("was_cancelled"):
            continue
        annotation = _Annotation(_who(given), _when(given.get("created_at"), where), _seconds(given, where))
        results = _objects(given, "result", where)
        regions = {str(result.get("id")) for result in results if result.get("type") != "choices"}
        for result in results:
            try:
                task.width, task.height = _size(result) or (task.width, task.height)
                _understand(result, annotation, regions)
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                problem = f"{type(error).__name__}: {error}"[:200]
                raise DatasetError(f"{where} has a result that cannot be read ({problem}); export it anew.") from None
        task.annotations.append(annotation)
    return task


def _objects(item: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """A list of objects; none if there is no such key."""
    found = [] if item.get(key) is None else item[key]
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise DatasetError(f"{where} has a '{key}' of {shown(found)}; a list of objects is expected.")
    return found


def _size(result: dict[str, Any]) -> tuple[int, int] | None:
    sides = [result.get("original_width"), result.get("original_height")]
    if sides == [None, None]:
        return None
    width, height = (side if type(side) is int and 0 < side < 2**31 else 0 for side in sides)
    if not (width and height):
        raise ValueError(f"its original size is {shown(sides)}")
    return width, height


def _seconds(annotation: dict[str, Any], where: str) -> float | None:
    seconds = annotation.get("lead_time")
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise DatasetError(f"{where} has a lead_time of {shown(seconds)}; a number of seconds is expected.")
    return seconds


def _image(address: str, prefix: str, where: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise DatasetError(f"{where}: '{address[:200]}' is not the address of an image ({error}).") from None
    if parts.path.endswith("/local-files/") and parts.query.startswith("d="):
        name = unquote(parts.query[2:])
    elif parts.scheme or address.startswith("/data/"):
        name = unquote(parts.path).removeprefix("/data/").lstrip("/")
    else:
        name = address
    return name.removeprefix(prefix)


def _who(annotation: dict[str, Any]) -> str:
    person = annotation.get("completed_by")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id")
    return "label-studio" if person is None else f"label-studio:{person}"


def _when(text: Any, where: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(f"{where}: created_at {shown(text)} is no time in ISO 8601.") from None


def _understand(result: dict[str, Any], annotation: _Annotation, regions: set[str]) -> None:
    """Add what one result says, or count it among those left out."""
    kind, value = result.get("type", "none"), result.get("value", {})
    if not isinstance(value, dict):
        raise ValueError(f"its value is {shown(value)}")
    if kind == "choices" and str(result.get("id")) not in regions:
        state = _STATES.get(result.get("from_name", ""), True)
        annotation.statements += [(label, state, {}) for label in _labels(value, "choices")]
    elif kind in _REGIONS and value.get(kind):
        columns = _REGIONS[kind](value, result)
        annotation.statements += [(label, True, columns) for label in _labels(value, kind)]
    else:
        annotation.skipped[kind] += 1


def _labels(value: dict[str, Any], key: str) -> list[str]:
    labels = value[key]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"its {key} are {shown(labels)}, not a list of names")
    return labels


def _rectangle(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    left, top, width, height = (float(value[side]) / 100 for side in ("x", "y", "width", "height"))
    angle = math.radians(float(value.get("rotation") or 0))
    if not angle:
        return {"kind": "box", "x": left + width / 2, "y": top + height / 2, "w": width, "h": height}
    aspect = result["original_width"] / result["original_height"]  # corners turn in pixels, around the first one
    corners = [(0.0, 0.0), (width * aspect, 0.0), (0.0, height), (width * aspect, height)]
    xs = [left + (x * math.cos(angle) - y * math.sin(angle)) / aspect for x, y in corners]
    ys = [top + x * math.sin(angle) + y * math.cos(angle) for x, y in corners]
    return {**_around(xs, ys), "flags": ["rotated"]}


def _keypoint(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "point", "x": float(value["x"]) / 100, "y": float(value["y"]) / 100}


def _polygon(value: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    xs, ys = zip(*((float(x) / 100, float(y) / 100) for x, y in value["points"]), strict=True)
    width, height = int(result["original_width"]), int(result["original_height"])
    pixels = [side for x, y in zip(xs, ys, strict=True) for side in (x * width, y * height)]
    mask = rasterize.from_segmentation([pixels], height, width)
    return {**_around(xs, ys), **(mask.columns() if mask else {})}


def _around(xs: Sequence[float], ys: Sequence[float]) -> dict[str, Any]:
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return {
        "kind": "box",
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
        "w": right - left,
        "h": bottom - top,
    }


_REGIONS = {"rectanglelabels": _rectangle, "keypointlabels": _keypoint, "polygonlabels": _polygon}
