"""How much a request may ask for. All of it is checked before an image is decoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is refused, with which status.

    Attributes:
        body: bytes of a request (413).
        images: of a request (413).
        pixels: of an image, by its header (413).
        body_seconds: until the whole body must be there (408).
        answer_seconds: until the answer must be there (504).
        queue: images that may wait for the model, all requests together (503).
    """

    body: int = 32 * 2**20
    images: int = 32
    pixels: int = 40_000_000
    body_seconds: float = 20.0
    answer_seconds: float = 60.0
    queue: int = 256
