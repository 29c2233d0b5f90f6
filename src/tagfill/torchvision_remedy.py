"""Make torchvision importable beside a CPU-only torch.

PyPI's torchvision registers fake versions of two operators on import, and fails where its compiled library
is built for another torch and has not defined them (`operator torchvision::nms does not exist`). Defining
the two schemas first lets the import through; calling them still fails, and nothing here does. Where
torchvision imports by itself this module changes nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: torch.library.Library | None = None  # the schemas live as long as this object


def _define_missing_operators() -> None:
    global _library
    _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _library.define(name + _SCHEMA)  # type: ignore[no-untyped-call]


def import_torchvision() -> Any:
    """Import torchvision, defining the missing operators only if it does not import without them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    _define_missing_operators()
    return importlib.import_module("torchvision")


def applied() -> bool:
    """Whether the operators had to be defined in this process."""
    return _library is not None


import_torchvision()
