"""Make torchvision importable beside a CPU-only torch.

On import, PyPI's torchvision registers fake versions of two operators. This fails if its compiled library was built for
another torch and did not define them (`operator torchvision::nms does not exist`). Defining the two schemas first
makes the import work; calling the operators still fails, but Tagfill never does. If torchvision imports without help,
this module changes nothing.
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
    """Import torchvision; define the missing operators only if the import fails without them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    _define_missing_operators()
    return importlib.import_module("torchvision")


import_torchvision()
