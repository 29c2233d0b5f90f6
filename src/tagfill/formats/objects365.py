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
from tagfill.formats.json_stream import JsonFile
from tagfill.formats.reader import Collector
from tagfill.progress import SILENT, Progress

TITLE = "Objects365 version 2"

__getattr__ = read_only("objects365")
FLAGS = {"iscrowd": "crowd", "isfake": "fake", "isreflected": "reflected"}
_SPLITS = ("train", "val")
_STORED = re.compile(r"images/v\d/(patch\d+/.+)")


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
        source: the folder that holds the JSON files, or their folder `annotations`.
        images: `annotated`, or `all` for those without any annotation too.
        locations: `box`, or `none` for labels of whole images.
        exhaustive: whether a class without an annotation is absent; otherwise it is unknown.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.
    """
    one_of("images", images, coco_json.IMAGES)
    one_of("locations", locations, ("box", "none"))
    folder = Path(source)
    found = {split: path for split in _SPLITS if (path := _file(folder, split)) is not None}
    if not found:
        raise DatasetError(f"{folder} has no zhiyuan_objv2_train.json and no zhiyuan_objv2_val.json.")
    files = {split: JsonFile.open(path) for split, path in found.items()}
    categories = coco_json.agreed_categories(list(files.values()))
    collector = Collector("objects365", folder, categories.names, source="objects365")
    for split, file in files.items():
        pictures = coco_json.read_pictures(file, _below(folder, split), progress)
        shown = coco_json.collect(
            file, collector, pictures, categories, locations=locations, flags=FLAGS, progress=progress
        )
        coco_json.add_images(collector, pictures, shown, split, images=images, exhaustive=exhaustive)
    return collector.dataset()


def _file(folder: Path, split: str) -> Path | None:
    name = f"zhiyuan_objv2_{split}.json"
    return next((path for path in (folder / name, folder / "annotations" / name) if path.is_file()), None)


def _below(folder: Path, split: str) -> Callable[[dict[str, Any], str], str]:
    """An image's path below the root; the files say images/v1/patch0/…, the archives unpack to patch0/…."""
    prefix = f"images/{split}" if (folder / "images" / split).is_dir() else split

    def name_of(item: dict[str, Any], where: str) -> str:
        name = coco_json.text_of(item, "file_name", where)
        stored = _STORED.fullmatch(name)
        return f"{prefix}/{stored[1]}" if stored else name

    return name_of
