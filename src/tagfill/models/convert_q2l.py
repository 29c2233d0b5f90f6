"""Converting models of Query2Label, with a ResNet, TResNet, Swin transformer or CvT as backbone.

    backbone.0.body                 a ResNet with torchvision's names, its batch norms frozen
    backbone.0.body.body            or a TResNet, with in-place batch norms
    backbone.0.layers               or a Swin transformer
    backbone.0.stage0 … .stage2     or a CvT
    backbone.1.pe                   positions of the cells, which are computed here
    input_proj                      1×1 convolution to the width of the transformer, if there is one
    transformer.encoder.layers.N    DETR's layers, as are those of the decoder; `self_attn` and `norm1` of a decoder
                                    layer exist only if queries attend to each other
    transformer.decoder.norm
    query_embed.weight              label embeddings
    fc.W, fc.b                      1×L×d, 1×L: a classifier per class

All sizes follow from the shapes, except the number of attention heads and the normalization of pixels. These come from
the settings saved beside the weights, or are given. The released files have their settings in a separate JSON file.

Liu, Zhang, Yang, Su and Zhu: *Query2Label: A Simple Transformer Way to Multi-Label Classification*, arXiv 2107.10834.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from torch import Tensor

from tagfill.errors import TagfillError, first_problem
from tagfill.models.backbone import Preprocessing
from tagfill.models.classifier import Classifier, create
from tagfill.models.cvt import Q2L_SUFFIX, SIZES
from tagfill.models.published_weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PublishedWeights,
    WeightMapper,
    check_class_count,
    count_numbered,
    identify_resnet,
)

_ENCODER, _DECODER = "transformer.encoder.layers.", "transformer.decoder.layers."
_POSITIONS = "backbone.1.pe"


class _Settings(BaseModel):
    """Settings of the published training script that the conversion needs."""

    pre_norm: bool = False
    img_size: int | tuple[int, int] | None = None
    orid_norm: bool | None = None  # true: pixels are not normalized by ImageNet's mean and deviation
    nheads: int | None = None
    dropout: float = 0.1


def convert_q2l(
    published: PublishedWeights,
    classes: Sequence[str],
    *,
    config: Path | None = None,
    heads: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    imagenet_norm: bool | None = None,
) -> Classifier:
    """Convert a model of Query2Label.

    Args:
        published: weights that the project published.
        classes: class names, in the order of its outputs.
        config: the JSON file of settings that was published with it, instead of those saved with the weights.
        heads: number of attention heads; by default that of the settings, or 4.
        image_size: (height, width) or the side of a square; by default that of the settings or of the saved positions,
            or 448.
        imagenet_norm: whether pixels are normalized by ImageNet's mean and deviation, instead of 0 and 1; by default as
            the settings say, or true, except for a TResNet.
    """
    weights, path = published.weights, published.path
    settings = _read_settings(published, config)
    family = identify_family(path, weights)
    if settings.pre_norm:
        raise TagfillError(f"{path} was trained with pre_norm, which the query head does not have.")
    mapper = WeightMapper(path, weights)
    size = image_size or settings.img_size
    if _POSITIONS in weights:
        rows, columns = mapper.pop(_POSITIONS).shape[-2:]
        size = size or (family.stride * rows, family.stride * columns)
    options = _head_options(published, settings, heads)
    check_class_count(path, _map_head(mapper, options["keep_input_projection"]), classes)
    tensors = mapper.pop_all(family.prefix)
    for name, target, value in family.rename(tensors):
        mapper.assign(f"backbone.model.{target}", value, family.prefix + name)
    classifier = create(
        family.identify(path, tensors),
        "query",
        classes,
        preprocessing=_preprocessing(path, family, size or 448, settings, imagenet_norm),
        **options,
    )
    return mapper.load_into(classifier)


def _read_settings(published: PublishedWeights, config: Path | None) -> _Settings:
    try:
        if config is None:
            return _Settings.model_validate(published.settings)
        return _Settings.model_validate_json(config.read_bytes())
    except (OSError, ValidationError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error.strerror
        raise TagfillError(f"The settings in {config or published.path} cannot be read: {problem}.") from None


def _preprocessing(
    path: Path,
    family: BackboneFamily,
    size: int | tuple[int, int],
    settings: _Settings,
    imagenet_norm: bool | None,
) -> Preprocessing:
    """Size and normalization of pixels: as given, else as in the settings, else as the family's weights expect."""
    if imagenet_norm is None and settings.orid_norm is not None:
        imagenet_norm = not settings.orid_norm
    if imagenet_norm is None and not family.imagenet_norm:
        raise TagfillError(
            f"{path} does not say how pixels are normalized, and TResNets are pretrained on pixels that are not; "
            "give the published settings as config, or imagenet_norm as true or false."
        )
    mean, std = ((0.0,) * 3, (255.0,) * 3) if imagenet_norm is False else (IMAGENET_MEAN, IMAGENET_STD)
    height, width = (size, size) if isinstance(size, int) else size
    return Preprocessing((int(height), int(width)), mean, std)


