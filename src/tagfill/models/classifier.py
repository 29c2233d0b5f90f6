"""Heads by the names that recipes and the command line take.

>>> sorted(HEADS)
['cam', 'linear', 'query', 'tscam']


A classifier: a backbone, a head, and the classes that its logits stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.errors import TagfillError, unknown_name
from tagfill.models import model_folder as model_folder
from tagfill.models.backbone import Backbone, Preprocessing, Seen, create_backbone
from tagfill.models.heads import CamHead, Head, LinearHead, TsCamHead, summed_attention
from tagfill.models.query import QueryHead
from tagfill.options import check_options
from tagfill.rng import seed_of

HEADS: dict[str, type[Head]] = {"linear": LinearHead, "cam": CamHead, "tscam": TsCamHead, "query": QueryHead}


def create_head(name: str, channels: int, classes: int, *, seed: int, **options: Any) -> Head:
    """A head with initial weights that depend on the seed alone.

    Args:
        name: from `HEADS`.
        channels: D of the features.
        classes: L.
        seed: of the initial weights.
        **options: of the head, see its class.

    >>> create_head("cam", 512, 20, seed=0, boost=5.0).spatial
    True
    """
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    checked = check_options(HEADS[name], options, f"head '{name}'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head"))
        return HEADS[name](channels, classes, **checked)


def convert_head(head: Head, name: str, **options: Any) -> Head:
    """A `cam` head with the weights of a `linear` one, the other way round, or another boost; see `Classifier`.

    Both classify a mean of cells by one linear layer: before the mean or after it is the same.
    """
    layer = getattr(head, "fc", None)
    if layer is None or name not in ("linear", "cam") or head.token or options.get("pool") == "token":
        raise TagfillError(
            f"This {type(head).__name__} cannot become a {name} head; only cam and linear with pool=gap convert."
        )
    if name == "linear" and head.spatial:
        raise TagfillError(
            "This cam head boosts its scores, which a linear head cannot; convert it to cam with boost=1 first "
            "if logits without the boost are wanted."
        )
    assert isinstance(layer, nn.Linear)
    converted = create_head(name, layer.in_features, layer.out_features, seed=0, **options)
    converted.get_submodule("fc").load_state_dict(layer.state_dict())
    if isinstance(head, CamHead) and head.boosts is not None:
        converted.mask_boost(head.boosts)
    return converted.to(layer.weight).train(head.training)


def heads_with(what: str) -> str:
    """The names of the heads that have `has_maps` or `attention_of`, for errors."""
    return " or ".join(name for name, head in HEADS.items() if getattr(head, what))


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

    @property
    def token(self) -> bool:
        """Whether the head takes class tokens instead of features of cells or their means."""
        return self.head.token

    def forward(self, inputs: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
        """Predict from pixels (uint8) or features (floating).

        Args:
            inputs: B×3×H×W pixels, B×D×H×W features, B×D pooled ones where the head is not `spatial`, or B×D class
                tokens where it takes those.
            maps: keep the class maps.
            attention: keep what was attended to, as the head documents.
        """
        self.check_use(maps=maps)
        if attention and self.head.attention_of is None:
            raise TagfillError(f"The {self.head_name} head has no attention; choose {heads_with('attention_of')}.")
        of_backbone = attention and self.head.attention_of == "backbone"
        seen = self._look(inputs, of_backbone) if inputs.dtype == torch.uint8 else Seen(inputs)
        if of_backbone and seen.attention is None:
            raise TagfillError("This attention is the backbone's, which needs pixels and not cached features.")
        features = seen.grid if seen.token is None else seen.token
        prediction: Prediction = self.head(features, maps=maps, attention=attention)
        if seen.attention is not None:
            prediction.attention = summed_attention(seen.attention, seen.grid)
        return prediction

    def check_use(self, *, maps: bool = False) -> None:
        """Refuse what the head cannot do, before anything is computed.

        Args:
            maps: class maps are wanted.
        """
        if maps and not self.head.has_maps:
            raise TagfillError(f"The {self.head_name} head has no class maps; choose {heads_with('has_maps')}.")

    def convert_head(self, name: str, **options: Any) -> Classifier:
        """The same classifier with a `cam` head in place of a `linear` one, or the other way round, or another boost.

        Logits stay as they are, unless `options` ask for a boost. The backbone is shared, the head a copy.

        Args:
            name: `linear` or `cam`.
            **options: of the new head.

        >>> plain = create("resnet18", "linear", ["cat", "dog"], image_size=64)
        >>> plain.convert_head("cam", boost=5.0, boost_train=False).head.boost
        5.0
        """
        head = convert_head(self.head, name, **options)
        return Classifier(self.backbone, head, name, self.classes, self.thresholds).train(self.training)

    def with_head(self, head: Head) -> Classifier:
        """The same backbone under another head of the same kind."""
        return Classifier(self.backbone, head, self.head_name, self.classes, self.thresholds)

    def mask_boost(self, mask: Tensor) -> None:
        """Boost only these classes (L bool) in training; evaluation boosts all.

        For classes without an observed positive, whose scores a boost would only push down harder. Nothing where the
        head does not boost.
        """
        self.head.mask_boost(mask)

    def freeze(self, *, backbone: bool = False, stem: bool = False, batch_norm: bool = False) -> None:
        """Leave parts of the backbone out of training, and let the rest of it train again.

        Args:
            backbone: all of it.
            stem: the first layers and the first stage.
            batch_norm: scales and statistics of all batch norms.
        """
        if self.backbone is None:
            return
        self.backbone.requires_grad_(not backbone)
        if stem:
            self.backbone.freeze_stem()
        if batch_norm:
            self.backbone.freeze_batch_norm()
        self.train(self.training)

    def train(self, mode: bool = True) -> Classifier:
        """Training mode; a frozen backbone stays in evaluation mode, as its cached features were made."""
        super().train(mode)
        if self.backbone is not None and self.backbone.frozen:
            self.backbone.eval()
        return self

    def save(self, folder: str | Path) -> None:
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
        model_folder.write(Path(folder), description, self.state_dict())

    @classmethod
    def load(cls, folder: str | Path) -> Classifier:
        """Read a model folder; nothing else is needed.

        >>> Classifier.load("runs/photos/best").classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        folder = Path(folder)
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

    def _look(self, pixels: Tensor, attention: bool) -> Seen:
        if self.backbone is None:
            raise TagfillError("This classifier has no backbone and takes cached features only.")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.backbone.frozen):
            return self.backbone.look(pixels, token=self.token, attention=attention)


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
    model = Classifier(trunk, create_head(head, trunk.channels, len(classes), seed=seed, **head_options), head, classes)
    if model.token and not trunk.class_token:
        raise TagfillError(f"The backbone {backbone} has no class token, which this head needs; choose a ViT or DeiT.")
    return model
