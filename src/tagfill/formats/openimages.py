"""Which files of Open Images are where, its classes and its hierarchy.

The CSV files of Open Images, read and turned into rows a block at a time.

Open Images V3, V5 (boxable classes) and V6: verified labels, present and absent; everything else is unknown.

    V3  2017_11/train/annotations-human.csv, classes-trainable.txt, class-descriptions.csv
    V5  train-annotations-human-imagelabels-boxable.csv, train-annotations-bbox.csv, class-descriptions-boxable.csv
    V6  oidv6-train-annotations-human-imagelabels.csv, oidv6-classes-trainable.txt, oidv6-class-descriptions.csv

and the same for validation and test. Images are `train/<id>.jpg` and so on. `bbox_labels_600_hierarchy.json`, if it is
there, gives the hierarchy, in which a class may have several parents.

Kuznetsova et al., The Open Images Dataset V4, IJCV 2020.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, read_only, text_files
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

SPLITS = {"train": "train", "val": "validation", "test": "test"}
HIERARCHY = "bbox_labels_600_hierarchy.json"
_VERSIONS = ("", "oidv6-", "oidv7-")
_HEADERS = {("LabelName", "DisplayName"), ("id", "name")}


@dataclass(frozen=True)
class Part:
    """The files of a split: labels, boxes and the list of all images, the latter two if they are there."""

    labels: Path
    boxes: Path | None
    images: Path | None


def find_files(source: Path, edition: str | None) -> tuple[str, dict[str, Part]]:
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
    return coco_json.distinct([described.get(identity, identity) for identity in ids], ids)


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


FLAGS = {
    "IsOccluded": "occluded",
    "IsTruncated": "truncated",
    "IsGroupOf": "group",
    "IsDepiction": "depiction",
    "IsInside": "inside",
}
CORNERS = ("XMin", "XMax", "YMin", "YMax")
_TYPES = {
    "ImageID": pa.string(),
    "Source": pa.string(),
    "LabelName": pa.string(),
    "Confidence": pa.float32(),
    **dict.fromkeys(CORNERS, pa.float64()),
    **dict.fromkeys(FLAGS, pa.int8()),
}
_BLOCK = 4 << 20  # bytes


def blocks(path: Path, columns: tuple[str, ...], progress: Progress = SILENT) -> Iterator[pa.RecordBatch]:
    """Some columns of a CSV file."""
    _, header = next(text_files.cells(path))
    text_files.require_distinct(path, header)
    try:
        with (
            pa_csv.open_csv(
                path,
                read_options=pa_csv.ReadOptions(block_size=_BLOCK),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=columns, column_types={name: _TYPES[name] for name in columns}
                ),
            ) as reader,
            progress.bar(f"Reading {path.name}", None, "rows") as bar,
        ):
            for batch in reader:
                yield batch
                bar.advance(batch.num_rows)
    except (pa.ArrowException, KeyError) as error:
        problem = " ".join(str(error).strip("'\"").split())
        raise DatasetError(f"{path} cannot be read: {problem}.") from None


def image_names(ids: pa.Array, folder: str) -> pa.Array:
    """Images' paths below the root."""
    strange = pc.match_substring_regex(ids, r"^$|/|\x00")
    if pc.any(strange).as_py():
        wrong = ids.filter(strange)[0].as_py()
        raise DatasetError(f"'{wrong[:60]}' is not the id of an image of Open Images; mend the file.")
    return pc.binary_join_element_wise(folder + "/", ids, ".jpg", "")


