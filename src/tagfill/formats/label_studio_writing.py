"""Writing tasks for Label Studio, with annotations or predictions, and the labelling set-up that fits them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.files import replacing
from tagfill.formats.grouping import ImageRows, by_image
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
    with replacing(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
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
    with replacing(path.with_suffix(".xml")) as file:
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
