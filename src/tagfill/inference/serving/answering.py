"""From the images of a request to what is said about them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import ImageError
from tagfill.images import EVAL, as_jpeg, fitted, look, overlay
from tagfill.inference.deciding import Threshold, chosen_thresholds, decide
from tagfill.inference.predictor import Outputs, Predictor
from tagfill.inference.serving.batching import Batcher
from tagfill.inference.serving.bodies import RefusedError, Upload, check
from tagfill.inference.serving.limits import Limits

_SIDE = 320  # of a heatmap's longer side


@dataclass(frozen=True)
class Asked:
    """What a request wants to know.

    Attributes:
        threshold: from which a label is present, in place of the model's own.
        top_k: only so many labels of each image, likeliest first.
        heatmaps: pictures of where the labels that are present are.
    """

    threshold: Threshold = None
    top_k: int | None = None
    heatmaps: bool = False


class Answering:
    """Answers to requests, by one model.

    Args:
        predictor: the model.
        batcher: that shares it.
        decoders: threads that decode.
        limits: of a request.
    """

    def __init__(self, predictor: Predictor, batcher: Batcher, decoders: Executor, limits: Limits) -> None:
        self._predictor, self._batcher, self._decoders, self._limits = predictor, batcher, decoders, limits

    async def answer(self, images: Sequence[Upload], asked: Asked) -> list[dict[str, Any]]:
        """What the model says of each image.

        Raises:
            RefusedError: for images that cannot be looked at, or no image at all.
            FullError: if too many wait already.
        """
        if not images:
            raise RefusedError(400, "there is no image; send files named 'images'")
        self._batcher.reserve(len(images))
        thresholds = chosen_thresholds(self._predictor.classes, self._predictor.thresholds, asked.threshold)
        loop = asyncio.get_running_loop()
        pixels = await asyncio.gather(
            *(loop.run_in_executor(self._decoders, _pixels, one, self._predictor.size, self._limits) for one in images)
        )
        waiting = self._batcher.submit(list(pixels), maps=asked.heatmaps)
        outputs = await asyncio.gather(*map(asyncio.wrap_future, waiting))
        return await asyncio.gather(
            *(
                loop.run_in_executor(self._decoders, self._told, image, output, thresholds, asked)
                for image, output in zip(images, outputs, strict=True)
            )
        )

    def _told(self, image: Upload, output: Outputs, thresholds: Sequence[float], asked: Asked) -> dict[str, Any]:
        classes = self._predictor.classes
        decided = decide(output.logits, thresholds, asked.top_k)
        labels, scores = decided.labels[0].tolist(), decided.scores[0].tolist()
        present = [classes[label] for label, there in zip(labels, decided.present[0], strict=True) if there]
        told: dict[str, Any] = {
            "image": image.name,
            "present": present,
            "scores": {classes[label]: round(score, 6) for label, score in zip(labels, scores, strict=True)},
        }
        if asked.heatmaps and output.maps is not None:
            maps = {label: output.maps[0, classes.index(label)] for label in present}
            told["heatmaps"] = {label: _picture(image, values) for label, values in maps.items()}
        return told


class _Sent:
    """An image that came with a request, as a root to read it from."""

    def __init__(self, image: Upload) -> None:
        self._image = image

    def read(self, name: str) -> bytes:
        """The bytes of the image."""
        return self._image.content

    def names(self) -> list[str]:
        """The one that there is."""
        return [self._image.name]


def _pixels(image: Upload, size: tuple[int, int], limits: Limits) -> NDArray[np.uint8]:
    """The view of evaluation, H×W×3; what the header says is checked first."""
    check(image, limits)
    try:
        return look(_Sent(image), image.name, EVAL, size, seed=0)[0]
    except ImageError as error:
        raise RefusedError(415, str(error).rstrip(".")) from None


def _picture(image: Upload, values: NDArray[np.float32]) -> str:
    """The class map over the image, as a data URI."""
    content = as_jpeg(overlay(fitted(_Sent(image), image.name, _SIDE), values))
    return "data:image/jpeg;base64," + base64.b64encode(content).decode()