def _head_options(published: PublishedWeights, settings: _Settings, heads: int | None) -> dict[str, Any]:
    """Options of the query head, inferred from names and shapes."""
    weights = published.weights
    encoder, decoder = (count_numbered(weights, prefix) for prefix in (_ENCODER, _DECODER))
    first = f"{_DECODER}0.linear1.weight"
    if first not in weights:
        raise TagfillError(f"{published.path} lacks {first}.")
    ffn, width = weights[first].shape
    self_attention = [f"{_DECODER}{layer}.self_attn.in_proj_weight" in weights for layer in range(decoder)]
    if len(set(self_attention[1:])) > 1:
        raise TagfillError(f"{published.path} lets queries attend to each other in only some of its later layers.")
    return {
        "width": int(width),
        "ffn": int(ffn),
        "heads": int(heads or settings.nheads or 4),
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "dropout": settings.dropout,
        "keep_input_projection": "input_proj.weight" in weights,
        "keep_first_self_attention": self_attention[0],
        "keep_other_self_attention": any(self_attention[1:]),
    }


def _map_head(mapper: WeightMapper, projection: bool) -> int:
    """Map all tensors of the head; return the number of classes."""
    if projection:
        mapper.assign("head.input_proj.weight", mapper.pop("input_proj.weight").flatten(1), "input_proj.weight")
        mapper.rename("input_proj.bias", "head.input_proj.bias")
    weight = mapper.pop("fc.W").squeeze(0)
    mapper.assign("head.weight", weight, "fc.W")
    mapper.assign("head.bias", mapper.pop("fc.b").squeeze(0), "fc.b")
    mapper.rename("query_embed.weight", "head.queries")
    mapper.rename_all(_ENCODER, "head.encoder.")
    mapper.rename_all(_DECODER, "head.decoder.")
    mapper.rename_all("transformer.decoder.norm.", "head.norm.")
    return len(weight)


@dataclass(frozen=True)
class BackboneFamily:
    """A family of backbones in the files of Query2Label.

    Attributes:
        prefix: prefix of its tensors.
        marker: a tensor that only this family has, after the prefix.
        stride: pixels per cell.
        imagenet_norm: whether pixels are normalized by ImageNet's mean and deviation if the settings do not say. This
            is the default of the published script, but TResNets are pretrained on pixels that are not normalized.
        identify: returns our name of the backbone with these tensors; the path is for errors.
        rename: yields each tensor with its name and that in our backbone.
    """

    prefix: str
    marker: str
    stride: int
    imagenet_norm: bool
    identify: Callable[[Path, Mapping[str, Tensor]], str]
    rename: Callable[[Mapping[str, Tensor]], Iterator[tuple[str, str, Tensor]]]


def identify_family(path: Path, weights: Mapping[str, Tensor]) -> BackboneFamily:
    """Identify the family of the backbone in a file; the path is for errors."""
    for family in _FAMILIES:
        if family.prefix + family.marker in weights:
            return family
    expected = ", ".join(family.prefix + family.marker for family in _FAMILIES)
    raise TagfillError(
        f"{path} has none of {expected}; only Query2Label with a ResNet, TResNet, Swin transformer or CvT is supported."
    )


