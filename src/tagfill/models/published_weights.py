"""Reading a PyTorch file of somebody else's, without executing anything in it.

`torch.load` with `weights_only` builds tensors and plain containers alone; an `argparse.Namespace`, which many training
scripts save beside their weights, is the one exception, and holds plain values itself. Scores that are numbers of
NumPy, which many save too, are passed over: something that does nothing is put in the place of each. There is no other
way in: a file that needs more is refused.


Giving renamed weights to a classifier: every tensor has its place, and every place its tensor.

Which ResNet a list of names is: by its blocks in each stage, and whether a block has two or three convolutions.

timm and torchvision agree on the names inside a ResNet (`layer3.22.bn2.weight`), and on what they compute.
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


# of pixels in 0..255, as torchvision's and DeiT's ImageNet weights expect them
IMAGENET_MEAN = (255 * 0.485, 255 * 0.456, 255 * 0.406)
IMAGENET_STD = (255 * 0.229, 255 * 0.224, 255 * 0.225)


class WeightMapper:
    """Weights of a file on their way to a classifier; each is taken once."""

    def __init__(self, path: Path, weights: dict[str, Tensor]) -> None:
        self._path = path
        self._left = dict(weights)
        self._taken: dict[str, tuple[str, Tensor]] = {}

    def take(self, name: str, place: str) -> Tensor:
        """Move one tensor of the file to a place in the classifier."""
        value = self.pop(name)
        self._taken[place] = name, value
        return value

    def take_all(self, prefix: str, place: str) -> None:
        """Move all tensors whose names begin with a prefix, which gives way to another."""
        for name in [name for name in self._left if name.startswith(prefix)]:
            self.take(name, place + name.removeprefix(prefix))

    def pop(self, name: str) -> Tensor:
        """Take one tensor out of the file."""
        if name not in self._left:
            raise TagfillError(f"{self._path} lacks {name}.")
        return self._left.pop(name)

    def pop_all(self, prefix: str) -> dict[str, Tensor]:
        """Take all tensors whose names begin with a prefix out of the file, by the rest of their names."""
        return {name.removeprefix(prefix): self.pop(name) for name in list(self._left) if name.startswith(prefix)}

    def put(self, place: str, value: Tensor, name: str) -> None:
        """A place gets a tensor made of one that was taken out under a name."""
        self._taken[place] = name, value

    def load_into(self, classifier: Classifier) -> Classifier:
        """Load what was moved; whatever is left over, lacking or of another shape is an error that names it."""
        if self._left:
            raise TagfillError(f"{self._path} has {next(iter(self._left))}, which has no place in this model.")
        wanted = classifier.state_dict()
        for place, (name, value) in self._taken.items():
            if place not in wanted:
                raise TagfillError(f"{self._path} has {name}, which has no place in this model.")
            found, needed = tuple(value.shape), tuple(wanted[place].shape)
            if found != needed:
                raise TagfillError(f"{self._path} has {name} of shape {found}; this model needs {needed}.")
        state = {place: value for place, (_, value) in self._taken.items()}
        for place, expected in wanted.items():
            if place.endswith(".num_batches_tracked"):  # frozen batch norms do not count
                state.setdefault(place, torch.zeros_like(expected))
            elif place not in state:
                raise TagfillError(f"{self._path} lacks weights for {place}, of shape {tuple(expected.shape)}.")
        classifier.load_state_dict(state)
        return classifier.eval()


def check_class_count(path: Path, found: int, classes: Sequence[str]) -> None:
    """Refuse a list of classes that is not as long as the file's."""
    if found != len(classes):
        given = f"{len(classes)} names were given"
        raise TagfillError(f"{path} has {found} classes, but {given}; give one for each, in its order.")


def count_numbered(names: Iterable[str], prefix: str) -> int:
    """How many parts with a number of their own come after a prefix.

    >>> numbered(["layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.1.conv1.weight"], "layer1.")
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
