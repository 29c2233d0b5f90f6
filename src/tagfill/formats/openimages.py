"""Open Images V3, V5 (boxable classes) and V6: verified labels, present and absent; everything else is unknown.

    V3  2017_11/train/annotations-human.csv, classes-trainable.txt, class-descriptions.csv
    V5  train-annotations-human-imagelabels-boxable.csv, train-annotations-bbox.csv, class-descriptions-boxable.csv
    V6  oidv6-train-annotations-human-imagelabels.csv, oidv6-classes-trainable.txt, oidv6-class-descriptions.csv

and the same for validation and test. Images are `train/<id>.jpg` and so on. `bbox_labels_600_hierarchy.json`, if it is
there, gives the hierarchy, in which a class may have several parents.

Kuznetsova et al., The Open Images Dataset V4, IJCV 2020.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tagfill.annotations import NEGATIVE, POSITIVE, Dataset, LabelMatrix
from tagfill.errors import DatasetError, one_of
from tagfill.files import replacing
from tagfill.formats import openimages_files, openimages_tables, unsaid, writable
from tagfill.formats.collecting import Collector
from tagfill.formats.openimages_files import SPLITS, Part
from tagfill.formats.openimages_tables import CORNERS, FLAGS
from tagfill.progress import SILENT, Progress

TITLE = "Open Images V3, V5 and V6"
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
    edition, parts = openimages_files.find(folder, edition)
    ids = openimages_files.classes(folder, edition) or _labels_seen(parts)
    described = openimages_files.descriptions(folder, edition) if names == "display" else {}
    name_of = dict(zip(ids, openimages_files.display_names(ids, described), strict=True))
    collector = Collector(f"openimages-{edition}", folder, name_of.values(), source="openimages")
    for split, part in parts.items():
        found = _collect(collector, part, SPLITS[split], name_of, locations, progress)
        if images == "all":
            found += _listed(part, SPLITS[split])
        _add_images(collector, found, split)
    edges = _edges(folder, name_of) if hierarchy else ()
    return collector.dataset(hierarchy=edges)


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    undecided: str = "refuse",
    masks: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write the files of V5: labels, boxes, image lists, classes and hierarchy; images stay where they are.

    Class names serve as ids. Times and costs are not carried, nor other flags than `occluded`, `truncated`, `group`,
    `depiction` and `inside`.

    Args:
        dataset: with images named `train/<id>.jpg`, `validation/<id>.jpg` and `test/<id>.jpg`.
        target: the folder to write into.
        undecided: `refuse`, or `drop` to write "cannot tell" as not looked at.
        masks: `refuse`, or `box` to write masks as their boxes.
        progress: told about the splits.

    Raises:
        DatasetError: the format cannot say what the dataset says.
    """
    folder, kinds = Path(target), writable.box_kinds(masks)
    writable.require_splits(dataset, tuple(SPLITS), "Open Images")
    prepared = {}
    for split in dataset.splits:
        labels = dataset.labels(split)
        unsaid.decided(labels, undecided, "Open Images", split)
        places = writable.locations(dataset, split, labels, kinds, "Open Images")
        boxes = [_box(dataset, split, place) for place in places]
        prepared[split] = [_identity(name, split) for name in dataset.names(dataset.split(split))], boxes
    for split, (ids, boxes) in prepared.items():
        with progress.bar(f"Writing {split}", None, "files") as bar:
            start = f"{SPLITS[split]}-"
            verified = list(_verified(dataset, split, dataset.labels(split)))
            _write_csv(folder / f"{start}annotations-human-imagelabels-boxable.csv", _LABEL_COLUMNS, verified)
            _write_csv(folder / f"{start}annotations-bbox.csv", _BOX_COLUMNS, boxes)
            _write_csv(folder / f"{start}images-with-rotation.csv", ("ImageID",), [{"ImageID": name} for name in ids])
            bar.advance(3)
    classes = [{"id": name, "name": name} for name in dataset.classes]
    _write_csv(folder / "class-descriptions-boxable.csv", ("id", "name"), classes)
    if dataset.hierarchy:
        openimages_files.write_hierarchy(folder / openimages_files.HIERARCHY, dataset.classes, dataset.hierarchy)


