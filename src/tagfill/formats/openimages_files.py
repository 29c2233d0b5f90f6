"""Which files of Open Images are where, its classes and its hierarchy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagfill.errors import DatasetError
from tagfill.files import write_json
from tagfill.formats import coco_tables, text_files

SPLITS = {"train": "train", "val": "validation", "test": "test"}
HIERARCHY = "bbox_labels_600_hierarchy.json"
_ROOT = "/m/0bl9f"  # Entity, which no image is labelled with
_VERSIONS = ("", "oidv6-", "oidv7-")
_HEADERS = {("LabelName", "DisplayName"), ("id", "name")}


@dataclass(frozen=True)
class Part:
    """The files of a split: labels, boxes and the list of all images, the latter two if they are there."""

    labels: Path
    boxes: Path | None
    images: Path | None


def find(source: Path, edition: str | None) -> tuple[str, dict[str, Part]]:
    """The edition of the files in a folder, and the files of each split."""
    looked = {"v3": _find_v3, "v5": _find_v5, "v6": _find_v6}
    found = {name: parts for name, look in looked.items() if edition in (None, name) and (parts := look(source))}
    if not found:
        raise DatasetError(
            f"{source} has no labels of Open Images{'' if edition is None else f' {edition}'}: neither "
            "train/annotations-human.csv nor train-annotations-human-imagelabels-boxable.csv nor "
            "oidv6-train-annotations-human-imagelabels.csv, or the same for validation and test."
        )
    if len(found) > 1:
        raise DatasetError(f"{source} has {' and '.join(found)} of Open Images; choose one with edition=.")
    return next(iter(found.items()))


def classes(source: Path, edition: str) -> list[str] | None:
    """The ids of the classes, in the order of their file; None if there is no such file."""
    if edition == "v5":
        return list(descriptions(source, edition)) or None
    path = _first(source, [f"{version}classes-trainable.txt" for version in _VERSIONS])
    if path is None:
        return None
    return list(dict.fromkeys(word for _, line in text_files.lines(path) for word in line.split()))


def descriptions(source: Path, edition: str) -> dict[str, str]:
    """The display name of each class id, as far as there is a file of them."""
    ending = "-boxable" if edition == "v5" else ""
    path = _first(source, [f"{version}class-descriptions{ending}.csv" for version in _VERSIONS])
    if path is None:
        return {}
    names: dict[str, str] = {}
    for number, cells in text_files.cells(path):
        row = [cell.strip() for cell in cells]
        if not names and tuple(row[:2]) in _HEADERS:
            continue
        if len(row) < 2:
            raise DatasetError(f"{path}, line {number} is not a class id and a name.")
        if names.setdefault(row[0], row[1]) != row[1]:
            raise text_files.bad_line(path, number, f"another name of class {row[0][:60]}", "drop one of them")
    return names


def display_names(ids: Sequence[str], described: Mapping[str, str]) -> tuple[str, ...]:
    """Distinct names of classes: what describes them, else their ids."""
    return coco_tables.distinct([described.get(identity, identity) for identity in ids], ids)


def read_hierarchy(path: Path) -> list[tuple[str, str]]:
    """(child, parent) ids of a nested hierarchy; a class may occur below several parents, and parts do not count."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid JSON: {error}.") from None

    def edges(node: Any) -> Iterator[tuple[str, str]]:
        for child in node.get("Subcategory", []):
            yield child["LabelName"], node["LabelName"]
            yield from edges(child)

    try:
        return list(dict.fromkeys(edges(tree)))
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise DatasetError(f"{path} has a node that is not a LabelName with Subcategory.") from None


def write_hierarchy(path: Path, ids: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
    """The reverse; what has no parent is below the root."""
    below: dict[str, list[str]] = {}
    for child, parent in edges:
        below.setdefault(parent, []).append(child)
    children = {child for child, _ in edges}

    def node(label: str) -> dict[str, Any]:
        its = [node(child) for child in below.get(label, [])]
        return {"LabelName": label, "Subcategory": its} if its else {"LabelName": label}

    top = [node(label) for label in ids if label not in children]
    write_json(path, {"LabelName": _ROOT, "Subcategory": top})


def _find_v3(source: Path) -> dict[str, Part]:
    found = {}
    for split, folder in SPLITS.items():
        if labels := _first(source, [f"{folder}/annotations-human.csv"]):
            boxes, images = labels.with_name("annotations-human-bbox.csv"), labels.with_name("images.csv")
            found[split] = Part(labels, boxes if boxes.is_file() else None, images if images.is_file() else None)
    return found


def _find_v5(source: Path) -> dict[str, Part]:
    return _find_later(source, "-annotations-human-imagelabels-boxable.csv", "images-boxable-with-rotation.csv")


def _find_v6(source: Path) -> dict[str, Part]:
    return _find_later(source, "-annotations-human-imagelabels.csv", "images-with-labels-with-rotation.csv")


def _find_later(source: Path, ending: str, images: str) -> dict[str, Part]:
    found = {}
    for split, folder in SPLITS.items():

        def candidates(*endings: str, folder: str = folder) -> list[str]:
            names = [f"{version}{folder}{ending}" for ending in endings for version in _VERSIONS]
            return [*names, *(f"{folder}/{name}" for name in names)]

        if labels := _first(source, candidates(ending)):
            boxes = _first(source, candidates("-annotations-bbox.csv"))
            found[split] = Part(labels, boxes, _first(source, candidates(f"-{images}", "-images-with-rotation.csv")))
    return found


def _first(source: Path, names: Sequence[str]) -> Path | None:
    """The first of these files, in the folder itself or in its 2017_11."""
    paths = [folder / name for folder in (source, source / "2017_11") for name in names]
    return next((path for path in paths if path.is_file()), None)
