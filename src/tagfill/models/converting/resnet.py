"""Which ResNet a list of names is: by its blocks in each stage, and whether a block has two or three convolutions.

timm and torchvision agree on the names inside a ResNet (`layer3.22.bn2.weight`), and on what they compute.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tagfill.errors import TagfillError

_RESNETS: dict[tuple[tuple[int, ...], int], str] = {
    ((2, 2, 2, 2), 2): "resnet18",
    ((3, 4, 6, 3), 2): "resnet34",
    ((3, 4, 6, 3), 3): "resnet50",
    ((3, 4, 23, 3), 3): "resnet101",
    ((3, 8, 36, 3), 3): "resnet152",
}


def resnet_of(path: Path, names: Iterable[str]) -> str:
    """Timm's name of the ResNet with these tensors; the path is for the error.

    >>> resnet_of(Path("w.pth"), [f"layer{stage}.1.conv2.weight" for stage in (1, 2, 3, 4)])
    'resnet18'
    """
    convolutions = {tuple(name.split(".")[:3]) for name in names if name.startswith("layer") and ".conv" in name}
    depths = tuple(
        1 + max((int(block) for layer, block, _ in convolutions if layer == f"layer{stage}"), default=-1)
        for stage in (1, 2, 3, 4)
    )
    found = _RESNETS.get((depths, 3 if any(name == "conv3" for _, _, name in convolutions) else 2))
    if found is None:
        raise TagfillError(
            f"{path} does not hold a ResNet of 18, 34, 50, 101 or 152 layers: its stages have {depths} blocks."
        )
    return found
