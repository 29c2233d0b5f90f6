"""Backbones inside the files of Query2Label: one family a row, told by a tensor that only it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.converting import cvt, swin, tresnet
from tagfill.models.converting.resnet import resnet_of


@dataclass(frozen=True)
class Body:
    """A family of backbones.

    Attributes:
        prefix: of its tensors.
        telltale: a tensor that only this family has, after the prefix.
        stride: pixels a cell.
        imagenet_norm: whether pixels can be taken to be normalised by ImageNet's mean and deviation where settings do
            not say: so the published script does unless told, but TResNets are pretrained on pixels that are not.
        name_of: our name of the backbone with some tensors; the path is for errors.
        renamed: tensors, with their names and those of our backbone.
    """

    prefix: str
    telltale: str
    stride: int
    imagenet_norm: bool
    name_of: Callable[[Path, Mapping[str, Tensor]], str]
    renamed: Callable[[Mapping[str, Tensor]], Iterator[tuple[str, str, Tensor]]]


def _as_they_are(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    for name, value in weights.items():
        yield name, name, value


_BODIES = (
    Body("backbone.0.body.", "conv1.weight", 32, True, resnet_of, _as_they_are),
    Body("backbone.0.body.", "body.conv1.0.weight", 32, False, tresnet.tresnet_of, tresnet.renamed),
    Body("backbone.0.", "patch_embed.proj.weight", 32, True, swin.swin_of, swin.renamed),
    Body("backbone.0.", "stage0.patch_embed.proj.weight", 16, True, cvt.cvt_of, cvt.renamed),
)


def body_of(path: Path, weights: Mapping[str, Tensor]) -> Body:
    """The family of the backbone in a file; the path is for the error."""
    for body in _BODIES:
        if body.prefix + body.telltale in weights:
            return body
    expected = ", ".join(body.prefix + body.telltale for body in _BODIES)
    raise TagfillError(
        f"{path} has none of {expected}; only Query2Label on a ResNet, TResNet, Swin transformer or CvT is known."
    )
