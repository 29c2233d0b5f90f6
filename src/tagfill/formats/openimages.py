"""Open Images V3, V5 (boxable classes) and V6: verified labels, present and absent; everything else is unknown.

    V3  2017_11/train/annotations-human.csv, classes-trainable.txt, class-descriptions.csv
    V5  train-annotations-human-imagelabels-boxable.csv, train-annotations-bbox.csv, class-descriptions-boxable.csv
    V6  oidv6-train-annotations-human-imagelabels.csv, oidv6-classes-trainable.txt, oidv6-class-descriptions.csv

and the same for validation and test. Images are `train/<id>.jpg` and so on. `bbox_labels_600_hierarchy.json`, if it is
there, is the hierarchy, in which a class may have several parents. The CSV files are read in blocks, since those of V6
have tens of millions of rows.

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
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.progress import SILENT, Progress

TITLE = "Open Images V3, V5 and V6"

_FOLDERS = {"train": "train", "val": "validation", "test": "test"}  # of each split
_HIERARCHY = "bbox_labels_600_hierarchy.json"
_PREFIXES = ("", "oidv6-", "oidv7-")
_HEADERS = {("LabelName", "DisplayName"), ("id", "name")}
_FLAGS = {
    "IsOccluded": "occluded",
    "IsTruncated": "truncated",
    "IsGroupOf": "group",
    "IsDepiction": "depiction",
    "IsInside": "inside",
}
_CORNERS = ("XMin", "XMax", "YMin", "YMax")
_LABEL_COLUMNS = ("ImageID", "Source", "LabelName", "Confidence")
_BOX_COLUMNS = ("ImageID", "Source", "LabelName", *_CORNERS, *_FLAGS)
_TYPES = {
    "ImageID": pa.string(),
    "Source": pa.string(),
    "LabelName": pa.string(),
    "Confidence": pa.float32(),
    **dict.fromkeys(_CORNERS, pa.float64()),
    **dict.fromkeys(_FLAGS, pa.int8()),
}
_BLOCK_BYTES = 4 << 20

__getattr__ = read_only("openimages")


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
        source: the folder of the CSV files and of the image folders train, validation and test.
        edition: `v3`, `v5` or `v6`, if the folder has several.
        names: `display` for names such as Cat, or `mid` for ids such as /m/01yrx. Names that occur twice get their id.
        locations: `box` if there are files of boxes, or `none`.
        images: `annotated` for those with a label of some class, or `all` that the list of images has.
        hierarchy: whether to use the hierarchy, if its file is there.
        progress: told about the rows.

    Raises:
        DatasetError: a file is missing or damaged.
    """
    folder = Path(source)
    if edition is not None:
        one_of("edition", edition, ("v3", "v5", "v6"))
    one_of("names", names, ("display", "mid"))
    one_of("locations", locations, ("box", "none"))
    one_of("images", images, ("annotated", "all"))
    edition, parts = _find_files(folder, edition)
    ids = _read_class_ids(folder, edition) or _find_class_ids(parts)
    displayed = _read_descriptions(folder, edition) if names == "display" else {}
    classes = coco_json.unique_names([displayed.get(identity, identity) for identity in ids], ids)
    name_of = dict(zip(ids, classes, strict=True))
    builder = DatasetBuilder(f"openimages-{edition}", folder, classes, source="openimages")
    for split, part in parts.items():
        found = _add_rows(builder, part, _FOLDERS[split], name_of, locations, progress)
        if images == "all":
            found += _read_image_list(part, _FOLDERS[split])
        _add_images(builder, found, split)
    return builder.build(hierarchy=_read_edges(folder / _HIERARCHY, name_of) if hierarchy else ())


@dataclass(frozen=True)
class _Part:
    """The files of a split: labels and, if they exist, boxes and the list of all images."""

    labels: Path
    boxes: Path | None
    images: Path | None


def _find_files(source: Path, edition: str | None) -> tuple[str, dict[str, _Part]]:
    """Return the edition of the files in a folder, and the files of each split."""
    finders = {"v3": _find_v3, "v5": _find_v5, "v6": _find_v6}
    found = {name: parts for name, find in finders.items() if edition in (None, name) and (parts := find(source))}
    if not found:
        raise DatasetError(
            f"{source} has no labels of Open Images{'' if edition is None else f' {edition}'}: neither "
            "train/annotations-human.csv nor train-annotations-human-imagelabels-boxable.csv nor "
            "oidv6-train-annotations-human-imagelabels.csv, or the same for validation and test."
        )
    if len(found) > 1:
        raise DatasetError(f"{source} has {' and '.join(found)} of Open Images; choose one with edition=.")
    return next(iter(found.items()))


