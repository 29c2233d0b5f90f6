"""CvTs as their authors wrote them, under the names of `tagfill.models.cvt`.

Query2Label takes the cells of the last stage, not the class token, and gives each of them the last norm: the backbones
with `_q2l` in their names do the same.

Wu, Xiao, Codella, Liu, Dai, Yuan and Zhang: *CvT: Introducing Convolutions to Vision Transformers*, ICCV 2021.


Swin transformers as their authors wrote them, under timm's names.

Both agree on all names but one: the reduction between two stages ends the first in the published files
(`layers.0.downsample`) and begins the second in timm (`layers.1.downsample`). Windows' indices and masks, which
published files hold too, are computed here.

Liu, Lin, Cao, Hu, Wei, Zhang, Lin and Guo: *Swin Transformer: Hierarchical Vision Transformer using Shifted Windows*,
ICCV 2021.

TResNets as their authors wrote them, with in-place batch norms, under timm's names.

    conv1.0, conv1.1                        a convolution and its norm          conv1.conv, conv1.bn
    conv2.0.0, conv2.0.1                    the same before a blurred stride    conv2.conv, conv2.bn
    downsample.1.0, downsample.1.1          a shortcut                          downsample.1.conv, downsample.1.bn

An in-place batch norm, whose output must be invertible, multiplies by |w| + ε, with ε = 10⁻⁵, where an ordinary one
multiplies by w.

Ridnik, Lawen, Noy, Ben Baruch, Sharir and Friedman: *TResNet: High Performance GPU-Dedicated Architecture*, WACV 2021;
Rota Bulò, Porzi and Kontschieder: *In-Place Activated BatchNorm for Memory-Optimized Training of DNNs*, CVPR 2018.

Backbones inside the files of Query2Label: one family a row, told by a tensor that only it has.

Models of Query2Label.

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
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.cvt import Q2L_SUFFIX, SIZES
from tagfill.models.published_weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Checkpoint,
    WeightMapper,
    check_class_count,
    count_numbered,
    identify_resnet,
)

_PARTS = {
    r"^stage(\d)\.": r"encoder.stages.\1.",
    r"\.patch_embed\.proj\.": ".embedding.convolution_embeddings.projection.",
    r"\.patch_embed\.norm\.": ".embedding.convolution_embeddings.normalization.",
    r"\.blocks\.": ".layers.",
    r"\.norm1\.": ".layernorm_before.",
    r"\.norm2\.": ".layernorm_after.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
    r"\.attn\.proj\.": ".attention.output.dense.",
    r"\.attn\.": ".attention.attention.",
    r"\.conv_proj_([qkv])\.conv\.": r".convolution_projection_\1.convolution_projection.convolution.",
    r"\.conv_proj_([qkv])\.bn\.": r".convolution_projection_\1.convolution_projection.normalization.",
    r"\.proj_([qkv])\.": r".projection_\1.",
    r"projection_q\.": "projection_query.",
    r"projection_k\.": "projection_key.",
    r"projection_v\.": "projection_value.",
    r"^norm\.": "layernorm.",
}


def identify_cvt(path: Path, weights: Mapping[str, Tensor]) -> str:
    """The name of the CvT with these tensors; the path is for the error."""
    embeddings = [f"stage{stage}.patch_embed.proj.weight" for stage in range(3)]
    widths = tuple(len(weights[name]) for name in embeddings if name in weights)
    depths = tuple(count_numbered(weights, f"stage{stage}.blocks.") for stage in range(3))
    for name, (_, depth, width, _) in SIZES.items():
        if (depth, width) == (depths, widths):
            return name + Q2L_SUFFIX
    raise TagfillError(
        f"{path} does not hold a CvT-13, CvT-21 or CvT-w24: its stages have {depths} blocks of width {widths}."
    )


def rename_cvt(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor with its name and that of `tagfill.models.cvt`.

    >>> import torch
    >>> [place for _, place, _ in renamed({"stage0.blocks.1.attn.conv_proj_k.bn.bias": torch.ones(4)})]
    ['encoder.stages.0.layers.1.attention.attention.convolution_projection_key.convolution_projection.normalization.bias']
    """
    for name, value in weights.items():
        place = name
        for pattern, replacement in _PARTS.items():
            place = re.sub(pattern, replacement, place)
        yield name, place, value


# by width, blocks of each stage, and side of a window
_SWINS: dict[tuple[int, tuple[int, ...], int], str] = {
    (96, (2, 2, 6, 2), 7): "swin_tiny_patch4_window7_224",
    (96, (2, 2, 18, 2), 7): "swin_small_patch4_window7_224",
    (128, (2, 2, 18, 2), 7): "swin_base_patch4_window7_224",
    (128, (2, 2, 18, 2), 12): "swin_base_patch4_window12_384",
    (192, (2, 2, 18, 2), 7): "swin_large_patch4_window7_224",
    (192, (2, 2, 18, 2), 12): "swin_large_patch4_window12_384",
}
_COMPUTED = (".relative_position_index", ".attn_mask")


