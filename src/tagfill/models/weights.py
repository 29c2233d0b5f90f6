"""Weights of a backbone from a safetensors file of one's own.

Names are timm's, or those of the published files that timm itself knows how to read. Tables of positions that were
learned at another resolution are interpolated, as timm does with the weights of its hub. Everything else must fit.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tagfill.errors import TagfillError

_PICKLES = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar"}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    if path.suffix in _PICKLES:
        raise TagfillError(
            f"{path} is a PyTorch file, which could run code when it is read; turn it into a safetensors file first: "
            f"tagfill convert backbone {path} --out {path.with_suffix('.safetensors')}"
        )
    if not path.is_file():
        raise TagfillError(
            f"There is no file {path}; weights are True (timm's own), 'bundled', or the path of a safetensors file."
        )
    try:
        return load_file(path)
    except SafetensorError as error:
        raise TagfillError(f"{path} cannot be read as a safetensors file ({error}).") from None


def load_weights(model: Any, state: dict[str, Tensor], name: str) -> None:
    """Give a timm model without a classifier these weights; what belongs to a classifier is left out.

    Args:
        model: timm's model, already at the size of its input.
        state: weights by name.
        name: of the model, for the error.
    """
    wanted = model.state_dict()
    fitted = _fitted(model, state, wanted)
    for key, value in wanted.items():
        if key not in fitted:
            raise TagfillError(f"The weights given for {name} lack {key}, of shape {tuple(value.shape)}.")
        if fitted[key].shape != value.shape:
            raise TagfillError(
                f"The weights given for {name} have {key} of shape {tuple(fitted[key].shape)}; "
                f"it needs {tuple(value.shape)}."
            )
    classifiers = _classifiers(model)
    for key in fitted:
        if key not in wanted and not key.startswith(classifiers):
            raise TagfillError(f"The weights given for {name} have {key}, which it does not know.")
    model.load_state_dict({key: fitted[key] for key in wanted})


def _fitted(model: Any, state: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights as timm's own reading of published files would give them to this model.

    Tensors that fit by name and shape are taken as they are: Swin's reading moves names about in a file without a
    classifier, which it takes for a file of an older time.
    """
    published = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if published is None or all(key in state and state[key].shape == wanted[key].shape for key in wanted):
        return state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch about the speed of timm's interpolation
        read: dict[str, Tensor] = published(dict(state), model)
    if any(key not in state for key in wanted):
        return read
    return {key: read[key] if key in wanted and state[key].shape != wanted[key].shape else state[key] for key in state}


def _classifiers(model: Any) -> tuple[str, ...]:
    names = model.pretrained_cfg.get("classifier") or ()
    return tuple(f"{name}." for name in ((names,) if isinstance(names, str) else names))