def _find_v3(source: Path) -> dict[str, _Part]:
    found = {}
    for split, folder in _FOLDERS.items():
        if labels := _first_file(source, [f"{folder}/annotations-human.csv"]):
            boxes, images = labels.with_name("annotations-human-bbox.csv"), labels.with_name("images.csv")
            found[split] = _Part(labels, boxes if boxes.is_file() else None, images if images.is_file() else None)
    return found


def _find_v5(source: Path) -> dict[str, _Part]:
    return _find_flat(source, "-annotations-human-imagelabels-boxable.csv", "images-boxable-with-rotation.csv")


def _find_v6(source: Path) -> dict[str, _Part]:
    return _find_flat(source, "-annotations-human-imagelabels.csv", "images-with-labels-with-rotation.csv")


def _find_flat(source: Path, ending: str, images: str) -> dict[str, _Part]:
    """Find the files of an edition whose file names begin with the split."""
    found = {}
    for split, folder in _FOLDERS.items():

        def candidates(*endings: str, folder: str = folder) -> list[str]:
            names = [f"{prefix}{folder}{ending}" for ending in endings for prefix in _PREFIXES]
            return [*names, *(f"{folder}/{name}" for name in names)]

        if labels := _first_file(source, candidates(ending)):
            boxes = _first_file(source, candidates("-annotations-bbox.csv"))
            listed = _first_file(source, candidates(f"-{images}", "-images-with-rotation.csv"))
            found[split] = _Part(labels, boxes, listed)
    return found


def _first_file(source: Path, names: Sequence[str]) -> Path | None:
    """Return the first of these files that exists, in the folder itself or in its folder 2017_11."""
    paths = [folder / name for folder in (source, source / "2017_11") for name in names]
    return next((path for path in paths if path.is_file()), None)


def _read_class_ids(source: Path, edition: str) -> list[str] | None:
    """Return the ids of the classes, in the order of their file; None if there is no such file."""
    if edition == "v5":
        return list(_read_descriptions(source, edition)) or None
    path = _first_file(source, [f"{prefix}classes-trainable.txt" for prefix in _PREFIXES])
    if path is None:
        return None
    return list(dict.fromkeys(word for _, line in text_files.read_lines(path) for word in line.split()))


def _find_class_ids(parts: dict[str, _Part]) -> list[str]:
    """Return the class ids that labels use, sorted, if no file lists the classes."""
    found: set[str] = set()
    for part in parts.values():
        for batch in _read_blocks(part.labels, ("LabelName",)):
            found.update(pc.unique(batch["LabelName"]).to_pylist())
    return sorted(found)


def _read_descriptions(source: Path, edition: str) -> dict[str, str]:
    """Return the display name of each class id; none if there is no such file."""
    ending = "-boxable" if edition == "v5" else ""
    path = _first_file(source, [f"{prefix}class-descriptions{ending}.csv" for prefix in _PREFIXES])
    if path is None:
        return {}
    names: dict[str, str] = {}
    for number, cells in text_files.read_table(path):
        row = [cell.strip() for cell in cells]
        if not names and tuple(row[:2]) in _HEADERS:
            continue
        if len(row) < 2:
            raise DatasetError(f"{path}, line {number} is not a class id and a name.")
        if names.setdefault(row[0], row[1]) != row[1]:
            raise text_files.line_error(path, number, f"another name of class {row[0][:60]}", "drop one of them")
    return names