def label_rows(batch: pa.RecordBatch, path: Path, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of rows about whole images, without labels that are no class."""
    wrong = np.flatnonzero(~np.isin(batch["Confidence"].to_numpy(zero_copy_only=False), (0.0, 1.0)))
    if len(wrong):
        row = batch.slice(int(wrong[0]), 1).to_pylist()[0]
        raise DatasetError(
            f"{path}: label {row['LabelName']} of image {row['ImageID']} has a confidence of {row['Confidence']}, but "
            "verified labels have 1 or 0; machine labels are not verified."
        )
    columns = _shared(batch, folder, names)
    kept = columns.pop("kept")
    return {**columns, "present": pc.equal(batch["Confidence"].filter(kept), 1.0)}


def box_rows(batch: pa.RecordBatch, path: Path, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of rows about boxes, without labels that are no class."""
    columns = _shared(batch, folder, names)
    kept = columns.pop("kept")
    left, right, top, bottom = (batch[name].filter(kept).to_numpy(zero_copy_only=False) for name in CORNERS)
    finite = np.isfinite([left, right, top, bottom]).all(axis=0)
    wrong = np.flatnonzero(~((right >= left) & (bottom >= top) & finite))
    if len(wrong):
        row = batch.filter(kept).slice(int(wrong[0]), 1).to_pylist()[0]
        raise DatasetError(f"{path}: a box of {row['LabelName']} in image {row['ImageID']} ends before it begins.")
    size = len(left)
    return {
        **columns,
        "present": pa.array(np.ones(size, dtype=bool)),
        "kind": pa.array(["box"]).take(pa.array(np.zeros(size, dtype=np.int64))),
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
        "w": right - left,
        "h": bottom - top,
        "flags": _flags(batch.filter(kept)),
    }


def _shared(batch: pa.RecordBatch, folder: str, names: Mapping[str, str]) -> dict[str, Any]:
    coded = batch["LabelName"].dictionary_encode()
    known = pa.array([names.get(identity) for identity in coded.dictionary.to_pylist()], pa.string())
    labels = known.take(coded.indices)
    kept = labels.is_valid()
    return {
        "kept": kept,
        "image": image_names(batch["ImageID"].filter(kept), folder),
        "label": labels.filter(kept),
        "source": batch["Source"].filter(kept),
    }


def _flags(batch: pa.RecordBatch) -> pa.Array:
    """A list of flags for each row, null where it is empty; -1 stands for a flag that nobody checked."""
    given: NDArray[np.bool_] = np.stack(
        [batch[name].to_numpy(zero_copy_only=False) == 1 for name in FLAGS], axis=1
    ).reshape(-1, len(FLAGS))
    counts = given.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.array(list(FLAGS.values())).take(pa.array(np.nonzero(given)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))


TITLE = "Open Images V3, V5 and V6"

__getattr__ = read_only("openimages")
_LABEL_COLUMNS = ("ImageID", "Source", "LabelName", "Confidence")
_BOX_COLUMNS = ("ImageID", "Source", "LabelName", *CORNERS, *FLAGS)
_EDITIONS = ("v3", "v5", "v6")


def read(
    source: str | os.PathLike[str],
    *,
    edition: str | None = None,
    names: str = "display",
    locations: str = "box",
    images: str = "annotated",
    hierarchy: bool = True,
    progress: Progress = SILENT,
) -> Dataset:
    """Read Open Images.

    Args:
        source: the folder of the CSV files; also of the image folders train, validation and test.
        edition: `v3`, `v5` or `v6`, if the folder has several.
        names: `display` for names such as Cat, or `mid` for ids such as /m/01yrx. Names that occur twice get their id.
        locations: `box` if there are files of boxes, or `none`.
        images: `annotated` for those with a label of some class, or `all` that the list of images has.
        hierarchy: whether the hierarchy is used, if its file is there.
        progress: told about the rows.

    Raises:
        DatasetError: a file is missing or damaged.
    """
    folder = Path(source)
    if edition is not None:
        one_of("edition", edition, _EDITIONS)
    one_of("names", names, ("display", "mid"))
    one_of("locations", locations, ("box", "none"))
    one_of("images", images, ("annotated", "all"))
    edition, parts = find_files(folder, edition)
    ids = classes(folder, edition) or _labels_seen(parts)
    described = descriptions(folder, edition) if names == "display" else {}
    name_of = dict(zip(ids, display_names(ids, described), strict=True))
    collector = Collector(f"openimages-{edition}", folder, name_of.values(), source="openimages")
    for split, part in parts.items():
        found = _collect(collector, part, SPLITS[split], name_of, locations, progress)
        if images == "all":
            found += _listed(part, SPLITS[split])
        _add_images(collector, found, split)
    edges = _edges(folder, name_of) if hierarchy else ()
    return collector.dataset(hierarchy=edges)


def _collect(
    collector: Collector, part: Part, folder: str, name_of: dict[str, str], locations: str, progress: Progress
) -> list[pa.Array]:
    """Add the rows of a split; returns the names of its images, some more than once."""
    seen = []
    for batch in blocks(part.labels, _LABEL_COLUMNS, progress):
        rows = label_rows(batch, part.labels, folder, name_of)
        seen.append(pc.unique(rows["image"]))
        collector.add_rows(rows)
    if locations == "box" and part.boxes is not None:
        for batch in blocks(part.boxes, _BOX_COLUMNS, progress):
            rows = box_rows(batch, part.boxes, folder, name_of)
            seen.append(pc.unique(rows["image"]))
            collector.add_rows(rows)
    return seen


def _listed(part: Part, folder: str) -> list[pa.Array]:
    if part.images is None:
        raise DatasetError(f"There is no list of images beside {part.labels}; read with images='annotated'.")
    return [image_names(batch["ImageID"], folder) for batch in blocks(part.images, ("ImageID",))]


def _add_images(collector: Collector, found: list[pa.Array], split: str) -> None:
    names = pc.unique(pa.chunked_array(found, pa.string()))
    if len(names):
        ordered = names.take(pc.sort_indices(names))
        collector.add_images({"image": ordered, "split": pa.array([split] * len(ordered))})


def _labels_seen(parts: dict[str, Part]) -> list[str]:
    """Class ids of the files themselves, sorted, where no file lists the classes."""
    found: set[str] = set()
    for part in parts.values():
        for batch in blocks(part.labels, ("LabelName",)):
            found.update(pc.unique(batch["LabelName"]).to_pylist())
    return sorted(found)


def _edges(folder: Path, name_of: dict[str, str]) -> tuple[tuple[str, str], ...]:
    path = folder / HIERARCHY
    if not path.is_file():
        return ()
    edges = read_hierarchy(path)
    return tuple((name_of[child], name_of[parent]) for child, parent in edges if {child, parent} <= name_of.keys())
