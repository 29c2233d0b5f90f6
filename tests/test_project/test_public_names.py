"""Names that version 0.1 documented still work: under the same name, or under a new one with a warning."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

from tagfill.errors import TagfillError

NAMES = Path(__file__).with_name("public_names_0.1.txt").read_text(encoding="utf-8").split()
REMOVED_WRITERS = {"cifar100", "coco_panoptic", "cub", "imagenet", "lvis", "nus_wide", "objects365", "openimages"}


def test_names_of_version_0_1_still_work():
    lost = []
    for name in NAMES:
        module, _, attribute = name.rpartition(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError, TagfillError):
                lost.append(name)
    assert lost == [f"tagfill.formats.{name}.write" for name in sorted(REMOVED_WRITERS)]
