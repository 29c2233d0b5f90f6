"""Models of the single-positive project of Cole et al. (MLSPL) and those derived from it.

    f.feature_extractor.0, .1, .4 … .7    conv1, bn1, layer1 … layer4 of a ResNet: a sequence of torchvision's children
    f.linear_classifier                   the classifier of pooled features (inside another `.fc` after LinearInit)
    g.logits                              ROLE's estimates of the training labels, left out

The classifier becomes a `cam` head, which gives the same logits, and class maps too.

Cole, Mac Aodha, Lorieul, Perona, Morris and Jojic: *Multi-Label Learning from Single Positive Labels*, CVPR 2021.


Models of TS-CAM: a DeiT under timm's names, with a 3×3 convolution as its `head`.

The size of the input follows from the number of positions.

Gao et al.: *TS-CAM: Token Semantic Coupled Attention Map for Weakly Supervised Object Localization*, ICCV 2021.

Published models of other projects as classifiers of this one, by explicit conversion only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tagfill.errors import TagfillError
from tagfill.models import convert_q2l
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.published_weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Checkpoint,
    WeightMapper,
    check_class_count,
    identify_resnet,
)

_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_EXTRACTOR, _CLASSIFIER = "f.feature_extractor.", "f.linear_classifier."


def convert_mlspl(
    checkpoint: Checkpoint, classes: Sequence[str], *, image_size: int | tuple[int, int] = 448
) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
        image_size: that it was trained at, (height, width) or the side of a square.
    """
    weights = {name: value for name, value in checkpoint.weights.items() if not name.startswith("g.")}
    renaming = WeightMapper(checkpoint.path, weights)
    places = {}
    for name in weights:
        if name.startswith(_EXTRACTOR):
            child, dot, rest = name.removeprefix(_EXTRACTOR).partition(".")
            if child in _CHILDREN:
                places[name] = _CHILDREN[child] + dot + rest
    inner = f"{_CLASSIFIER}fc." if f"{_CLASSIFIER}fc.weight" in weights else _CLASSIFIER
    found = renaming.take(f"{inner}weight", "head.fc.weight")
    renaming.take(f"{inner}bias", "head.fc.bias")
    check_class_count(checkpoint.path, len(found), classes)
    for name, place in places.items():
        renaming.take(name, f"backbone.model.{place}")
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    preprocessing = Preprocessing(size, IMAGENET_MEAN, IMAGENET_STD)
    backbone = identify_resnet(checkpoint.path, places.values())
    return renaming.load_into(create(backbone, "cam", classes, preprocessing=preprocessing))


_BY_WIDTH = {192: "deit_tiny_patch16_224", 384: "deit_small_patch16_224", 768: "deit_base_patch16_224"}
_PATCH = 16


def convert_tscam(checkpoint: Checkpoint, classes: Sequence[str]) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
    """
    renaming = WeightMapper(checkpoint.path, checkpoint.weights)
    found = renaming.take("head.weight", "head.conv.weight")
    renaming.take("head.bias", "head.conv.bias")
    check_class_count(checkpoint.path, len(found), classes)
    positions = renaming.take("pos_embed", "backbone.model.pos_embed")
    renaming.take_all("", "backbone.model.")
    _, tokens, width = positions.shape
    side = math.isqrt(tokens - 1)
    if width not in _BY_WIDTH or side * side != tokens - 1:
        raise TagfillError(
            f"{checkpoint.path} has pos_embed of shape {tuple(positions.shape)}, which is not that of a DeiT of width "
            f"{', '.join(map(str, _BY_WIDTH))} with one class token and a square grid."
        )
    preprocessing = Preprocessing((_PATCH * side, _PATCH * side), IMAGENET_MEAN, IMAGENET_STD)
    return renaming.load_into(create(_BY_WIDTH[width], "tscam", classes, preprocessing=preprocessing))


CONVERTERS: dict[str, Callable[..., Classifier]] = {
    "mlspl": convert_mlspl,
    "q2l": convert_q2l.convert_q2l,
    "tscam": convert_tscam,
}
