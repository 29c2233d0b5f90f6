"""The device that a network runs on."""

from __future__ import annotations

import torch

from tagfill.errors import TagfillError, one_of

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name, or for `auto` the first of CUDA, MPS and CPU that is there.

    Raises:
        TagfillError: if there is no such device.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    one_of("device", name, DEVICES)
    found = [kind for kind in ("cuda", "mps") if _is_available(kind)]
    if name == "auto":
        return torch.device(found[0] if found else "cpu")
    if name != "cpu" and name not in found:
        others = " or ".join(["cpu", *found])
        raise TagfillError(f"There is no device '{name}' on this machine; choose auto or {others}.")
    return torch.device(name)


def _is_available(kind: str) -> bool:
    return torch.cuda.is_available() if kind == "cuda" else torch.backends.mps.is_available()
