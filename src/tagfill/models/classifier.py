"""Classifiers: a backbone, a head, and the class names of its logits.

>>> sorted(HEADS)
['cam', 'dual', 'ensemble', 'linear', 'query', 'tscam']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.errors import TagfillError, unknown_name
from tagfill.models.backbone import Backbone, BackboneOutput, BackboneTop, Preprocessing, create_backbone
from tagfill.models.class_vectors import check_vectors_file, read_class_vectors
from tagfill.models.dual import DualHead
from tagfill.models.heads import CamHead, EnsembleHead, Head, LinearHead, TsCamHead, summed_attention
from tagfill.models.model_folder import (
    ModelDescription,
    description_path,
    read_description,
    read_folder_weights,
    write_model_folder,
)
from tagfill.models.query import QueryHead
from tagfill.models.stages import FEATURES
from tagfill.options import check_options
from tagfill.probabilities import Calibration
from tagfill.rng import seed_of

HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "cam": CamHead,
    "tscam": TsCamHead,
    "query": QueryHead,
    "dual": DualHead,
    "ensemble": EnsembleHead,
}


def create(
    backbone: str,
    head: str,
    classes: Sequence[str],
    *,
    pretrained: bool | str = False,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
    **head_options: Any,
) -> Classifier:
    """Create a classifier with a new head.

    Args:
        backbone: timm's name of the backbone, or a name in `BACKBONES`.
        head: a name in `HEADS`.
        classes: class names, in the order of the labels.
        pretrained: weights of the backbone, see `create_backbone`.
        image_size: (height, width) or the side of a square; None takes the backbone's default.
        preprocessing: preprocessing of a saved model, instead of the backbone's default.
        seed: seed of random initial weights.
        **head_options: options of the head, see its class.

    >>> model = create("resnet18", "cam", ["cat", "dog"], image_size=64, boost=5.0)
    >>> model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).logits.shape
    torch.Size([1, 2])
    """
    if preprocessing is not None:
        image_size = preprocessing.size
    trunk = create_backbone(
        backbone, pretrained=pretrained, image_size=image_size, seed=seed, whole_patches=preprocessing is None
    )
    if preprocessing is not None:
        trunk = Backbone(backbone, trunk.model, preprocessing)
    return create_on(trunk, head, classes, seed=seed, **head_options)


def create_on(trunk: Backbone, head: str, classes: Sequence[str], *, seed: int, **head_options: Any) -> Classifier:
    """Put a new head on a backbone; for the arguments see `create`."""
    model = Classifier(trunk, create_head(head, trunk.channels, len(classes), seed=seed, **head_options), head, classes)
    if model.token and not trunk.class_token:
        raise TagfillError(
            f"The backbone {trunk.name} has no class token, which this head needs; choose a ViT or DeiT."
        )
    if head_options.get("init") == "text":
        model.head.start_from(read_class_vectors(head_options["vectors"], classes, trunk.channels, trunk.name))
    return model


def create_head(name: str, channels: int, classes: int, *, seed: int, **options: Any) -> Head:
    """Create a head whose initial weights depend on the seed alone.

    Args:
        name: a name in `HEADS`.
        channels: D of the features.
        classes: L.
        seed: seed of the initial weights.
        **options: options of the head, see its class.

    >>> create_head("cam", 512, 20, seed=0, boost=5.0).spatial
    True
    """
    checked = check_head(name, options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head"))
        return HEADS[name](channels, classes, **checked)


def check_head(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a head; raise if it, one of them or a file that one names does not exist."""
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    checked = check_options(HEADS[name], options, f"head '{name}'")
    if checked.get("init") == "text":
        check_vectors_file(checked.get("vectors"))
    return checked


