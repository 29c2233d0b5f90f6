"""A classifier: a backbone, a head, and the classes that its logits stand for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.draws import seed_of
from tagfill.errors import TagfillError, unknown_name
from tagfill.files import recover_folder, replace_folder, replacing, sha256_of_strings, write_json
from tagfill.models.backbone import Backbone, Preprocessing, create_backbone
from tagfill.models.cam import CamHead

HEADS: dict[str, Callable[[int, int], nn.Module]] = {"cam": CamHead}


class Classifier(nn.Module):
    """Pixels or cached features in, one `Prediction` out.

    Without a backbone it takes features only, which is how it trains on a cache.
    """

    def __init__(self, backbone: Backbone | None, head: nn.Module, head_name: str, classes: Sequence[str]) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.head_name = head_name
        self.classes = tuple(classes)

    def forward(self, inputs: Tensor, *, maps: bool = False) -> Prediction:
        """Predict from pixels (uint8) or features (floating); `maps` keeps the class maps."""
        if inputs.dtype == torch.uint8:
            if self.backbone is None:
                raise TagfillError("This classifier has no backbone and takes cached features only.")
            inputs = self._features(self.backbone, inputs)
        prediction: Prediction = self.head(inputs, maps=maps)
        return prediction

    def with_head(self, head: nn.Module) -> Classifier:
        """The same backbone under another head."""
        return Classifier(self.backbone, head, self.head_name, self.classes)

    def freeze_backbone(self, frozen: bool) -> None:
        """Leave the backbone out of training, or let it train again."""
        if self.backbone is not None:
            self.backbone.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> Classifier:
        """Training mode; a frozen backbone stays in evaluation mode, as its cached features were made."""
        super().train(mode)
        if self.backbone is not None and self._frozen(self.backbone):
            self.backbone.eval()
        return self

    def save(self, folder: Path) -> None:
        """Write a model folder, whole or not at all; needs a backbone."""
        assert self.backbone is not None
        new = folder.with_name(f".{folder.name}.new")
        new.mkdir(parents=True, exist_ok=True)
        with replacing(new / "model.safetensors", sync=False) as file:
            file.write(save({name: value.contiguous() for name, value in self.state_dict().items()}))
        description = {
            "backbone": self.backbone.name,
            "head": self.head_name,
            "classes": list(self.classes),
            "classes_identity": sha256_of_strings(self.classes),
            "preprocessing": self.backbone.preprocessing.to_json(),
        }
        write_json(new / "model.json", description, sync=False)
        replace_folder(new, folder)

    @classmethod
    def load(cls, folder: Path) -> Classifier:
        """Read a model folder; nothing else is needed.

        >>> Classifier.load(Path("runs/photos/best")).classes  # doctest: +SKIP
        ('anchor', 'bell', ...)
        """
        recover_folder(folder)
        path = folder / "model.json"
        if not path.is_file():
            raise TagfillError(f"{folder} is not a model folder: it has no model.json.")
        description = json.loads(path.read_text(encoding="utf-8"))
        preprocessing = Preprocessing.from_json(description["preprocessing"])
        model = create(
            description["backbone"], description["head"], description["classes"], preprocessing=preprocessing
        )
        model.load_state_dict(load_file(folder / "model.safetensors"))
        return model.eval()

    def _features(self, backbone: Backbone, pixels: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self._frozen(backbone)):
            features: Tensor = backbone(pixels)
        return features

    @staticmethod
    def _frozen(backbone: Backbone) -> bool:
        return not next(backbone.parameters()).requires_grad


def create(
    backbone: str,
    head: str,
    classes: Sequence[str],
    *,
    pretrained: bool | str = False,
    image_size: int | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
) -> Classifier:
    """A classifier with a fresh head.

    Args:
        backbone: timm's name of the backbone.
        head: a name from `HEADS`.
        classes: class names, in the order of the labels.
        pretrained: weights of the backbone, see `create_backbone`.
        image_size: side of the square input; None takes the backbone's own.
        preprocessing: of a saved model, instead of the backbone's own.
        seed: of initial weights that are random.

    >>> model = create("resnet18", "cam", ["cat", "dog"], image_size=64)
    >>> model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).logits.shape
    torch.Size([1, 2])
    """
    if preprocessing is not None:
        image_size = preprocessing.size[0]
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=image_size, seed=seed)
    if preprocessing is not None:
        trunk = Backbone(backbone, trunk.model, preprocessing)
    return Classifier(trunk, create_head(head, trunk.channels, len(classes), seed=seed), head, classes)


def create_head(name: str, channels: int, classes: int, *, seed: int) -> nn.Module:
    """A head with initial weights that depend on the seed alone."""
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head"))
        return HEADS[name](channels, classes)
