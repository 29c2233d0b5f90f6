"""Predictors turn pixels into logits: a model folder with torch, or an ONNX file without torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.probabilities import Calibration


@dataclass(frozen=True)
class Outputs:
    """Scores of B images.

    Attributes:
        logits: B×L float32.
        maps: B×L×H×W float32 class maps, if requested.
    """

    logits: NDArray[np.float32]
    maps: NDArray[np.float32] | None = None

    @classmethod
    def empty(cls, classes: int) -> Outputs:
        """The outputs for no image, which a network may refuse to compute."""
        return cls(np.empty((0, classes), np.float32))


def require_finite(logits: NDArray[np.floating]) -> None:
    """Raise if a logit is NaN or infinite: it is no probability, and JSON cannot express it."""
    if not np.isfinite(logits).all():
        raise TagfillError(
            "The model gives scores that are not finite numbers; its weights are damaged or training diverged: take "
            "another copy of it, or train it again."
        )


class Predictor(Protocol):
    """A model that scores images: `TorchPredictor` or `OnnxPredictor`."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the logits."""
        ...

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """Threshold of each class, if the model has them."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """Turns logits into probabilities; None for the plain sigmoid."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the input."""
        ...

    @property
    def identity(self) -> str:
        """A hash of everything that the outputs depend on."""
        ...

    def check_maps(self) -> None:
        """Raise if the model has no class maps."""

    def __call__(self, pixels: NDArray[np.uint8], *, maps: bool = False) -> Outputs:
        """Score images: B×H×W×3 pixels."""
        ...


class RunFolder(Protocol):
    """A run, as `tagfill.train` returns it."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        ...


ModelPath = str | os.PathLike[str] | RunFolder


def model_path(run: ModelPath) -> Path:
    """The path of a model: the best model of a run, a model folder, or an ONNX file."""
    path = Path(run) if isinstance(run, (str, os.PathLike)) else run.folder
    if path.suffix == ".onnx":
        if not path.is_file():
            raise TagfillError(f"There is no file {path}.")
        return path
    return path / "best" if (path / "best").is_dir() else path


def open_predictor(run: ModelPath, *, device: str = "auto", threads: int | None = None) -> Predictor:
    """Open a model for prediction.

    Args:
        run: a run or its folder, a model folder, or an ONNX file that `tagfill export` wrote.
        device: `cpu`, `cuda`, `mps` or `auto`.
        threads: of the network; by default one per core.

    Example:
        `open_predictor("photos.onnx").classes` is `("anchor", "bell", …)`
    """
    path = model_path(run)
    if path.suffix == ".onnx":
        from tagfill.inference.onnx_predictor import OnnxPredictor

        return OnnxPredictor.open(path, device=device, threads=threads)
    try:
        from tagfill.inference.torch_predictor import TorchPredictor
    except ModuleNotFoundError as error:
        raise TagfillError(
            f"The model in {path} needs the package {error.name}, which is not installed; install it, or predict with "
            "an ONNX file that 'tagfill export' wrote."
        ) from None
    return TorchPredictor.open(path, device=device, threads=threads)