def identify_swin(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Timm's name of the Swin transformer with these tensors; the path is for the error."""
    table = "layers.0.blocks.0.attn.relative_position_bias_table"
    if table not in weights:
        raise TagfillError(f"{path} lacks {table} of its Swin transformer.")
    width = len(weights["patch_embed.proj.weight"])
    depths = tuple(count_numbered(weights, f"layers.{stage}.blocks.") for stage in range(4))
    window = (math.isqrt(len(weights[table])) + 1) // 2  # a table for (2w − 1)² distances
    found = _SWINS.get((width, depths, window))
    if found is None:
        raise TagfillError(
            f"{path} does not hold a tiny, small, base or large Swin transformer: its width is {width}, its stages "
            f"have {depths} blocks, its windows a side of {window}."
        )
    return found


def rename_swin(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor that is not computed, with its name and timm's.

    >>> import torch
    >>> [place for _, place, _ in renamed({"layers.0.downsample.norm.weight": torch.ones(4)})]
    ['layers.1.downsample.norm.weight']
    """
    for name, value in weights.items():
        if not name.endswith(_COMPUTED):
            yield name, re.sub(r"^layers\.(\d)\.down", lambda found: f"layers.{int(found[1]) + 1}.down", name), value


# by the blocks of each stage, and the convolutions in one of the first stage
_TRESNETS: dict[tuple[tuple[int, ...], int], str] = {
    ((3, 4, 11, 3), 2): "tresnet_m",
    ((4, 5, 18, 3), 2): "tresnet_l",
    ((4, 5, 24, 3), 2): "tresnet_xl",
    ((3, 4, 23, 3), 3): "tresnet_v2_l",
}
_PAIR = re.compile(r"(conv\d|downsample\.\d)(?:\.0)?\.([01])\.(\w+)$")
_EPSILON = 1e-5


def identify_tresnet(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Timm's name of the TResNet with these tensors; the path is for the error."""
    depths = tuple(count_numbered(weights, f"body.layer{stage}.") for stage in (1, 2, 3, 4))
    found = _TRESNETS.get((depths, 3 if "body.layer1.0.conv3.0.weight" in weights else 2))
    if found is None:
        raise TagfillError(f"{path} does not hold a TResNet-M, -L, -XL or second -L: its stages have {depths} blocks.")
    return found


def rename_tresnet(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Each tensor with its name and timm's.

    >>> import torch
    >>> [(_, place, value)] = renamed({"body.layer2.0.conv1.0.1.weight": torch.tensor([-0.5])})
    >>> place, value
    ('body.layer2.0.conv1.bn.weight', tensor([0.5000]))
    """
    for name, value in weights.items():
        place = _PAIR.sub(lambda found: f"{found[1]}.{('conv', 'bn')[int(found[2])]}.{found[3]}", name)
        yield name, place, value.abs() + _EPSILON if place.endswith(".bn.weight") else value


@dataclass(frozen=True)
class BackboneFamily:
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


def _keep_names(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    for name, value in weights.items():
        yield name, name, value


_FAMILIES = (
    BackboneFamily("backbone.0.body.", "conv1.weight", 32, True, identify_resnet, _keep_names),
    BackboneFamily("backbone.0.body.", "body.conv1.0.weight", 32, False, identify_tresnet, rename_tresnet),
    BackboneFamily("backbone.0.", "patch_embed.proj.weight", 32, True, identify_swin, rename_swin),
    BackboneFamily("backbone.0.", "stage0.patch_embed.proj.weight", 16, True, identify_cvt, rename_cvt),
)


def identify_family(path: Path, weights: Mapping[str, Tensor]) -> BackboneFamily:
    """The family of the backbone in a file; the path is for the error."""
    for body in _FAMILIES:
        if body.prefix + body.telltale in weights:
            return body
    expected = ", ".join(body.prefix + body.telltale for body in _FAMILIES)
    raise TagfillError(
        f"{path} has none of {expected}; only Query2Label on a ResNet, TResNet, Swin transformer or CvT is known."
    )


_ENCODER, _DECODER = "transformer.encoder.layers.", "transformer.decoder.layers."
_POSITIONS = "backbone.1.pe"


def convert_q2l(
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
    body = identify_family(path, weights)
    if settings.get("pre_norm"):
        raise TagfillError(f"{path} was trained with pre_norm, which the query head does not have.")
    renaming = WeightMapper(path, weights)
    size = image_size or settings.get("img_size")
    if _POSITIONS in weights:
        rows, columns = renaming.pop(_POSITIONS).shape[-2:]
        size = size or (body.stride * rows, body.stride * columns)
    options = _options(checkpoint, settings, heads)
    check_class_count(path, _rename(renaming, options["keep_input_projection"]), classes)
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
    path: Path, body: BackboneFamily, size: Any, settings: dict[str, Any], imagenet_norm: bool | None
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
    encoder, decoder = (count_numbered(weights, prefix) for prefix in (_ENCODER, _DECODER))
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


def _rename(renaming: WeightMapper, projection: bool) -> int:
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
