"""Batches of pixels: in order, the same for any number of workers, and without images that cannot be decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tagfill
from images.pictures import encode, photo
from inference.colors import write_images
from tagfill.data import PixelSource
from tagfill.images import EVAL, load_batches
from tagfill.inference.images import find_images


@pytest.mark.parametrize("workers", [0, 2])
def test_pixels_are_those_that_evaluation_sees(tmp_path: Path, workers: int) -> None:
    data = tagfill.scenes.make(tmp_path / "scenes", train=5, val=1, test=1, size=96)
    source, images = PixelSource(data, (48, 64), EVAL, seed=3), find_images(data, split="train")
    expected = next(source.evaluate("train", np.arange(5))).inputs.permute(0, 2, 3, 1).numpy()

    found = list(load_batches([[0, 1], [2, 3], [4]], images.locate, (48, 64), workers=workers))

    assert [batch.index.tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    assert (np.concatenate([batch.inputs for batch in found]) == expected).all()


@pytest.mark.parametrize("workers", [0, 3])
def test_bad_images_are_reported_and_the_others_keep_their_order(tmp_path: Path, workers: int) -> None:
    folder = write_images(tmp_path / "photos", 7)
    (folder / "002.png").write_bytes(b"not an image")
    (folder / "005.png").write_bytes(encode(photo(90, 90))[:300])
    images = find_images(folder)

    found = list(load_batches([[1, 2], [3, 4], [5, 6]], images.locate, (32, 32), workers=workers))

    assert [batch.index.tolist() for batch in found] == [[1], [3, 4], [6]]
    assert [[number for number, _ in batch.bad] for batch in found] == [[2], [], [5]]
    assert "JPEG, PNG and WebP" in str(found[0].bad[0][1])
    assert [int(batch.inputs[0, 0, 0, 0]) for batch in found] == [8, 24, 48]


def test_stopping_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    import threading

    images = find_images(write_images(tmp_path / "photos", 9))
    batches = load_batches([[number] for number in range(9)], images.locate, (32, 32), workers=2)
    next(batches)
    batches.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decoding")]
