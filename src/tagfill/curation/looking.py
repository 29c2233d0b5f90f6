"""What a reviewer sees: images of the dataset in a given size, and class maps laid over them."""

from __future__ import annotations

import io
import threading
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import Dataset
from tagfill.errors import TagfillError
from tagfill.images import decode, open_root, overlay

if TYPE_CHECKING:
    from tagfill.training.trained import Trained

SIDES = (160, 320, 640, 1280)  # of the square that an image is fitted into
_KEPT_PICTURES, _KEPT_MAPS = 512, 256


class Looking:
    """Pictures of a dataset's images, as JPEG files.

    Args:
        dataset: with the images.
        run: a run or model folder whose class maps are shown; None shows none.
    """

    def __init__(self, dataset: Dataset, run: Path | None = None) -> None:
        self._dataset, self._root = dataset, open_root(dataset.root)
        self._run, self._model_lock = run, threading.Lock()
        self._rows = {name: row for row, name in enumerate(dataset.names())}
        self.picture = lru_cache(_KEPT_PICTURES)(self._picture)
        self.heatmap = lru_cache(_KEPT_MAPS)(self._heatmap)

    @property
    def has_maps(self) -> bool:
        """Whether there is a model to ask for class maps."""
        return self._run is not None

    def _picture(self, image: str, side: int) -> bytes:
        """An image, no larger than a square of `side` pixels."""
        return _jpeg(self._fitted(image, side))

    def _heatmap(self, image: str, label: str, side: int) -> bytes:
        """The class map of a label over the image."""
        if self._run is None:
            raise TagfillError("There is no model to show class maps of; start the review with --run.")
        with self._model_lock:  # one at a time: the model is shared, and a second would only take its core
            values = self._map(image, label)
        return _jpeg(overlay(self._fitted(image, side), values))

    def _fitted(self, image: str, side: int) -> Image.Image:
        if side not in SIDES:
            raise TagfillError(f"Pictures come in the sizes {', '.join(map(str, SIDES))}, not {side}.")
        picture = decode(self._root, image, shrink_to=(side, side))
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        return picture

    def _map(self, image: str, label: str) -> NDArray[np.floating]:
        split, position = self._position(image)
        for _, prediction in self._trained.predict(split, np.array([position]), maps=True):
            if prediction.maps is None:
                break
            return prediction.maps[0, self._dataset.classes.index(label)].float().numpy(force=True)
        raise TagfillError(f"The model in {self._run} has no class maps; train one with the head cam or tscam.")

    def _position(self, image: str) -> tuple[str, int]:
        """The split of an image, and its place in it."""
        row = self._rows[image]
        for split, rows in self._dataset.splits.items():
            at = int(np.searchsorted(rows, row))
            if at < len(rows) and rows[at] == row:
                return split, at
        raise AssertionError(f"{image} is in no split")

    @cached_property
    def _trained(self) -> Trained:
        from tagfill.training.trained import Trained  # brings torch, which a review without maps can do without

        assert self._run is not None
        return Trained.open(self._run, self._dataset, maps=True)


def _jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=85)
    return file.getvalue()
