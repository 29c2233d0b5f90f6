"""Formats by name: one module per format, with `read(…) -> Dataset` and, where users export it, `write(dataset, …)`.

A format module has

- `TITLE`, a line that says what it reads,
- `read(source, *, …, progress=SILENT) -> Dataset`,
- `write(dataset, target, *, …) -> None` if the format is in `WRITABLE`; it refuses what the format cannot express.

Modules are imported when they are used: `tagfill.formats.coco.read(…)`, or `get("coco").read(…)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

from tagfill.errors import TagfillError, unknown_name

FORMATS: dict[str, str] = {
    "cifar100": "tagfill.formats.cifar100",
    "coco": "tagfill.formats.coco",
    "coco-panoptic": "tagfill.formats.coco_panoptic",
    "csv": "tagfill.formats.csv",
    "cub": "tagfill.formats.cub",
    "cvat": "tagfill.formats.cvat",
    "fiftyone": "tagfill.formats.fiftyone",
    "folder": "tagfill.formats.folder",
    "hf": "tagfill.formats.hf",
    "imagenet": "tagfill.formats.imagenet",
    "label-studio": "tagfill.formats.label_studio",
    "lvis": "tagfill.formats.lvis",
    "nus-wide": "tagfill.formats.nus_wide",
    "objects365": "tagfill.formats.objects365",
    "openimages": "tagfill.formats.openimages",
    "tags": "tagfill.formats.tags",
    "voc": "tagfill.formats.voc",
    "wide-csv": "tagfill.formats.wide_csv",
    "yolo": "tagfill.formats.yolo",
}
WRITABLE = ("coco", "csv", "cvat", "fiftyone", "folder", "hf", "label-studio", "tags", "voc", "wide-csv", "yolo")

_MODULES = {path.rpartition(".")[2]: path for path in FORMATS.values()}

__all__ = ["FORMATS", "WRITABLE", "get"]


class NotWritableError(TagfillError, AttributeError):
    """A format that is only read was asked for its writer; also an AttributeError, so `hasattr` is False."""


def get(name: str) -> ModuleType:
    """Return the module of a format.

    Args:
        name: as in `FORMATS`, such as `coco-panoptic`.

    Raises:
        TagfillError: there is no such format; the nearest name is suggested.
    """
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    return importlib.import_module(FORMATS[name])


def read_only(name: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a format module without a writer, which says what can be written instead."""

    def missing(attribute: str) -> NoReturn:
        if attribute == "write":
            raise NotWritableError(
                f"The format '{name}' can only be read; formats that can be written are {', '.join(WRITABLE)}."
            )
        raise AttributeError(f"module '{FORMATS[name]}' has no attribute '{attribute}'")

    return missing


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'tagfill.formats' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