def combine(members: Sequence[Classifier], *, boost: float | None = None, compete: float = 0.0) -> Classifier:
    """Combine trained classifiers with the same backbone and classes into one with an `ensemble` head.

    Mean and standard deviation of the members' logits still have to be set, with `EnsembleHead.standardize`, and for
    `compete` first those of cells, with `standardize_cells`. Until then logits are the plain mean of the members'.

    Args:
        members: with `cam` heads, or `linear` ones with `pool=gap`; the backbone of the first is used.
        boost: α of BoostLU in all members; None keeps theirs.
        compete: how much classes compete in a cell, see `EnsembleHead`.

    >>> pair = [create("resnet18", "cam", ["cat", "dog"], image_size=64, seed=1) for _ in range(2)]
    >>> combine(pair, boost=5.0).head.members
    2
    """
    if not members:
        raise TagfillError("There is no model to combine.")
    first = members[0]
    for other in members:
        if other.classes != first.classes:
            raise TagfillError("Models with different classes cannot be combined.")
        if _fingerprint(other) != _fingerprint(first):
            raise TagfillError("Models with different backbones cannot be combined; train them on the same cache.")
    converted = [_convert_head(other.head, "cam", **_inference_boost(other.head, boost)) for other in members]
    heads = [head for head in converted if isinstance(head, CamHead)]  # all of them
    boosts = {(head.boost, head.boost_from) for head in heads}
    if len(boosts) > 1:
        raise TagfillError("Models with different boosts cannot be combined; give the boost that all should use.")
    alpha, beta = boosts.pop()
    layers = [head.fc for head in heads]
    width = len(first.classes)
    head = EnsembleHead(
        layers[0].in_features, width, members=len(members), boost=alpha, boost_from=beta, compete=compete
    )
    head.stacked.fc.load_state_dict(
        {name: torch.cat([layer.state_dict()[name] for layer in layers]) for name in ("weight", "bias")}
    )
    return Classifier(first.backbone, head.to(layers[0].weight), "ensemble", first.classes).eval()


def _fingerprint(model: Classifier) -> str | None:
    """Identity of a model's backbone; None if it has none."""
    return model.backbone.fingerprint() if isinstance(model.backbone, Backbone) else None


def _inference_boost(head: Head, boost: float | None) -> dict[str, Any]:
    """Options of the `cam` head that boosts as this head does in evaluation, or by `boost`."""
    evaluated = head.boost if isinstance(head, CamHead) and head.boost_eval else 1.0
    start = head.boost_from if isinstance(head, CamHead) else 0.0
    return {"boost": evaluated if boost is None else boost, "boost_from": start, "boost_train": False}