def _collect(
    collector: Collector, part: Part, folder: str, name_of: dict[str, str], locations: str, progress: Progress
) -> list[pa.Array]:
    """Add the rows of a split; returns the names of its images, some more than once."""
    seen = []
    for batch in openimages_tables.blocks(part.labels, _LABEL_COLUMNS, progress):
        rows = openimages_tables.label_rows(batch, part.labels, folder, name_of)
        seen.append(pc.unique(rows["image"]))
        collector.add_rows(rows)
    if locations == "box" and part.boxes is not None:
        for batch in openimages_tables.blocks(part.boxes, _BOX_COLUMNS, progress):
            rows = openimages_tables.box_rows(batch, part.boxes, folder, name_of)
            seen.append(pc.unique(rows["image"]))
            collector.add_rows(rows)
    return seen


def _listed(part: Part, folder: str) -> list[pa.Array]:
    if part.images is None:
        raise DatasetError(f"There is no list of images beside {part.labels}; read with images='annotated'.")
    return [
        openimages_tables.image_names(batch["ImageID"], folder)
        for batch in openimages_tables.blocks(part.images, ("ImageID",))
    ]


def _add_images(collector: Collector, found: list[pa.Array], split: str) -> None:
    names = pc.unique(pa.chunked_array(found, pa.string()))
    if len(names):
        ordered = names.take(pc.sort_indices(names))
        collector.add_images({"image": ordered, "split": pa.array([split] * len(ordered))})


def _labels_seen(parts: dict[str, Part]) -> list[str]:
    """Class ids of the files themselves, sorted, where no file lists the classes."""
    found: set[str] = set()
    for part in parts.values():
        for batch in openimages_tables.blocks(part.labels, ("LabelName",)):
            found.update(pc.unique(batch["LabelName"]).to_pylist())
    return sorted(found)


def _edges(folder: Path, name_of: dict[str, str]) -> tuple[tuple[str, str], ...]:
    path = folder / openimages_files.HIERARCHY
    if not path.is_file():
        return ()
    edges = openimages_files.read_hierarchy(path)
    return tuple((name_of[child], name_of[parent]) for child, parent in edges if {child, parent} <= name_of.keys())


def _verified(dataset: Dataset, split: str, labels: LabelMatrix) -> Iterator[dict[str, Any]]:
    """Rows about whole images that agree with what was decided, one for each image and label."""
    position = {name: place for place, name in enumerate(dataset.names(dataset.split(split)))}
    codes = {label: code for code, label in enumerate(dataset.classes)}
    done = set()
    for batch in dataset.scan(["image", "label", "present", "kind", "source"]):
        whole = batch.filter(pc.equal(batch["kind"].cast(pa.string()), "image"))
        for row in whole.to_pylist():
            pair = (row["image"], row["label"])
            if row["image"] not in position or row["present"] is None or pair in done:
                continue
            state = writable.state(labels, position[row["image"]], codes[row["label"]])
            if state == (POSITIVE if row["present"] else NEGATIVE):
                done.add(pair)
                yield {
                    "ImageID": _identity(row["image"], split),
                    "Source": row["source"],
                    "LabelName": row["label"],
                    "Confidence": int(row["present"]),
                }


def _box(dataset: Dataset, split: str, place: writable.Location) -> dict[str, Any]:
    row = place.row
    return {
        "ImageID": _identity(row["image"], split),
        "Source": row["source"],
        "LabelName": dataset.classes[place.label],
        "XMin": row["x"] - row["w"] / 2,
        "XMax": row["x"] + row["w"] / 2,
        "YMin": row["y"] - row["h"] / 2,
        "YMax": row["y"] + row["h"] / 2,
        **{column: int(flag in (row["flags"] or ())) for column, flag in FLAGS.items()},
    }


def _identity(name: str, split: str) -> str:
    start, end = f"{SPLITS[split]}/", ".jpg"
    identity = name.removeprefix(start).removesuffix(end)
    if f"{start}{identity}{end}" != name or "/" in identity:
        raise DatasetError(f"Images of Open Images are named {start}<id>{end} in split {split}, but one is {name}.")
    return identity


def _write_csv(path: Path, columns: tuple[str, ...], records: list[dict[str, Any]]) -> None:
    table = pa.table({name: [record[name] for record in records] for name in columns})
    options = pa_csv.WriteOptions(include_header=columns != ("id", "name"))
    with replacing(path) as file:
        if records or options.include_header:
            pa_csv.write_csv(table, file, options)
