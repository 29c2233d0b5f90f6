"""Published weights of other projects: reading their PyTorch files safely, and mapping tensors to a classifier.

Nothing in a file is executed. `torch.load` with `weights_only` builds tensors and plain containers only, with two
exceptions: an `argparse.Namespace`, which many training scripts save beside their weights and which contains plain
values, and NumPy scalars, which are replaced by an object that does nothing. A file that needs more is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.classifier import Classifier


class _Placeholder:
    """Replaces NumPy scalars and their dtype, neither of which is created."""

    def __init__(self, *parts: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


_NUMPY = ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")


@dataclass(frozen=True)
class PublishedWeights:
    """The content of a PyTorch file.

    Attributes:
        path: the file, for errors.
        weights: by name, without the prefix `module.` of models that were trained on several devices.
        settings: of the script that wrote it, if it saved any.
    """

    path: Path
    weights: dict[str, Tensor]
    settings: dict[str, Any] = field(default_factory=dict)


def read_published_weights(path: Path) -> PublishedWeights:
    """Read a PyTorch file that contains a state dict, or a dictionary with one as `state_dict` or `model`."""
    content = _load(path)
    if not isinstance(content, Mapping):
        raise TagfillError(f"{path} contains a {type(content).__name__}, not weights by name; save a state dict.")
    weights = next((content[key] for key in ("state_dict", "model") if isinstance(content.get(key), Mapping)), content)
    saved = next((vars(value) for value in content.values() if isinstance(value, argparse.Namespace)), {})
    settings = {name: value for name, value in saved.items() if not isinstance(value, _Placeholder)}
    for name, value in weights.items():
        if not isinstance(value, Tensor):
            raise TagfillError(f"{path} contains {name}, which is not a tensor; save a state dict.")
    return PublishedWeights(
        path, {str(name).removeprefix("module."): value for name, value in weights.items()}, settings
    )


def _load(path: Path) -> Any:
    if not path.is_file():
        raise TagfillError(f"There is no file {path}.")
    try:
        with torch.serialization.safe_globals([argparse.Namespace, *((_Placeholder, name) for name in _NUMPY)]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types, depending on what failed
        first = str(error).rpartition("WeightsUnpickler error: ")[2].strip().partition(". ")[0]
        reason = f" ({first})" if " " in first else ""  # for other bytes the message is only a number
        raise TagfillError(
            f"{path} cannot be read as a PyTorch file that contains only tensors{reason}; if you trust it, save only "
            "its state dict."
        ) from None


# of pixels in 0..255, as torchvision's and DeiT's ImageNet weights expect them
IMAGENET_MEAN = (255 * 0.485, 255 * 0.456, 255 * 0.406)
IMAGENET_STD = (255 * 0.229, 255 * 0.224, 255 * 0.225)


class WeightMapper:
    """Maps the tensors of a file to those of a classifier; each is used once, and none is left over.

    Args:
        path: the file, for errors.
        weights: its tensors, by name.
    """

    def __init__(self, path: Path, weights: dict[str, Tensor]) -> None:
        self._path = path
        self._left = dict(weights)
        self._mapped: dict[str, tuple[str, Tensor]] = {}

    def rename(self, name: str, target: str) -> Tensor:
        """Use a tensor of the file as that of the classifier with the name `target`."""
        value = self.pop(name)
        self.assign(target, value, name)
        return value

    def rename_all(self, prefix: str, target: str) -> None:
        """Rename all tensors whose names start with `prefix`, which is replaced by `target`."""
        for name in [name for name in self._left if name.startswith(prefix)]:
            self.rename(name, target + name.removeprefix(prefix))

    def pop(self, name: str) -> Tensor:
        """Remove a tensor of the file and return it."""
        if name not in self._left:
            raise TagfillError(f"{self._path} lacks {name}.")
        return self._left.pop(name)

    def pop_all(self, prefix: str) -> dict[str, Tensor]:
        """Remove all tensors whose names start with `prefix` and return them, by the rest of their names."""
        return {name.removeprefix(prefix): self.pop(name) for name in list(self._left) if name.startswith(prefix)}

    def assign(self, target: str, value: Tensor, name: str) -> None:
        """Set a tensor of the classifier.

        Args:
            target: its name.
            value: the tensor.
            name: name of the tensor of the file that it was made from, for errors.
        """
        self._mapped[target] = name, value

    def load_into(self, classifier: Classifier) -> Classifier:
        """Load the mapped tensors.

        Raises:
            TagfillError: if a tensor is left over, missing or of another shape.
        """
        if self._left:
            raise TagfillError(f"{self._path} has {next(iter(self._left))}, which this model does not have.")
        wanted = classifier.state_dict()
        for target, (name, value) in self._mapped.items():
            if target not in wanted:
                raise TagfillError(f"{self._path} has {name}, which this model does not have.")
            found, needed = tuple(value.shape), tuple(wanted[target].shape)
            if found != needed:
                raise TagfillError(f"{self._path} has {name} of shape {found}; this model needs {needed}.")
        state = {target: value for target, (_, value) in self._mapped.items()}
        for target, expected in wanted.items():
            if target.endswith(".num_batches_tracked"):  # frozen batch norms do not count
                state.setdefault(target, torch.zeros_like(expected))
            elif target not in state:
                raise TagfillError(f"{self._path} lacks weights for {target}, of shape {tuple(expected.shape)}.")
        classifier.load_state_dict(state)
        return classifier.eval()


def check_class_count(path: Path, found: int, classes: Sequence[str]) -> None:
    """Raise if the number of class names is not that of the file."""
    if found != len(classes):
        raise TagfillError(
            f"{path} has {found} classes, but {len(classes)} names were given; give one name per class, in its order."
        )


def count_numbered(names: Iterable[str], prefix: str) -> int:
    """Count the numbered modules after a prefix.

    >>> count_numbered(["layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.1.conv1.weight"], "layer1.")
    2
    """
    return len({name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)})


_RESNETS: dict[tuple[tuple[int, ...], int], str] = {
    ((2, 2, 2, 2), 2): "resnet18",
    ((3, 4, 6, 3), 2): "resnet34",
    ((3, 4, 6, 3), 3): "resnet50",
    ((3, 4, 23, 3), 3): "resnet101",
    ((3, 8, 36, 3), 3): "resnet152",
}


def identify_resnet(path: Path, names: Iterable[str]) -> str:
    """Identify a ResNet by its blocks per stage, and by two or three convolutions per block.

    timm and torchvision use the same names inside a ResNet (`layer3.22.bn2.weight`), and compute the same.

    Args:
        path: the file, for errors.
        names: names of its tensors.

    Returns:
        timm's name of the model.

    >>> identify_resnet(Path("w.pth"), [f"layer{stage}.1.conv2.weight" for stage in (1, 2, 3, 4)])
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
            f"{path} does not contain a ResNet of 18, 34, 50, 101 or 152 layers: its stages have {depths} blocks."
        )
    return found
