"""Models of Query2Label.

    backbone.0.body                 a ResNet under torchvision's names, its batch norms frozen
    backbone.0.body.body            or a TResNet, with in-place batch norms
    backbone.0.layers               or a Swin transformer
    backbone.0.stage0 … .stage2     or a CvT
    backbone.1.pe                   positions of the cells, which are computed here
    input_proj                      1×1 convolution to the width of the transformer, if there is one
    transformer.encoder.layers.N    DETR's layers, and so are those of the decoder; `self_attn` and `norm1` of a decoder
                                    layer only where queries attend to each other
    transformer.decoder.norm
    query_embed.weight              label embeddings
    fc.W, fc.b                      1×L×d, 1×L: a classifier for each class

All sizes follow from the shapes but for the number of attention heads and the normalisation of pixels, which follow
from the settings saved beside the weights, or are given. The released files have theirs in a JSON file of its own.

Liu, Zhang, Yang, Su and Zhu: *Query2Label: A Simple Transformer Way to Multi-Label Classification*, arXiv 2107.10834.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.converting.bodies import Body, body_of
from tagfill.models.converting.checkpoint import Checkpoint
from tagfill.models.converting.fitting import IMAGENET_MEAN, IMAGENET_STD, Renaming, numbered, require_classes

_ENCODER, _DECODER = "transformer.encoder.layers.", "transformer.decoder.layers."
_POSITIONS = "backbone.1.pe"


def convert(
    checkpoint: Checkpoint,
    classes: Sequence[str],
    *,
    config: Path | None = None,
    heads: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    imagenet_norm: bool | None = None,
) -> Classifier:
    """The classifier with the weights of a published state dict.

    Args:
        checkpoint: of the project.
        classes: names, in the order of its outputs.
        config: the JSON file of settings that was published with it, instead of those saved in the file itself.
        heads: of attention; those of the settings, or 4.
        image_size: (height, width) or the side of a square; that of the settings or of the saved positions, or 448.
        imagenet_norm: whether ImageNet's mean and deviation are used on pixels, and not 0 and 1; as the settings say,
            or yes, but for a TResNet.
    """
    weights, path = checkpoint.weights, checkpoint.path
    settings = checkpoint.settings if config is None else _read_settings(config)
    body = body_of(path, weights)
    if settings.get("pre_norm"):
        raise TagfillError(f"{path} was trained with pre_norm, which the query head does not have.")
    renaming = Renaming(path, weights)
    size = image_size or settings.get("img_size")
    if _POSITIONS in weights:
        rows, columns = renaming.pop(_POSITIONS).shape[-2:]
        size = size or (body.stride * rows, body.stride * columns)
    options = _options(checkpoint, settings, heads)
    require_classes(path, _rename(renaming, options["keep_input_projection"]), classes)
    tensors = renaming.pop_all(body.prefix)
    for name, place, value in body.renamed(tensors):
        renaming.put(f"backbone.model.{place}", value, body.prefix + name)
    classifier = create(
        body.name_of(path, tensors),
        "query",
        classes,
        preprocessing=_preprocessing(path, body, size or 448, settings, imagenet_norm),
        **options,
    )
    return renaming.load_into(classifier)


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TagfillError(f"{path} cannot be read as a JSON file of settings ({error}).") from None
    if not isinstance(content, dict):
        raise TagfillError(f"{path} does not hold settings by name.")
    return content


def _preprocessing(
    path: Path, body: Body, size: Any, settings: dict[str, Any], imagenet_norm: bool | None
) -> Preprocessing:
    """Size and normalisation of pixels, as told, as the settings say, or as the family's weights expect it."""
    if imagenet_norm is None and "orid_norm" in settings:
        imagenet_norm = not settings["orid_norm"]
    if imagenet_norm is None and not body.imagenet_norm:
        raise TagfillError(
            f"{path} does not say how pixels are normalised, and TResNets are pretrained on pixels that are not; "
            "give the published settings as config, or imagenet_norm as true or false."
        )
    mean, std = ((0.0,) * 3, (255.0,) * 3) if imagenet_norm is False else (IMAGENET_MEAN, IMAGENET_STD)
    height, width = (size, size) if isinstance(size, int) else size
    return Preprocessing((int(height), int(width)), mean, std)


def _options(checkpoint: Checkpoint, settings: dict[str, Any], heads: int | None) -> dict[str, Any]:
    """Options of the query head, read off the names and shapes."""
    weights = checkpoint.weights
    encoder, decoder = (numbered(weights, prefix) for prefix in (_ENCODER, _DECODER))
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
        "heads": int(heads or settings.get("nheads") or 4),
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "dropout": float(settings.get("dropout", 0.1)),
        "keep_input_projection": "input_proj.weight" in weights,
        "keep_first_self_attention": among[0],
        "keep_other_self_attention": any(among[1:]),
    }


def _rename(renaming: Renaming, projection: bool) -> int:
    """Move all tensors of the head to their places; the number of classes."""
    if projection:
        renaming.put("head.input_proj.weight", renaming.pop("input_proj.weight").flatten(1), "input_proj.weight")
        renaming.take("input_proj.bias", "head.input_proj.bias")
    found = renaming.pop("fc.W").squeeze(0)
    renaming.put("head.weight", found, "fc.W")
    renaming.put("head.bias", renaming.pop("fc.b").squeeze(0), "fc.b")
    renaming.take("query_embed.weight", "head.queries")
    renaming.take_all(_ENCODER, "head.encoder.")
    renaming.take_all(_DECODER, "head.decoder.")
    renaming.take_all("transformer.decoder.norm.", "head.norm.")
    return len(found)
