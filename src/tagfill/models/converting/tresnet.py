"""TResNets as their authors wrote them, with in-place batch norms, under timm's names.

    conv1.0, conv1.1                        a convolution and its norm          conv1.conv, conv1.bn
    conv2.0.0, conv2.0.1                    the same before a blurred stride    conv2.conv, conv2.bn
    downsample.1.0, downsample.1.1          a shortcut                          downsample.1.conv, downsample.1.bn

An in-place batch norm, whose output must be invertible, multiplies by |w| + ε, with ε = 10⁻⁵, where an ordinary one
multiplies by w.

Ridnik, Lawen, Noy, Ben Baruch, Sharir and Friedman: *TResNet: High Performance GPU-Dedicated Architecture*, WACV 2021;
Rota Bulò, Porzi and Kontschieder: *In-Place Activated BatchNorm for Memory-Optimized Training of DNNs*, CVPR 2018.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.converting.fitting import numbered

# by the blocks of each stage, and the convolutions in one of the first stage
_TRESNETS: dict[tuple[tuple[int, ...], int], str] = {
    ((3, 4, 11, 3), 2): "tresnet_m",
    ((4, 5, 18, 3), 2): "tresnet_l",
    ((4, 5, 24, 3), 2): "tresnet_xl",
    ((3, 4, 23, 3), 3): "tresnet_v2_l",
}
_PAIR = re.compile(r"(conv\d|downsample\.\d)(?:\.0)?\.([01])\.(\w+)$")
_EPSILON = 1e-5


def tresnet_of(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Timm's name of the TResNet with these tensors; the path is for the error."""
    depths = tuple(numbered(weights, f"body.layer{stage}.") for stage in (1, 2, 3, 4))
    found = _TRESNETS.get((depths, 3 if "body.layer1.0.conv3.0.weight" in weights else 2))
    if found is None:
        raise TagfillError(f"{path} does not hold a TResNet-M, -L, -XL or second -L: its stages have {depths} blocks.")
    return found


def renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor with its name and timm's.

    >>> import torch
    >>> [(_, place, value)] = renamed({"body.layer2.0.conv1.0.1.weight": torch.tensor([-0.5])})
    >>> place, value
    ('body.layer2.0.conv1.bn.weight', tensor([0.5000]))
    """
    for name, value in weights.items():
        place = _PAIR.sub(lambda found: f"{found[1]}.{('conv', 'bn')[int(found[2])]}.{found[3]}", name)
        yield name, place, value.abs() + _EPSILON if place.endswith(".bn.weight") else value
