"""Converting published models of other projects to classifiers.

MLSPL, TS-CAM and torchvision's ResNets are here, Query2Label in `convert_q2l`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tagfill.errors import TagfillError
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.convert_q2l import convert_q2l
from tagfill.models.published_weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PublishedWeights,
    WeightMapper,
    check_class_count,
    identify_resnet,
)

_RESNET_MODULES = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_EXTRACTOR, _CLASSIFIER = "f.feature_extractor.", "f.linear_classifier."


def convert_mlspl(
    published: PublishedWeights, classes: Sequence[str], *, image_size: int | tuple[int, int] = 448
) -> Classifier:
    """Convert a model of the single-positive project of Cole et al. (MLSPL), or of projects derived from it.

        f.feature_extractor.0, .1, .4 … .7    conv1, bn1, layer1 … layer4 of a ResNet: torchvision's modules in sequence
        f.linear_classifier                   the classifier of pooled features (below another `.fc` after LinearInit)
        g.logits                              ROLE's estimates of the training labels, ignored

    The classifier becomes a `cam` head, which computes the same logits, and class maps too.

    Cole, Mac Aodha, Lorieul, Perona, Morris and Jojic: *Multi-Label Learning from Single Positive Labels*, CVPR 2021.

    Args:
        published: weights that the project published.
        classes: class names, in the order of its outputs.
        image_size: size that it was trained at, (height, width) or the side of a square.
    """
    weights = {name: value for name, value in published.weights.items() if not name.startswith("g.")}
    mapper = WeightMapper(published.path, weights)
    targets = {}
    for name in weights:
        if name.startswith(_EXTRACTOR):
            child, dot, rest = name.removeprefix(_EXTRACTOR).partition(".")
            if child in _RESNET_MODULES:
                targets[name] = _RESNET_MODULES[child] + dot + rest
    inner = f"{_CLASSIFIER}fc." if f"{_CLASSIFIER}fc.weight" in weights else _CLASSIFIER
    found = mapper.rename(f"{inner}weight", "head.fc.weight")
    mapper.rename(f"{inner}bias", "head.fc.bias")
    check_class_count(published.path, len(found), classes)
    for name, target in targets.items():
        mapper.rename(name, f"backbone.model.{target}")
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    preprocessing = Preprocessing(size, IMAGENET_MEAN, IMAGENET_STD)
    backbone = identify_resnet(published.path, targets.values())
    return mapper.load_into(create(backbone, "cam", classes, preprocessing=preprocessing))


_DEIT_BY_WIDTH = {192: "deit_tiny_patch16_224", 384: "deit_small_patch16_224", 768: "deit_base_patch16_224"}
_PATCH = 16


def convert_tscam(published: PublishedWeights, classes: Sequence[str]) -> Classifier:
    """Convert a model of TS-CAM: a DeiT with timm's names, and a 3×3 convolution as its `head`.

    The input size follows from the number of positions.

    Gao et al.: *TS-CAM: Token Semantic Coupled Attention Map for Weakly Supervised Object Localization*, ICCV 2021.

    Args:
        published: weights that the project published.
        classes: class names, in the order of its outputs.
    """
    mapper = WeightMapper(published.path, published.weights)
    found = mapper.rename("head.weight", "head.conv.weight")
    mapper.rename("head.bias", "head.conv.bias")
    check_class_count(published.path, len(found), classes)
    positions = mapper.rename("pos_embed", "backbone.model.pos_embed")
    mapper.rename_all("", "backbone.model.")
    _, tokens, width = positions.shape
    side = math.isqrt(tokens - 1)
    if width not in _DEIT_BY_WIDTH or side * side != tokens - 1:
        raise TagfillError(
            f"{published.path} has pos_embed of shape {tuple(positions.shape)}, which is not that of a DeiT of width "
            f"{', '.join(map(str, _DEIT_BY_WIDTH))} with one class token and a square grid."
        )
    preprocessing = Preprocessing((_PATCH * side, _PATCH * side), IMAGENET_MEAN, IMAGENET_STD)
    return mapper.load_into(create(_DEIT_BY_WIDTH[width], "tscam", classes, preprocessing=preprocessing))


def convert_torchvision(
    published: PublishedWeights, classes: Sequence[str], *, image_size: int | tuple[int, int] = 224
) -> Classifier:
    """Convert a ResNet of torchvision with its own classifier, such as the one for ImageNet's 1,000 classes.

        conv1, bn1, layer1 … layer4    the backbone
        fc                             the classifier of pooled features

    The classifier becomes a `cam` head, which computes the same logits, and class maps too. A network that was trained
    to name one class per image is then scored as a multi-label classifier, class by class.

    Args:
        published: weights that torchvision published.
        classes: class names, in the order of its outputs: for ImageNet, the sorted identifiers.
        image_size: size that it was trained at, (height, width) or the side of a square.
    """
    mapper = WeightMapper(published.path, published.weights)
    found = mapper.rename("fc.weight", "head.fc.weight")
    mapper.rename("fc.bias", "head.fc.bias")
    check_class_count(published.path, len(found), classes)
    backbone = identify_resnet(published.path, [name for name in published.weights if not name.startswith("fc.")])
    mapper.rename_all("", "backbone.model.")
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    preprocessing = Preprocessing(size, IMAGENET_MEAN, IMAGENET_STD)
    return mapper.load_into(create(backbone, "cam", classes, preprocessing=preprocessing))


CONVERTERS: dict[str, Callable[..., Classifier]] = {
    "mlspl": convert_mlspl,
    "q2l": convert_q2l,
    "torchvision": convert_torchvision,
    "tscam": convert_tscam,
}
