"""Reading a PyTorch file of somebody else's, without executing anything in it.

`torch.load` with `weights_only` builds tensors and plain containers alone; an `argparse.Namespace`, which many training
scripts save beside their weights, is the one exception, and holds plain values itself. Scores that are numbers of
NumPy, which many save too, are passed over: something that does nothing is put in the place of each. There is no other
way in: a file that needs more is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tagfill.errors import TagfillError


class _Nothing:
    """In the place of a number of NumPy and of its type, neither of which is made."""

    def __init__(self, *parts: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


_NUMPY = ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        path: of the file, for errors.
        weights: by name, without the prefix `module.` of models that trained on several devices.
        settings: of the script that wrote it, if it saved any.
    """

    path: Path
    weights: dict[str, Tensor]
    settings: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Weights and settings of a PyTorch file: a state dict, or a dictionary with one as `state_dict` or `model`."""
    content = _read(path)
    if not isinstance(content, Mapping):
        raise TagfillError(f"{path} holds a {type(content).__name__}, not weights by name; save a state dict.")
    weights = next((content[key] for key in ("state_dict", "model") if isinstance(content.get(key), Mapping)), content)
    saved = next((vars(value) for value in content.values() if isinstance(value, argparse.Namespace)), {})
    settings = {name: value for name, value in saved.items() if not isinstance(value, _Nothing)}
    for name, value in weights.items():
        if not isinstance(value, Tensor):
            raise TagfillError(f"{path} holds {name}, which is no tensor; save a state dict.")
    return Checkpoint(path, {str(name).removeprefix("module."): value for name, value in weights.items()}, settings)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise TagfillError(f"There is no file {path}.")
    try:
        with torch.serialization.safe_globals([argparse.Namespace, *((_Nothing, name) for name in _NUMPY)]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its reader, its unpickler or the archive gave, all meaning the same
        first = str(error).rpartition("WeightsUnpickler error: ")[2].strip().partition(". ")[0]
        reason = f" ({first})" if " " in first else ""  # an unpickler that met other bytes says no more than a number
        raise TagfillError(
            f"{path} cannot be read as a PyTorch file of tensors alone{reason}, and nothing else is ever read from "
            "one; where you trust it, save its state dict alone."
        ) from None
