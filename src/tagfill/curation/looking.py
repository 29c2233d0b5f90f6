"""What a reviewer sees: images of the dataset in a given size, and class maps laid over them."""

from __future__ import annotations

import threading
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.images import EVAL, as_jpeg, fitted, look, open_root, overlay
from tagfill.inference import Predictor, open_predictor

SIDES = (160, 320, 640, 1280)  # of the square that an image is fitted into
_KEPT_PICTURES, _KEPT_MAPS = 512, 256


class Looking:
    """Pictures of a dataset's images, as JPEG files.

    Args:
        dataset: with the images.
        run: a run or model folder, or an ONNX file with maps, whose class maps are shown; None shows none.
    """

    def __init__(self, dataset: Dataset, run: Path | None = None) -> None:
        self._dataset, self._root = dataset, open_root(dataset.root)
        self._run, self._model_lock = run, threading.Lock()
        self.picture = lru_cache(_KEPT_PICTURES)(self._picture)
        self.heatmap = lru_cache(_KEPT_MAPS)(self._heatmap)

    @property
    def has_maps(self) -> bool:
        """Whether there is a model to ask for class maps."""
        return self._run is not None

    def _picture(self, image: str, side: int) -> bytes:
        """An image, no larger than a square of `side` pixels."""
        return as_jpeg(self._fitted(image, side))

    def _heatmap(self, image: str, label: str, side: int) -> bytes:
        """The class map of a label over the image."""
        if self._run is None:
            raise TagfillError("There is no model to show class maps of; start the review with --run.")
        with self._model_lock:  # one at a time: the model is shared, and a second would only take its core
            values = self._map(image, label)
        return as_jpeg(overlay(self._fitted(image, side), values))

    def _fitted(self, image: str, side: int) -> Image.Image:
        if side not in SIDES:
            raise TagfillError(f"Pictures come in the sizes {', '.join(map(str, SIDES))}, not {side}.")
        return fitted(self._root, image, side)

    def _map(self, image: str, label: str) -> NDArray[np.floating]:
        pixels, _ = look(self._root, image, EVAL, self._predictor.size, seed=0)
        maps = self._predictor(pixels[None], maps=True).maps
        assert maps is not None
        chosen: NDArray[np.floating] = maps[0, self._dataset.classes.index(label)]
        return chosen

    @cached_property
    def _predictor(self) -> Predictor:
        """The model, opened when a map is first asked for; a review without maps does without torch."""
        assert self._run is not None
        predictor = open_predictor(self._run)
        predictor.check_maps()
        if predictor.classes != self._dataset.classes:
            raise TagfillError(
                f"The model in {self._run} was trained on other classes than dataset {self._dataset.name} has."
            )
        return predictor
