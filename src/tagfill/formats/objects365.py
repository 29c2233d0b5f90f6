"""Objects365 version 2: COCO-style files with boxes.

    zhiyuan_objv2_train.json, zhiyuan_objv2_val.json   (here or in annotations/)
    train/patch0/objects365_v1_00000000.jpg, …         (or images/train/patch0/…)

Labels are exhaustive: a class without a box is absent. The 1.7 million images and 365 classes of the train split make
600 million absences; `exhaustive=False` leaves them unknown.

Shao et al., Objects365: A Large-scale, High-quality Dataset for Object Detection, ICCV 2019.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.formats import coco_json, read_only
from tagfill.formats.coco_json import CocoFileReader
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.json_stream import JsonFile
from tagfill.progress import SILENT, Progress

TITLE = "Objects365 version 2"

_FLAGS = {"iscrowd": "crowd", "isfake": "fake", "isreflected": "reflected"}
_STORED_NAME = re.compile(r"images/v\d/(patch\d+/.+)")

__getattr__ = read_only("objects365")


def read(
    source: str | os.PathLike[str],
    *,
    images: str = "annotated",
    locations: str = "box",
    exhaustive: bool = True,
    progress: Progress = SILENT,
) -> Dataset:
    """Read Objects365.

    Args:
        source: the folder that holds the JSON files, or the parent of their folder `annotations`.
        images: `annotated`, or `all` to include images without any annotation.
        locations: `box`, or `none` for labels of whole images.
        exhaustive: whether a class without an annotation is absent; otherwise it is unknown.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.
    """
    one_of("images", images, coco_json.IMAGES)
    one_of("locations", locations, ("box", "none"))
    folder = Path(source)
    paths = {split: path for split in ("train", "val") if (path := _find_file(folder, split)) is not None}
    if not paths:
        raise DatasetError(f"{folder} has no zhiyuan_objv2_train.json and no zhiyuan_objv2_val.json.")
    files = {split: JsonFile.open(path) for split, path in paths.items()}
    categories = coco_json.read_shared_categories(list(files.values()))
    builder = DatasetBuilder("objects365", folder, categories.names, source="objects365")
    for split, file in files.items():
        path_of = _path_of(folder, split)
        reader = CocoFileReader(
            file, builder, categories, path_of, locations=locations, flags=_FLAGS, progress=progress
        )
        reader.add_annotations()
        reader.add_images(split, images=images, exhaustive=exhaustive)
    return builder.build()


def _find_file(folder: Path, split: str) -> Path | None:
    name = f"zhiyuan_objv2_{split}.json"
    return next((path for path in (folder / name, folder / "annotations" / name) if path.is_file()), None)


def _path_of(folder: Path, split: str) -> Callable[[dict[str, Any], str], str]:
    """Return a `path_of`: the files say images/v1/patch0/…, the archives unpack to patch0/…."""
    prefix = f"images/{split}" if (folder / "images" / split).is_dir() else split

    def path_of(item: dict[str, Any], where: str) -> str:
        name = coco_json.require_text(item, "file_name", where)
        stored = _STORED_NAME.fullmatch(name)
        return f"{prefix}/{stored[1]}" if stored else name

    return path_of
