"""Prediction from a model folder with torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tagfill.contract import Prediction
from tagfill.inference.predictors import Outputs
from tagfill.io import sha256
from tagfill.models import Classifier, choose_device
from tagfill.models.allocator import disable_heap_trimming
from tagfill.models.model_folder import description_path


class TorchPredictor:
    """A classifier in evaluation mode.

    Args:
        model: with a backbone.
        identity: hash of its folder.
        device: to run on.
    """

    def __init__(self, model: Classifier, identity: str, device: torch.device) -> None:
        assert model.backbone is not None
        self.model, self.identity, self._device = model.to(device).eval(), identity, device
        self.classes, self.thresholds, self.calibration = model.classes, model.thresholds, model.calibration
        self.size = model.backbone.preprocessing.size

    @classmethod
    def open(cls, folder: Path, *, device: str = "auto", threads: int | None = None) -> TorchPredictor:
        """Load a model folder."""
        if threads is not None:
            torch.set_num_threads(threads)
        disable_heap_trimming()  # every batch allocates and frees the same blocks
        return cls(Classifier.load(folder), folder_identity(folder), choose_device(device))

    def check_maps(self) -> None:
        """Raise if the head has no class maps."""
        self.model.check_use(maps=True)

    def __call__(self, pixels: NDArray[np.uint8], *, maps: bool = False) -> Outputs:
        """Score images: B×H×W×3 pixels."""
        if not len(pixels):
            return Outputs.empty(len(self.classes))
        prediction = forward(self.model, torch.from_numpy(pixels).permute(0, 3, 1, 2).to(self._device), maps=maps)
        class_maps = None if prediction.maps is None else prediction.maps.cpu().numpy()
        return Outputs(prediction.logits.cpu().numpy(), class_maps)


@torch.inference_mode()
def forward(model: nn.Module, inputs: Tensor, *, maps: bool = False, attention: bool = False) -> Prediction:
    """The forward pass of a classifier outside training; the model must be in evaluation mode.

    Args:
        model: a `Classifier`, or a module that wraps one.
        inputs: B×3×H×W pixels or cached features, on the device of the model.
        maps: also return class maps.
        attention: also return attention.
    """
    wanted = {"maps": maps, "attention": True} if attention else {"maps": maps}
    prediction: Prediction = model(inputs, **wanted)
    return prediction


def folder_identity(folder: Path) -> str:
    """A hash of the files of a model folder."""
    digest = hashlib.sha256()
    for path in (description_path(folder), folder / "model.safetensors"):
        digest.update(sha256(path).encode())
    return digest.hexdigest()
