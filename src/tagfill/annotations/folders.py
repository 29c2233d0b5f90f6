"""The folder of a dataset: `dataset.yaml` beside the two tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagfill.annotations import description, tables
from tagfill.annotations.image_root import image_root
from tagfill.annotations.rows import IMAGES_SCHEMA, SCHEMA
from tagfill.files import replacing

if TYPE_CHECKING:
    from tagfill.annotations.dataset import Dataset


def read(folder: Path) -> dict[str, Any]:
    """The attributes of the dataset in a folder; of the annotations only the head of their file is read."""
    content = description.read(folder)
    rows, images = tables.find(folder, "annotations"), tables.find(folder, "images")
    tables.check(rows, SCHEMA)
    truth = content.get("truth")
    return {
        "name": content["name"],
        "root": _found(image_root(content["root"]), folder),
        "classes": tuple(content["classes"]),
        "images": tables.read(images, IMAGES_SCHEMA),
        "annotations": rows,
        "hierarchy": tuple((child, parent) for child, parent in content.get("hierarchy", [])),
        "truth": None if truth is None else _found(Path(truth), folder),
        "protocol": content.get("protocol"),
        "folder": folder,
        "conflict": content.get("conflict", "error"),
    }


def write(dataset: Dataset, folder: Path, kind: str) -> None:
    """Write the three files, and remove tables of the other kind.

    All of them are complete before the first takes its place, and `dataset.yaml` is the last to do so.
    """
    write_table = tables.writer(kind)
    with replacing(folder / description.FILE) as text:
        text.write(description.dump(_content(dataset, folder)))
        with replacing(folder / f"annotations.{kind}") as rows, replacing(folder / f"images.{kind}") as images:
            write_table(images, dataset.images.to_batches(), IMAGES_SCHEMA)
            write_table(rows, dataset.scan(), SCHEMA)
        for other in tables.KINDS:
            if other != kind:
                for name in ("annotations", "images"):
                    (folder / f"{name}.{other}").unlink(missing_ok=True)


def _content(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """What `dataset.yaml` says."""
    content: dict[str, Any] = {
        "name": dataset.name,
        "root": _relative(image_root(dataset.root), folder),
        "classes": list(dataset.classes),
    }
    if dataset.hierarchy:
        content["hierarchy"] = [list(edge) for edge in dataset.hierarchy]
    if dataset.truth is not None:
        content["truth"] = _relative(dataset.truth, folder)
    if dataset.protocol is not None:
        content["protocol"] = dict(dataset.protocol)
    if dataset.conflict != "error":
        content["conflict"] = dataset.conflict
    return content


def _relative(path: Path | str, folder: Path) -> str:
    """A path as written into `folder`: relative, so that both can move together; a URL stays what it is."""
    return path if isinstance(path, str) else os.path.relpath(path.absolute(), folder.absolute())


def _found(path: Path | str, folder: Path) -> Path | str:
    """What was written into `folder`, as seen from here."""
    return path if isinstance(path, str) else Path(os.path.normpath(folder / path))
