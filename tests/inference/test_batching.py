"""Batches that form by themselves: everybody gets their own answer, nobody waits for ever, nothing grows."""

import threading
import time

import numpy as np
import pytest

from tagfill.inference.predictors import Outputs
from tagfill.inference.serve import Batcher, QueueFullError


class Slow:
    """Says of an image what its first pixel is, after a while."""

    def __init__(self, seconds=0.0):
        self.seconds, self.sizes = seconds, []

    def __call__(self, pixels, *, maps=False):
        time.sleep(self.seconds)
        self.sizes.append((len(pixels), maps))
        logits = pixels[:, 0, 0, :1].astype(np.float32)
        return Outputs(logits, logits[:, :, None, None] if maps else None)


def image(value):
    return np.full((2, 2, 3), value, np.uint8)


def test_everybody_gets_their_own_answer():
    batcher, answers = Batcher(Slow(0.002), size=8), {}

    def ask(value):
        (future,) = batcher.submit([image(value)], maps=value % 2 == 0)
        answers[value] = future.result()

    threads = [threading.Thread(target=ask, args=(value,)) for value in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert all(answers[value].logits[0, 0] == value for value in range(100))
    assert all((answers[value].maps is not None) == (value % 2 == 0) for value in range(100))


def test_batches_form_under_load_and_keep_to_their_size():
    model = Slow(0.02)
    batcher = Batcher(model, size=4)
    futures = batcher.submit([image(value) for value in range(16)], maps=False)
    assert [future.result().logits[0, 0] for future in futures] == list(range(16))
    batcher.close()
    assert [size for size, _ in model.sizes] == [4, 4, 4, 4]


def test_one_image_does_not_wait_for_a_full_batch():
    batcher = Batcher(Slow(), size=64, wait=0.01)
    begin = time.monotonic()
    batcher.submit([image(7)], maps=False)[0].result(timeout=5)
    assert time.monotonic() - begin < 5
    batcher.close()


def test_those_who_want_no_maps_do_not_pay_for_them():
    model = Slow(0.05)
    batcher = Batcher(model, size=8)
    first = batcher.submit([image(0)], maps=False)
    time.sleep(0.02)  # the model is at work
    rest = batcher.submit([image(1), image(2)], maps=True) + batcher.submit([image(3)], maps=False)
    for future in [*first, *rest]:
        future.result()
    batcher.close()
    assert model.sizes == [(1, False), (2, True), (1, False)]


def test_room_is_bounded_and_all_or_nothing():
    model = Slow(0.2)
    batcher = Batcher(model, size=1, wait=0, capacity=3)
    first = batcher.submit([image(0)], maps=False)
    time.sleep(0.05)
    waiting = batcher.submit([image(1), image(2)], maps=False)
    with pytest.raises(QueueFullError):
        batcher.submit([image(3), image(4)], maps=False)
    assert len(batcher) == 2
    waiting += batcher.submit([image(5)], maps=False)
    assert [future.result().logits[0, 0] for future in first + waiting] == [0, 1, 2, 5]
    batcher.close()


def test_a_model_that_fails_tells_those_who_wait_and_goes_on():
    def model(pixels, *, maps=False):
        if pixels[0, 0, 0, 0] == 1:
            raise RuntimeError("broken")
        return Outputs(pixels[:, 0, 0, :1].astype(np.float32))

    batcher = Batcher(model, size=1)
    with pytest.raises(RuntimeError, match="broken"):
        batcher.submit([image(1)], maps=False)[0].result()
    assert batcher.submit([image(2)], maps=False)[0].result().logits[0, 0] == 2
    batcher.close()


def test_closing_finishes_what_waits_and_takes_nothing_more():
    batcher = Batcher(Slow(0.02), size=1)
    futures = batcher.submit([image(value) for value in range(5)], maps=False)
    batcher.close()
    assert [future.result(timeout=0).logits[0, 0] for future in futures] == list(range(5))
    with pytest.raises(QueueFullError):
        batcher.submit([image(0)], maps=False)


def test_whoever_gave_up_is_passed_over():
    model = Slow(0.05)
    batcher = Batcher(model, size=4)
    (first,) = batcher.submit([image(0)], maps=False)
    time.sleep(0.02)
    gone, here = batcher.submit([image(1), image(2)], maps=False)
    assert gone.cancel()
    assert here.result().logits[0, 0] == 2
    assert first.result().logits[0, 0] == 0
    batcher.close()
    assert model.sizes == [(1, False), (1, False)]
