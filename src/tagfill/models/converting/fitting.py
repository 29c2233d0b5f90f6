"""Giving renamed weights to a classifier: every tensor has its place, and every place its tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.classifier import Classifier

# of pixels in 0..255, as torchvision's and DeiT's ImageNet weights expect them
IMAGENET_MEAN = (255 * 0.485, 255 * 0.456, 255 * 0.406)
IMAGENET_STD = (255 * 0.229, 255 * 0.224, 255 * 0.225)


class Renaming:
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


def require_classes(path: Path, found: int, classes: Sequence[str]) -> None:
    """Refuse a list of classes that is not as long as the file's."""
    if found != len(classes):
        given = f"{len(classes)} names were given"
        raise TagfillError(f"{path} has {found} classes, but {given}; give one for each, in its order.")


def numbered(names: Iterable[str], prefix: str) -> int:
    """How many parts with a number of their own come after a prefix.

    >>> numbered(["layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.1.conv1.weight"], "layer1.")
    2
    """
    return len({name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)})
