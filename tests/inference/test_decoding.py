"""Pixels for prediction are those of training's evaluation view, bit for bit, with any number of workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tagfill
from images.pictures import encode, photo
from inference.colours import write_images
from tagfill.data import PixelSource
from tagfill.images import EVAL
from tagfill.inference.images import find_images
from tagfill.inference.pipeline import decoded


@pytest.mark.parametrize("workers", [0, 2])
def test_pixels_are_those_that_evaluation_sees(tmp_path: Path, workers: int) -> None:
    data = tagfill.scenes.make(tmp_path / "scenes", train=5, val=1, test=1, size=96)
    source = PixelSource(data, (48, 64), EVAL, seed=3)
    expected = next(source.evaluate("train", np.arange(5))).inputs.permute(0, 2, 3, 1).numpy()

    found = list(decoded(find_images(data, split="train"), range(5), (48, 64), batch_size=2, workers=workers))

    assert [batch.numbers for batch in found] == [[0, 1], [2, 3], [4]]
    assert (np.concatenate([batch.pixels for batch in found]) == expected).all()


@pytest.mark.parametrize("workers", [0, 3])
def test_bad_images_are_told_apart_and_the_others_keep_their_order(tmp_path: Path, workers: int) -> None:
    folder = write_images(tmp_path / "photos", 7)
    (folder / "002.png").write_bytes(b"not an image")
    (folder / "005.png").write_bytes(encode(photo(90, 90))[:300])
    images = find_images(folder)

    found = list(decoded(images, range(1, 7), (32, 32), batch_size=2, workers=workers))

    assert [batch.numbers for batch in found] == [[1], [3, 4], [6]]
    assert [[number for number, _ in batch.bad] for batch in found] == [[2], [], [5]]
    assert "JPEG, PNG and WebP" in found[0].bad[0][1]
    assert [int(batch.pixels[0, 0, 0, 0]) for batch in found] == [8, 24, 48]


def test_whoever_stops_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    import threading

    images = find_images(write_images(tmp_path / "photos", 9))
    looks = decoded(images, range(9), (32, 32), batch_size=1, workers=2)
    next(looks)
    looks.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decoding")]
