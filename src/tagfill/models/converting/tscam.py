"""Models of TS-CAM: a DeiT under timm's names, with a 3×3 convolution as its `head`.

The size of the input follows from the number of positions.

Gao et al.: *TS-CAM: Token Semantic Coupled Attention Map for Weakly Supervised Object Localization*, ICCV 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tagfill.errors import TagfillError
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.converting.checkpoint import Checkpoint
from tagfill.models.converting.fitting import IMAGENET_MEAN, IMAGENET_STD, Renaming, require_classes

_BY_WIDTH = {192: "deit_tiny_patch16_224", 384: "deit_small_patch16_224", 768: "deit_base_patch16_224"}
_PATCH = 16


def convert(checkpoint: Checkpoint, classes: Sequence[str]) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
    """
    renaming = Renaming(checkpoint.path, checkpoint.weights)
    found = renaming.take("head.weight", "head.conv.weight")
    renaming.take("head.bias", "head.conv.bias")
    require_classes(checkpoint.path, len(found), classes)
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