def _keep_names(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    for name, value in weights.items():
        yield name, name, value


# by blocks per stage, and convolutions per block of the first stage
_TRESNETS: dict[tuple[tuple[int, ...], int], str] = {
    ((3, 4, 11, 3), 2): "tresnet_m",
    ((4, 5, 18, 3), 2): "tresnet_l",
    ((4, 5, 24, 3), 2): "tresnet_xl",
    ((3, 4, 23, 3), 3): "tresnet_v2_l",
}
_CONV_NORM = re.compile(r"(conv\d|downsample\.\d)(?:\.0)?\.([01])\.(\w+)$")
_EPSILON = 1e-5


def identify_tresnet(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Identify a TResNet by its tensors; the path is for errors."""
    depths = tuple(count_numbered(weights, f"body.layer{stage}.") for stage in (1, 2, 3, 4))
    found = _TRESNETS.get((depths, 3 if "body.layer1.0.conv3.0.weight" in weights else 2))
    if found is None:
        raise TagfillError(f"{path} does not contain a TResNet-M, -L, -XL or -L v2: its stages have {depths} blocks.")
    return found


def rename_tresnet(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Yield each tensor of the authors' TResNet, which has in-place batch norms, with its name and timm's.

        conv1.0, conv1.1                        a convolution and its norm          conv1.conv, conv1.bn
        conv2.0.0, conv2.0.1                    the same before a blurred stride    conv2.conv, conv2.bn
        downsample.1.0, downsample.1.1          a shortcut                          downsample.1.conv, downsample.1.bn

    An in-place batch norm, whose output must be invertible, multiplies by |w| + ε, with ε = 10⁻⁵, while an ordinary one
    multiplies by w.

    Ridnik, Lawen, Noy, Ben Baruch, Sharir and Friedman: *TResNet: High Performance GPU-Dedicated Architecture*, WACV
    2021; Rota Bulò, Porzi and Kontschieder: *In-Place Activated BatchNorm for Memory-Optimized Training of DNNs*, CVPR
    2018.

    >>> import torch
    >>> [(_, target, value)] = rename_tresnet({"body.layer2.0.conv1.0.1.weight": torch.tensor([-0.5])})
    >>> target, value
    ('body.layer2.0.conv1.bn.weight', tensor([0.5000]))
    """
    for name, value in weights.items():
        target = _CONV_NORM.sub(lambda found: f"{found[1]}.{('conv', 'bn')[int(found[2])]}.{found[3]}", name)
        yield name, target, value.abs() + _EPSILON if target.endswith(".bn.weight") else value


# by width, blocks per stage, and side of a window
_SWINS: dict[tuple[int, tuple[int, ...], int], str] = {
    (96, (2, 2, 6, 2), 7): "swin_tiny_patch4_window7_224",
    (96, (2, 2, 18, 2), 7): "swin_small_patch4_window7_224",
    (128, (2, 2, 18, 2), 7): "swin_base_patch4_window7_224",
    (128, (2, 2, 18, 2), 12): "swin_base_patch4_window12_384",
    (192, (2, 2, 18, 2), 7): "swin_large_patch4_window7_224",
    (192, (2, 2, 18, 2), 12): "swin_large_patch4_window12_384",
}
_COMPUTED_BY_TIMM = (".relative_position_index", ".attn_mask")


def identify_swin(path: Path, weights: Mapping[str, Tensor]) -> str:
    """Identify a Swin transformer by its tensors; the path is for errors."""
    table = "layers.0.blocks.0.attn.relative_position_bias_table"
    if table not in weights:
        raise TagfillError(f"{path} lacks {table} of its Swin transformer.")
    width = len(weights["patch_embed.proj.weight"])
    depths = tuple(count_numbered(weights, f"layers.{stage}.blocks.") for stage in range(4))
    window = (math.isqrt(len(weights[table])) + 1) // 2  # a table for (2w − 1)² distances
    found = _SWINS.get((width, depths, window))
    if found is None:
        raise TagfillError(
            f"{path} does not contain a tiny, small, base or large Swin transformer: its width is {width}, its stages "
            f"have {depths} blocks, its windows have side {window}."
        )
    return found


def rename_swin(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Yield each tensor of the authors' Swin transformer with its name and timm's.

    The names differ in one point: the reduction between two stages ends the first in the published files
    (`layers.0.downsample`) and begins the second in timm (`layers.1.downsample`). The windows' indices and masks in
    published files are skipped, since timm computes them.

    Liu, Lin, Cao, Hu, Wei, Zhang, Lin and Guo: *Swin Transformer: Hierarchical Vision Transformer using Shifted
    Windows*, ICCV 2021.

    >>> import torch
    >>> [target for _, target, _ in rename_swin({"layers.0.downsample.norm.weight": torch.ones(4)})]
    ['layers.1.downsample.norm.weight']
    """
    for name, value in weights.items():
        if not name.endswith(_COMPUTED_BY_TIMM):
            yield name, re.sub(r"^layers\.(\d)\.down", lambda found: f"layers.{int(found[1]) + 1}.down", name), value


_CVT_PATTERNS = {
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
    """Identify a CvT by its tensors; the path is for errors."""
    embeddings = [f"stage{stage}.patch_embed.proj.weight" for stage in range(3)]
    widths = tuple(len(weights[name]) for name in embeddings if name in weights)
    depths = tuple(count_numbered(weights, f"stage{stage}.blocks.") for stage in range(3))
    for name, (_, depth, width, _) in SIZES.items():
        if (depth, width) == (depths, widths):
            return name + Q2L_SUFFIX
    raise TagfillError(
        f"{path} does not contain a CvT-13, CvT-21 or CvT-w24: its stages have {depths} blocks of width {widths}."
    )


def rename_cvt(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """Yield each tensor of the authors' CvT with its name and that in `tagfill.models.cvt`.

    Query2Label uses the cells of the last stage, not the class token, and applies the last norm to each of them, as do
    the backbones with `_q2l` in their names.

    Wu, Xiao, Codella, Liu, Dai, Yuan and Zhang: *CvT: Introducing Convolutions to Vision Transformers*, ICCV 2021.

    >>> import torch
    >>> [target for _, target, _ in rename_cvt({"stage0.blocks.1.attn.conv_proj_k.bn.bias": torch.ones(4)})]
    ['encoder.stages.0.layers.1.attention.attention.convolution_projection_key.convolution_projection.normalization.bias']
    """
    for name, value in weights.items():
        target = name
        for pattern, replacement in _CVT_PATTERNS.items():
            target = re.sub(pattern, replacement, target)
        yield name, target, value


_FAMILIES = (
    BackboneFamily("backbone.0.body.", "conv1.weight", 32, True, identify_resnet, _keep_names),
    BackboneFamily("backbone.0.body.", "body.conv1.0.weight", 32, False, identify_tresnet, rename_tresnet),
    BackboneFamily("backbone.0.", "patch_embed.proj.weight", 32, True, identify_swin, rename_swin),
    BackboneFamily("backbone.0.", "stage0.patch_embed.proj.weight", 16, True, identify_cvt, rename_cvt),
)
