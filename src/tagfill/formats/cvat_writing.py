"""Writing XML files for CVAT."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from tagfill.annotations import Dataset, run_lengths
from tagfill.errors import DatasetError
from tagfill.files import replacing
from tagfill.formats import image_files
from tagfill.formats.grouping import ImageRows, by_image
from tagfill.progress import SILENT, Progress

PRESENT = "present"
STATES = {"true": True, "false": False, "unsure": None}

_WORDS = {state: word for word, state in STATES.items()}


def write(dataset: Dataset, target: str | os.PathLike[str], *, progress: Progress = SILENT) -> None:
    """Write `annotations.xml` as "CVAT for images 1.1" imports it.

    Labels are defined with a select attribute `present`, so that tags can say absent and "cannot tell". Times and costs
    are not written. Of rows that contradict each other, those that were overruled are left out.

    Args:
        dataset: what to write; the sizes of images that it does not know are read from their files.
        target: the XML file.
        progress: told about each image.
    """
    path = Path(target)
    flags = _flags(dataset)
    with replacing(path) as file, progress.bar(f"Writing {path.name}", len(dataset), "images") as bar:
        file.write(_head(dataset, flags).encode())
        for number, entry in enumerate(by_image(dataset)):
            width, height = entry.size or image_files.size(dataset.root, entry.image)
            head = {"id": number, "name": entry.image, "subset": entry.split, "width": width, "height": height}
            file.write(f"  <image{_attributes(head)}>\n".encode())
            for line in _shapes(entry, width, height):
                file.write(f"    {line}\n".encode())
            file.write(b"  </image>\n")
            bar.advance()
        file.write(b"</annotations>\n")


def _head(dataset: Dataset, flags: Sequence[str]) -> str:
    """Everything before the images: the task and its labels."""
    present = _definition(PRESENT, "select", "true", list(STATES))
    attributes = present + "".join(_definition(flag, "checkbox", "false", ["false"]) for flag in flags)
    labels = "".join(
        f"        <label>\n          <name>{escape(label)}</name>\n          <type>any</type>\n          <attributes>\n"
        f"{attributes}          </attributes>\n        </label>\n"
        for label in dataset.classes
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n  <meta>\n    <task>\n'
        f"      <name>{escape(dataset.name)}</name>\n      <size>{len(dataset)}</size>\n      <mode>annotation</mode>\n"
        f"      <labels>\n{labels}      </labels>\n    </task>\n  </meta>\n"
    )


def _definition(name: str, kind: str, default: str, values: list[str]) -> str:
    indent = " " * 12
    return (
        f"{indent}<attribute>\n{indent}  <name>{escape(name)}</name>\n{indent}  <mutable>False</mutable>\n"
        f"{indent}  <input_type>{kind}</input_type>\n{indent}  <default_value>{default}</default_value>\n"
        f"{indent}  <values>{chr(10).join(values)}</values>\n{indent}</attribute>\n"
    )


def _flags(dataset: Dataset) -> list[str]:
    """All flags but `occluded`, which CVAT has of its own."""
    found: set[str] = set()
    for batch in dataset.scan(["flags"]):
        found.update(flag for flags in batch["flags"].to_pylist() for flag in flags or [])
    if PRESENT in found:
        raise DatasetError(f"A flag is called '{PRESENT}', which CVAT files need for the state of tags; rename it.")
    return sorted(found - {"occluded"})


def _shapes(entry: ImageRows, width: int, height: int) -> Iterator[str]:
    for row in entry.rows:
        state = row["present"]
        if row["kind"] != "image" and not state:
            raise DatasetError(
                f"CVAT cannot say that a region does not show a label, but a {row['kind']} of {entry.image} says so of "
                f"'{row['label']}'; drop that row."
            )
        if entry.states.get(row["label"]) is not state:
            continue
        more = {flag: "true" for flag in row["flags"] or [] if flag != "occluded"}
        if row["kind"] == "image":
            more = {PRESENT: _WORDS[state], **more}
        tag, place = _place(row, width, height)
        source = (row["source"] or "").removeprefix("cvat:")
        given = {"label": row["label"], "source": source if source in ("manual", "auto", "semi-auto") else "manual"}
        if row["kind"] != "image" or "occluded" in (row["flags"] or []):
            given["occluded"] = str(int("occluded" in (row["flags"] or [])))
        content = "".join(
            f"<attribute name={quoteattr(name)}>{escape(value)}</attribute>" for name, value in more.items()
        )
        yield f"<{tag}{_attributes(given | place)}>{content}</{tag}>"


def _place(row: dict[str, Any], width: int, height: int) -> tuple[str, dict[str, Any]]:
    """The element's name, and where it is, in pixels."""
    if row["kind"] == "image":
        return "tag", {}
    if row["kind"] == "point":
        return "points", {"points": f"{row['x'] * width:.6f},{row['y'] * height:.6f}", "z_order": 0}
    if row["kind"] == "box":
        left, top = (row["x"] - row["w"] / 2) * width, (row["y"] - row["h"] / 2) * height
        right, bottom = (row["x"] + row["w"] / 2) * width, (row["y"] + row["h"] / 2) * height
        sides = {"xtl": left, "ytl": top, "xbr": right, "ybr": bottom}
        return "box", {name: f"{side:.6f}" for name, side in sides.items()} | {"z_order": 0}
    return "mask", _mask(row, width, height) | {"z_order": 0}


def _mask(row: dict[str, Any], width: int, height: int) -> dict[str, Any]:
    if (row["rle_width"], row["rle_height"]) != (width, height):
        raise DatasetError(
            f"The mask of '{row['label']}' in {row['image']} is {row['rle_width']}×{row['rle_height']}, but the image "
            f"is {width}×{height}; CVAT needs masks of the image's size."
        )
    try:
        pixels = run_lengths.decode(row["rle"], height, width)
    except ValueError as problem:
        raise DatasetError(
            f"The run lengths of the mask of '{row['label']}' in {row['image']} {problem}; drop that row."
        ) from None
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    if not len(rows):
        raise DatasetError(f"The mask of '{row['label']}' in {row['image']} is empty; drop that row.")
    part = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return {
        "rle": ", ".join(map(str, run_lengths.runs_of(part.T).tolist())),  # CVAT goes along the rows
        "left": int(columns[0]),
        "top": int(rows[0]),
        "width": part.shape[1],
        "height": part.shape[0],
    }


def _attributes(values: dict[str, Any]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