def _read_edges(path: Path, name_of: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the (child, parent) classes of the hierarchy; a class may have several parents, parts are skipped."""
    if not path.is_file():
        return ()
    try:
        tree = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid JSON: {error}.") from None

    def edges(node: Any) -> Iterator[tuple[str, str]]:
        for child in node.get("Subcategory", []):
            yield child["LabelName"], node["LabelName"]
            yield from edges(child)

    try:
        found = list(dict.fromkeys(edges(tree)))
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise DatasetError(f"{path} has a node that is not a LabelName with Subcategory.") from None
    return tuple((name_of[child], name_of[parent]) for child, parent in found if {child, parent} <= name_of.keys())


def _add_rows(
    builder: DatasetBuilder, part: _Part, folder: str, name_of: dict[str, str], locations: str, progress: Progress
) -> list[pa.Array]:
    """Add the rows of a split; return the names of its images, with repetitions."""
    seen = []
    for batch in _read_blocks(part.labels, _LABEL_COLUMNS, progress):
        rows = _label_rows(batch, part.labels, folder, name_of)
        seen.append(pc.unique(rows["image"]))
        builder.add_rows(rows)
    if locations == "box" and part.boxes is not None:
        for batch in _read_blocks(part.boxes, _BOX_COLUMNS, progress):
            rows = _box_rows(batch, part.boxes, folder, name_of)
            seen.append(pc.unique(rows["image"]))
            builder.add_rows(rows)
    return seen


def _read_image_list(part: _Part, folder: str) -> list[pa.Array]:
    if part.images is None:
        raise DatasetError(f"There is no list of images beside {part.labels}; read with images='annotated'.")
    return [_image_names(batch["ImageID"], folder) for batch in _read_blocks(part.images, ("ImageID",))]


def _add_images(builder: DatasetBuilder, found: list[pa.Array], split: str) -> None:
    names = pc.unique(pa.chunked_array(found, pa.string()))
    if len(names):
        ordered = names.take(pc.sort_indices(names))
        builder.add_images({"image": ordered, "split": pa.array([split] * len(ordered))})


def _read_blocks(path: Path, columns: tuple[str, ...], progress: Progress = SILENT) -> Iterator[pa.RecordBatch]:
    """Iterate over blocks of some columns of a CSV file."""
    _, header = next(text_files.read_table(path))
    text_files.require_distinct_columns(path, header)
    try:
        with (
            pa_csv.open_csv(
                path,
                read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
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


def _label_rows(batch: pa.RecordBatch, path: Path, folder: str, name_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of rows about whole images, without labels that are not classes."""
    wrong = np.flatnonzero(~np.isin(batch["Confidence"].to_numpy(zero_copy_only=False), (0.0, 1.0)))
    if len(wrong):
        row = batch.slice(int(wrong[0]), 1).to_pylist()[0]
        raise DatasetError(
            f"{path}: label {row['LabelName']} of image {row['ImageID']} has a confidence of {row['Confidence']}, but "
            "verified labels have 1 or 0; machine labels are not verified."
        )
    columns = _shared_columns(batch, folder, name_of)
    kept = columns.pop("kept")
    return {**columns, "present": pc.equal(batch["Confidence"].filter(kept), 1.0)}


def _box_rows(batch: pa.RecordBatch, path: Path, folder: str, name_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns of rows about boxes, without labels that are not classes."""
    columns = _shared_columns(batch, folder, name_of)
    kept = columns.pop("kept")
    left, right, top, bottom = (batch[name].filter(kept).to_numpy(zero_copy_only=False) for name in _CORNERS)
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


def _shared_columns(batch: pa.RecordBatch, folder: str, name_of: Mapping[str, str]) -> dict[str, Any]:
    """Return image, label and source of the rows whose label is a class, and which rows were `kept`."""
    coded = batch["LabelName"].dictionary_encode()
    known = pa.array([name_of.get(identity) for identity in coded.dictionary.to_pylist()], pa.string())
    labels = known.take(coded.indices)
    kept = labels.is_valid()
    return {
        "kept": kept,
        "image": _image_names(batch["ImageID"].filter(kept), folder),
        "label": labels.filter(kept),
        "source": batch["Source"].filter(kept),
    }


def _image_names(ids: pa.Array, folder: str) -> pa.Array:
    """Return the paths of images below the root."""
    strange = pc.match_substring_regex(ids, r"^$|/|\x00")
    if pc.any(strange).as_py():
        wrong = ids.filter(strange)[0].as_py()
        raise DatasetError(f"'{wrong[:60]}' is not the id of an image of Open Images; correct the file.")
    return pc.binary_join_element_wise(folder + "/", ids, ".jpg", "")


def _flags(batch: pa.RecordBatch) -> pa.Array:
    """Return a list of flags for each row, null if it is empty; -1 stands for a flag that was not checked."""
    given: NDArray[np.bool_] = np.stack(
        [batch[name].to_numpy(zero_copy_only=False) == 1 for name in _FLAGS], axis=1
    ).reshape(-1, len(_FLAGS))
    counts = given.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.array(list(_FLAGS.values())).take(pa.array(np.nonzero(given)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))
