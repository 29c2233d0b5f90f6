"""A classifier: a backbone, a head, and the classes that its logits stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.draws import seed_of
from tagfill.errors import TagfillError, unknown_name
from tagfill.models import folder as model_folder
from tagfill.models.backbone import Backbone, Preprocessing, create_backbone
from tagfill.models.cam import CamHead
from tagfill.models.head import Head, checked_options

HEADS: dict[str, type[Head]] = {"cam": CamHead}


class Classifier(nn.Module):
    """Pixels or cached features in, one `Prediction` out.

    Without a backbone it takes features only, which is how it trains on a cache.

    Attributes:
        classes: names, in the order of the logits.
        thresholds: of each class, the probability from which it is said to be present; None where nobody chose them.
    """

    def __init__(
        self,
        backbone: Backbone | None,
        head: Head,
        head_name: str,
        classes: Sequence[str],
        thresholds: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.head_name = head_name
        self.classes = tuple(classes)
        self.thresholds = None if thresholds is None else tuple(thresholds)

    @property
    def spatial(self) -> bool:
        """Whether the head always needs features of cells, so that pooled ones will not do."""
        return self.head.spatial

    def forward(self, inputs: Tensor, *, maps: bool = False) -> Prediction:
        """Predict from pixels (uint8) or features (floating); `maps` keeps the class maps."""
        if maps and not self.head.has_maps:
            raise TagfillError(f"The {self.head_name} head has no class maps; choose {_heads_with_maps()}.")
        if inputs.dtype == torch.uint8:
            if self.backbone is None:
                raise TagfillError("This classifier has no backbone and takes cached features only.")
            inputs = self._features(self.backbone, inputs)
        prediction: Prediction = self.head(inputs, maps=maps)
        return prediction

    def with_head(self, head: Head) -> Classifier:
        """The same backbone under another head of the same kind."""
        return Classifier(self.backbone, head, self.head_name, self.classes, self.thresholds)

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; evaluation boosts all.

        For classes without an observed positive, whose scores a boost would only push down harder. Nothing where the
        head does not boost.
        """
        self.head.mask_boost(mask)

    def freeze_backbone(self, frozen: bool) -> None:
        """Leave the backbone out of training, or let it train again."""
        if self.backbone is not None:
            self.backbone.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> Classifier:
        """Training mode; a frozen backbone stays in evaluation mode, as its cached features were made."""
        super().train(mode)
        if self.backbone is not None and self.backbone.frozen:
            self.backbone.eval()
        return self

    def save(self, folder: Path) -> None:
        """Write a model folder, whole or not at all; needs a backbone."""
        assert self.backbone is not None
        model_folder.check_thresholds(self.thresholds, len(self.classes), "The model")
        description = model_folder.Description(
            self.backbone.name,
            self.head_name,
            self.head.options,
            self.classes,
            self.backbone.preprocessing,
            self.thresholds,
        )
        model_folder.write(folder, description, self.state_dict())

    @classmethod
    def load(cls, folder: Path) -> Classifier:
        """Read a model folder; nothing else is needed.

        >>> Classifier.load(Path("runs/photos/best")).classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        told = model_folder.read_description(folder)
        try:
            model = create(
                told.backbone, told.head, told.classes, preprocessing=told.preprocessing, **told.head_options
            )
        except TagfillError as error:
            raise TagfillError(f"{folder / 'model.json'} does not describe a model: {error}") from None
        model.thresholds = told.thresholds
        model.load_state_dict(model_folder.read_weights(folder, model.state_dict()))
        return model.eval()

    def _features(self, backbone: Backbone, pixels: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not backbone.frozen):
            features: Tensor = backbone(pixels)
        return features


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
    """A classifier with a fresh head.

    Args:
        backbone: timm's name of the backbone.
        head: a name from `HEADS`.
        classes: class names, in the order of the labels.
        pretrained: weights of the backbone, see `create_backbone`.
        image_size: (height, width) or the side of a square; None takes the backbone's own.
        preprocessing: of a saved model, instead of the backbone's own.
        seed: of initial weights that are random.
        **head_options: of the head, see its class.

    >>> model = create("resnet18", "cam", ["cat", "dog"], image_size=64, boost=5.0)
    >>> model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).logits.shape
    torch.Size([1, 2])
    """
    if preprocessing is not None:
        image_size = preprocessing.size
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=image_size, seed=seed)
    if preprocessing is not None:
        trunk = Backbone(backbone, trunk.model, preprocessing)
    return Classifier(trunk, create_head(head, trunk.channels, len(classes), seed=seed, **head_options), head, classes)


def create_head(name: str, channels: int, classes: int, *, seed: int, **options: Any) -> Head:
    """A head with initial weights that depend on the seed alone.

    Args:
        name: from `HEADS`.
        channels: D of the features.
        classes: L.
        seed: of the initial weights.
        **options: of the head, see its class.
    """
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    checked = checked_options(name, HEADS[name], options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head"))
        return HEADS[name](channels, classes, **checked)


def _heads_with_maps() -> str:
    return " or ".join(name for name, head in HEADS.items() if head.has_maps)
