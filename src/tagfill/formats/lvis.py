"""LVIS v0.5 and v1: a federated dataset, in which most labels of most images are unknown.

    lvis_v1_train.json, lvis_v1_val.json   (here or in annotations/; likewise lvis_v0.5_…)
    train2017/000000000009.jpg, …          (the images of COCO 2017)

An annotation says present. `neg_category_ids` of an image are verified absent. `not_exhaustive_category_ids` are
present, but not every instance is marked: the label of the image carries the flag `not_exhaustive`. All other labels
were not annotated and are unknown.

Gupta et al., LVIS: A Dataset for Large Vocabulary Instance Segmentation, CVPR 2019.
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
from tagfill.formats.coco_json import Categories, CocoFileReader
from tagfill.formats.dataset_builder import DatasetBuilder
from tagfill.formats.json_stream import JsonFile, short_json
from tagfill.progress import SILENT, Progress

TITLE = "LVIS v0.5 and v1"

_NOT_EXHAUSTIVE = "not_exhaustive"
_ABSENT_KEY, _NOT_EXHAUSTIVE_KEY = "neg_category_ids", "not_exhaustive_category_ids"
_COCO_NAME = re.compile(r"(?:COCO_(?:train|val|test)2014_)?(\d{12}\.jpg)")

__getattr__ = read_only("lvis")


def read(
    source: str | os.PathLike[str],
    *,
    version: str | None = None,
    locations: str = "mask",
    progress: Progress = SILENT,
) -> Dataset:
    """Read LVIS.

    Args:
        source: the folder that holds the JSON files, or the parent of their folder `annotations`.
        version: `v0.5` or `v1`, if the folder has both.
        locations: `mask`, `box`, or `none` for labels of whole images.
        progress: told about the bytes read.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts itself.
    """
    one_of("locations", locations, coco_json.LOCATIONS)
    folder = Path(source)
    files = {split: JsonFile.open(path) for split, path in _find_files(folder, version).items()}
    categories = coco_json.read_shared_categories(list(files.values()))
    builder = DatasetBuilder("lvis", folder, categories.names, source="lvis")
    for split, file in files.items():
        verified = _VerifiedCategories(file, categories)
        reader = CocoFileReader(
            file,
            builder,
            categories,
            _path_of(split),
            locations=locations,
            visit=verified.visit,
            progress=progress,
        )
        reader.add_annotations()
        verified.add_rows(builder, reader)
        reader.add_images(split, images="all", exhaustive=False)
    return builder.build()


class _VerifiedCategories:
    """The categories that images list as absent or not exhaustive, kept until the annotations have been read."""

    def __init__(self, file: JsonFile, categories: Categories) -> None:
        self._path, self._categories = file.path, categories
        self._absent: dict[Any, list[int]] = {}
        self._not_exhaustive: dict[Any, list[int]] = {}

    def visit(self, identity: Any, item: dict[str, Any]) -> None:
        """Keep the categories of one image."""
        for key, kept in ((_ABSENT_KEY, self._absent), (_NOT_EXHAUSTIVE_KEY, self._not_exhaustive)):
            if not isinstance(item.get(key), list):
                raise DatasetError(
                    f"{self._path}, image {short_json(identity)} has no {key}; this is not a file of LVIS."
                )
            kept[identity] = [self._code(identity, key, category) for category in item[key]]

    def add_rows(self, builder: DatasetBuilder, reader: CocoFileReader) -> None:
        """Add a row per category; raise if one is both absent and present."""
        identities = list(reader.images.position)
        names = self._categories.names
        for position, labels in reader.present_labels():
            identity, image = identities[position], reader.images.names[position]
            not_exhaustive = {names[code] for code in self._not_exhaustive[identity]}
            absent = {names[code] for code in self._absent[identity]}
            if both := absent & not_exhaustive.union(labels):
                raise DatasetError(
                    f"{self._path}, image {short_json(identity)}: '{min(both)}' is both verified absent and shown by "
                    "an annotation."
                )
            for label in sorted(not_exhaustive):
                builder.add_row(image, label, True, flags=[_NOT_EXHAUSTIVE])
            for label in sorted(absent):
                builder.add_row(image, label, False)

    def _code(self, identity: Any, key: str, category: Any) -> int:
        if not isinstance(category, int | str) or isinstance(category, bool) or category not in self._categories.code:
            raise DatasetError(
                f"{self._path}, image {short_json(identity)}: {key} has category {short_json(category)}, which is not "
                "among the categories."
            )
        return self._categories.code[category]


def _find_files(folder: Path, version: str | None) -> dict[str, Path]:
    """Return the files of one version, by split."""
    versions = ("v1", "v0.5") if version is None else (version,)
    found: dict[str, dict[str, Path]] = {}
    for each in versions:
        for split in ("train", "val"):
            for path in (folder / f"lvis_{each}_{split}.json", folder / "annotations" / f"lvis_{each}_{split}.json"):
                if path.is_file():
                    found.setdefault(each, {})[split] = path
    if not found:
        raise DatasetError(f"{folder} has no lvis_{version or 'v1'}_train.json and no lvis_{version or 'v1'}_val.json.")
    if len(found) > 1:
        raise DatasetError(f"{folder} has {' and '.join(found)} of LVIS; choose one with version=.")
    return next(iter(found.values()))


def _path_of(split: str) -> Callable[[dict[str, Any], str], str]:
    """Return a `path_of`: v1 has only `coco_url`, v0.5 has names of COCO 2014 for images of COCO 2017."""

    def path_of(item: dict[str, Any], where: str) -> str:
        if "coco_url" in item:
            return "/".join(coco_json.require_text(item, "coco_url", where).split("/")[-2:])
        name = coco_json.require_text(item, "file_name", where)
        official = _COCO_NAME.fullmatch(name)
        return f"{split}2017/{official[1]}" if official else name

    return path_of
