"""Models of the single-positive project of Cole et al. (MLSPL) and those derived from it.

    f.feature_extractor.0, .1, .4 … .7    conv1, bn1, layer1 … layer4 of a ResNet: a sequence of torchvision's children
    f.linear_classifier                   the classifier of pooled features (inside another `.fc` after LinearInit)
    g.logits                              ROLE's estimates of the training labels, left out

The classifier becomes a `cam` head, which gives the same logits, and class maps too.

Cole, Mac Aodha, Lorieul, Perona, Morris and Jojic: *Multi-Label Learning from Single Positive Labels*, CVPR 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.converting.checkpoint import Checkpoint
from tagfill.models.converting.fitting import IMAGENET_MEAN, IMAGENET_STD, Renaming, require_classes
from tagfill.models.converting.resnet import resnet_of

_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_EXTRACTOR, _CLASSIFIER = "f.feature_extractor.", "f.linear_classifier."


def convert(checkpoint: Checkpoint, classes: Sequence[str], *, image_size: int | tuple[int, int] = 448) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
        image_size: that it was trained at, (height, width) or the side of a square.
    """
    weights = {name: value for name, value in checkpoint.weights.items() if not name.startswith("g.")}
    renaming = Renaming(checkpoint.path, weights)
    places = {}
    for name in weights:
        if name.startswith(_EXTRACTOR):
            child, dot, rest = name.removeprefix(_EXTRACTOR).partition(".")
            if child in _CHILDREN:
                places[name] = _CHILDREN[child] + dot + rest
    inner = f"{_CLASSIFIER}fc." if f"{_CLASSIFIER}fc.weight" in weights else _CLASSIFIER
    found = renaming.take(f"{inner}weight", "head.fc.weight")
    renaming.take(f"{inner}bias", "head.fc.bias")
    require_classes(checkpoint.path, len(found), classes)
    for name, place in places.items():
        renaming.take(name, f"backbone.model.{place}")
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    preprocessing = Preprocessing(size, IMAGENET_MEAN, IMAGENET_STD)
    backbone = resnet_of(checkpoint.path, places.values())
    return renaming.load_into(create(backbone, "cam", classes, preprocessing=preprocessing))