class Classifier(nn.Module):
    """Pixels or cached features in, a `Prediction` out.

    Without a backbone it takes features only, which is how a head trains on a feature cache. With the top of a backbone
    (`above`) it takes the output of an inner stage.

    Attributes:
        classes: names, in the order of the logits.
        thresholds: per class, the probability from which it is predicted present; None if not chosen.
        calibration: turns logits into probabilities; None for the plain sigmoid.
    """

    def __init__(
        self,
        backbone: Backbone | BackboneTop | None,
        head: Head,
        head_name: str,
        classes: Sequence[str],
        thresholds: Sequence[float] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.head_name = head_name
        self.classes = tuple(classes)
        self.thresholds = None if thresholds is None else tuple(thresholds)
        self.calibration = calibration

    @property
    def spatial(self) -> bool:
        """Whether the head always needs features of cells, B×D×H×W; pooled ones are not enough."""
        return self.head.spatial

    @property
    def token(self) -> bool:
        """Whether the head takes class tokens instead of features of cells or their means."""
        return self.head.token

    def forward(self, inputs: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Predict from pixels (uint8) or features (floating point).

        Args:
            inputs: B×3×H×W pixels, B×D×H×W features, B×D pooled features if the head is not `spatial`, or B×D class
                tokens if the head takes those; with the top of a backbone, the output of the stage below it.
            maps: return the class maps.
            attention: return the attention, as documented by the head.

        Raises:
            TagfillError: if `inputs` has another dtype or shape, or the head has no class maps or attention.
        """
        self.check_use(maps=maps)
        if attention and self.head.attention_of is None:
            raise TagfillError(f"The {self.head_name} head has no attention; choose {_heads_with('attention_of')}.")
        self._check_inputs(inputs)
        backbone_attention = attention and self.head.attention_of == "backbone"
        encoded = inputs.dtype == torch.uint8 or isinstance(self.backbone, BackboneTop)
        output = self._encode(inputs, backbone_attention) if encoded else BackboneOutput(inputs)
        if backbone_attention and output.attention is None:
            raise TagfillError(f"Attention of the {self.head_name} head needs pixels, not cached features.")
        features = output.features if output.token is None else output.token
        if encoded and features.ndim == 4 and features.requires_grad:
            features.register_hook(_channels_last)  # type: ignore[no-untyped-call]
        prediction: Prediction = self.head(features, maps=maps, attention=attention)
        if output.attention is not None:
            prediction.attention = summed_attention(output.attention, output.features)
        return prediction

    def _encode(self, pixels: Tensor, attention: bool) -> BackboneOutput:
        assert self.backbone is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.backbone.frozen):
            return self.backbone.encode(pixels, token=self.token, attention=attention)

    def _check_inputs(self, inputs: Tensor) -> None:
        """Raise unless the inputs are pixels or features that the head takes."""
        if isinstance(self.backbone, BackboneTop):
            if not inputs.is_floating_point() or tuple(inputs.shape[1:]) != self.backbone.inner:
                raise TagfillError(
                    f"This classifier takes the output of the stage '{self.backbone.at}', of shape B×"
                    f"{'×'.join(map(str, self.backbone.inner))}; it was given "
                    f"{str(inputs.dtype).removeprefix('torch.')} of shape {'×'.join(map(str, inputs.shape))}."
                )
            return
        if inputs.dtype == torch.uint8 and self.backbone is not None:
            valid = inputs.ndim == 4 and inputs.shape[1] == 3
        else:
            channels = self.head.channels
            valid = inputs.is_floating_point() and inputs.ndim in (2, 4) and channels in (None, inputs.shape[1])
        if not valid:
            pixels = "" if self.backbone is None else "uint8 pixels of shape B×3×H×W, or "
            missing = "has no backbone and " if self.backbone is None else ""
            shapes = [*["B×{}×H×W"] * (not self.token), *["B×{}"] * (not self.spatial)]
            features = " or ".join(shape.format(self.head.channels or "D") for shape in shapes)
            raise TagfillError(
                f"This classifier {missing}takes {pixels}floating-point features of shape {features}; it was given "
                f"{str(inputs.dtype).removeprefix('torch.')} of shape {'×'.join(map(str, inputs.shape))}."
            )

    def check_use(self, *, maps: bool = False) -> None:
        """Raise if the head cannot do what is wanted, before anything is computed.

        Args:
            maps: whether class maps are wanted.
        """
        if maps and not self.head.has_maps:
            raise TagfillError(f"The {self.head_name} head has no class maps; choose {_heads_with('has_maps')}.")

    def convert_head(self, name: str, **options: Any) -> Classifier:
        """Convert a `linear` head to a `cam` head or back, or change the boost of a `cam` head.

        Logits do not change, unless `options` add a boost. The backbone is shared, the head a copy.

        Args:
            name: `linear` or `cam`.
            **options: options of the new head.

        >>> plain = create("resnet18", "linear", ["cat", "dog"], image_size=64)
        >>> plain.convert_head("cam", boost=5.0, boost_train=False).head.boost
        5.0
        """
        head = _convert_head(self.head, name, **options)
        return Classifier(self.backbone, head, name, self.classes, self.thresholds, self.calibration).train(
            self.training
        )

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; evaluation boosts all.

        For classes without an observed positive, whose scores a boost would only push down harder. Does nothing if the
        head does not boost.
        """
        self.head.mask_boost(mask)

    def above(self, stage: str) -> Classifier:
        """The part behind a stage, with the same weights: it takes what a feature cache at this stage holds.

        Args:
            stage: a stage of the backbone, or `features` for the head alone.

        >>> model = create("test_resnet", "cam", ["cat", "dog"], image_size=64)
        >>> model.above("layer3")(torch.zeros(1, 192, 4, 4)).logits.shape
        torch.Size([1, 2])
        """
        assert isinstance(self.backbone, Backbone)
        top = None if stage == FEATURES else self.backbone.above(stage)
        return Classifier(top, self.head, self.head_name, self.classes, self.thresholds, self.calibration).train(
            self.training
        )

    def replace_top(self, top: Classifier) -> Classifier:
        """The whole classifier with the weights of another one that `above` made."""
        assert isinstance(self.backbone, Backbone)
        backbone = self.backbone
        if isinstance(top.backbone, BackboneTop):
            backbone = self.backbone.replace_top(top.backbone)
        return Classifier(backbone, top.head, self.head_name, self.classes, self.thresholds, self.calibration)

    def freeze(
        self, *, backbone: bool = False, below: str | None = None, stem: bool = False, batch_norm: bool = False
    ) -> None:
        """Freeze parts of the backbone and unfreeze the rest.

        Args:
            backbone: the whole backbone.
            below: everything up to this stage.
            stem: the first layers and the first stage.
            batch_norm: scales and statistics of all batch norms.
        """
        if self.backbone is None:
            return
        self.backbone.requires_grad_(not backbone)
        if below is not None and isinstance(self.backbone, Backbone):
            self.backbone.freeze_below(below)
        if stem:
            self.backbone.freeze_stem()
        if batch_norm:
            self.backbone.freeze_batch_norm()
        self.train(self.training)

    def train(self, mode: bool = True) -> Classifier:
        """Set training mode; a frozen backbone stays in evaluation mode, as for cached features."""
        super().train(mode)
        if self.backbone is not None and self.backbone.frozen:
            self.backbone.eval()
        return self

    def save(self, folder: str | Path) -> None:
        """Write a model folder atomically; needs a backbone."""
        assert isinstance(self.backbone, Backbone)
        description = ModelDescription.create(
            backbone=self.backbone.name,
            head=self.head_name,
            head_options=self.head.options,
            classes=self.classes,
            preprocessing=self.backbone.preprocessing,
            thresholds=self.thresholds,
            calibration=self.calibration,
        )
        write_model_folder(Path(folder), description, self.state_dict())

    @classmethod
    def load(cls, folder: str | Path, *, backbone: Backbone | None = None) -> Classifier:
        """Load a model folder.

        Args:
            folder: to load.
            backbone: of another model, on the CPU; shared with it if name, preprocessing and weights are the same.

        >>> Classifier.load("runs/photos/best").classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        folder = Path(folder)
        saved = read_description(folder)
        try:
            if backbone is None or (backbone.name, backbone.preprocessing) != (saved.backbone, saved.preprocessing):
                model = create(
                    saved.backbone, saved.head, saved.classes, preprocessing=saved.preprocessing, **saved.head_options
                )
            else:
                model = create_on(backbone, saved.head, saved.classes, seed=0, **saved.head_options)
        except TagfillError as error:
            raise TagfillError(f"{description_path(folder)} does not describe a model: {error}") from None
        state = read_folder_weights(folder, model.state_dict())
        if backbone is None or model.backbone is not backbone:
            model.load_state_dict(state)
        elif all(torch.equal(weight, state[f"backbone.{name}"]) for name, weight in backbone.state_dict().items()):
            model.head.load_state_dict({name: state[f"head.{name}"] for name in model.head.state_dict()})
        else:
            return cls.load(folder)
        model.thresholds, model.calibration = saved.thresholds, saved.calibration
        return model.eval()


def _channels_last(gradient: Tensor) -> Tensor:
    """The gradient of features in the layout of the backbone.

    That of a mean over cells is expanded and has no layout; with it, the backbone's kernels take slower paths.
    """
    return gradient.contiguous(memory_format=torch.channels_last)


def _heads_with(attribute: str) -> str:
    """Names of the heads that can be trained and have `has_maps` or `attention_of`, for errors."""
    return " or ".join(name for name, head in HEADS.items() if getattr(head, attribute) and head is not EnsembleHead)


def _convert_head(head: Head, name: str, **options: Any) -> Head:
    """Copy the linear layer of a `linear` or `cam` head to a new head of either kind.

    Both apply one linear layer to features, before or after averaging over cells, which gives the same logits.
    """
    if isinstance(head, EnsembleHead):
        raise TagfillError(
            "An ensemble keeps the boost that its members were standardized with; leave out the boost, or combine the "
            "members again."
        )
    layer = getattr(head, "fc", None)
    if layer is None or name not in ("linear", "cam") or head.token or options.get("pool") == "token":
        raise TagfillError(
            f"This {type(head).__name__} cannot become a {name} head; only cam and linear with pool=gap convert."
        )
    if name == "linear" and head.spatial:
        raise TagfillError(
            "This cam head boosts its scores, which a linear head cannot; convert it to cam with boost=1 first "
            "if you want logits without the boost."
        )
    assert isinstance(layer, nn.Linear)
    converted = create_head(name, layer.in_features, layer.out_features, seed=0, **options)
    converted.get_submodule("fc").load_state_dict(layer.state_dict())
    if isinstance(head, CamHead) and head.boosts is not None:
        converted.mask_boost(head.boosts)
    return converted.to(layer.weight).train(head.training)
