"""Models of Query2Label with a ResNet as backbone.

    backbone.0.body                 a ResNet under torchvision's names, its batch norms frozen
    backbone.1.pe                   positions of the cells, which are computed here
    input_proj                      1×1 convolution to the width of the transformer, if there is one
    transformer.encoder.layers.N    DETR's layers, and so are those of the decoder; `self_attn` and `norm1` of a decoder
                                    layer only where queries attend to each other
    transformer.decoder.norm
    query_embed.weight              label embeddings
    fc.W, fc.b                      1×L×d, 1×L: a classifier for each class

All sizes follow from the shapes but for the number of attention heads and the normalisation of pixels, which follow
from the settings saved beside the weights, or are given.

Liu, Zhang, Yang, Su and Zhu: *Query2Label: A Simple Transformer Way to Multi-Label Classification*, arXiv 2107.10834.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tagfill.errors import TagfillError
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.converting.checkpoint import Checkpoint
from tagfill.models.converting.fitting import IMAGENET_MEAN, IMAGENET_STD, Renaming, require_classes
from tagfill.models.converting.resnet import resnet_of

_BODY, _ENCODER, _DECODER = "backbone.0.body.", "transformer.encoder.layers.", "transformer.decoder.layers."
_POSITIONS, _STRIDE = "backbone.1.pe", 32


def convert(
    checkpoint: Checkpoint,
    classes: Sequence[str],
    *,
    heads: int | None = None,
    image_size: int | None = None,
    imagenet_norm: bool | None = None,
) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
        heads: of attention; those of the saved settings, or 4.
        image_size: side of the square input; that of the saved settings or of the saved positions, or 448.
        imagenet_norm: whether ImageNet's mean and deviation are used on pixels, and not 0 and 1; as the saved settings
            say, or yes.
    """
    weights, settings = checkpoint.weights, checkpoint.settings
    body = [name.removeprefix(_BODY) for name in weights if name.startswith(_BODY)]
    if not body:
        raise TagfillError(f"{checkpoint.path} has no tensors {_BODY}…; only Query2Label on a ResNet is known.")
    if settings.get("pre_norm"):
        raise TagfillError(f"{checkpoint.path} was trained with pre_norm, which the query head does not have.")
    renaming = Renaming(checkpoint.path, weights)
    side = image_size or settings.get("img_size") or 448
    if _POSITIONS in weights:
        saved = renaming.pop(_POSITIONS)
        side = image_size or settings.get("img_size") or _STRIDE * saved.shape[-1]
    options = _options(checkpoint, heads or settings.get("nheads") or 4)
    require_classes(checkpoint.path, _rename(renaming, options["keep_input_projection"]), classes)
    plain = settings.get("orid_norm", False) if imagenet_norm is None else not imagenet_norm
    mean, std = ((0.0,) * 3, (255.0,) * 3) if plain else (IMAGENET_MEAN, IMAGENET_STD)
    classifier = create(
        resnet_of(checkpoint.path, body),
        "query",
        classes,
        preprocessing=Preprocessing((int(side), int(side)), mean, std),
        **options,
    )
    return renaming.load_into(classifier)


def _options(checkpoint: Checkpoint, heads: int) -> dict[str, Any]:
    """Options of the query head, read off the names and shapes."""
    weights = checkpoint.weights
    encoder, decoder = (_layers(weights, prefix) for prefix in (_ENCODER, _DECODER))
    first = f"{_DECODER}0.linear1.weight"
    if first not in weights:
        raise TagfillError(f"{checkpoint.path} lacks {first}.")
    ffn, width = weights[first].shape
    among = [f"{_DECODER}{layer}.self_attn.in_proj_weight" in weights for layer in range(decoder)]
    if len(set(among[1:])) > 1:
        raise TagfillError(f"{checkpoint.path} lets queries attend to each other in some of its later layers only.")
    return {
        "width": int(width),
        "ffn": int(ffn),
        "heads": int(heads),
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "dropout": float(checkpoint.settings.get("dropout", 0.1)),
        "keep_input_projection": "input_proj.weight" in weights,
        "keep_first_self_attention": among[0],
        "keep_other_self_attention": any(among[1:]),
    }


def _rename(renaming: Renaming, projection: bool) -> int:
    """Move all tensors to their places; the number of classes."""
    if projection:
        renaming.put("head.input_proj.weight", renaming.pop("input_proj.weight").flatten(1), "input_proj.weight")
        renaming.take("input_proj.bias", "head.input_proj.bias")
    found = renaming.pop("fc.W").squeeze(0)
    renaming.put("head.weight", found, "fc.W")
    renaming.put("head.bias", renaming.pop("fc.b").squeeze(0), "fc.b")
    renaming.take("query_embed.weight", "head.queries")
    renaming.take_all(_BODY, "backbone.model.")
    renaming.take_all(_ENCODER, "head.encoder.")
    renaming.take_all(_DECODER, "head.decoder.")
    renaming.take_all("transformer.decoder.norm.", "head.norm.")
    return len(found)


def _layers(weights: dict[str, Any], prefix: str) -> int:
    return len({name.removeprefix(prefix).partition(".")[0] for name in weights if name.startswith(prefix)})
