from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.metrics import Predictions, average_precision

RANDOM = np.random.default_rng(3)
SCORES = RANDOM.random((23, 4)).round(1).astype(np.float32)
LABELS = RANDOM.integers(-1, 2, (23, 4)).astype(np.int8)


def gathered(order: list[int], batch_size: int, processes: int) -> Predictions:
    """The predictions above, added in some order, in batches, by several processes."""
    shards = [Predictions() for _ in range(processes)]
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        shards[start // batch_size % processes].update(batch, SCORES[batch], LABELS[batch])
    every = Predictions()
    for shard in shards:
        every.merge(pickle.loads(pickle.dumps(shard)))
    return every


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(23)), batch_size=st.integers(1, 25), processes=st.integers(1, 4))
def test_result_does_not_depend_on_the_order_of_updates(order, batch_size, processes):
    every = gathered(order, batch_size, processes).compute()
    np.testing.assert_array_equal(every.index, np.arange(23))
    np.testing.assert_array_equal(every.scores, SCORES)
    np.testing.assert_array_equal(every.labels, LABELS)
    np.testing.assert_array_equal(average_precision(every.scores, every.labels), average_precision(SCORES, LABELS))


def test_tensors_are_accepted():
    predictions = Predictions()
    predictions.update(torch.tensor([1, 0]), torch.tensor([[0.5], [0.25]]), torch.tensor([[1], [-1]], dtype=torch.int8))
    every = predictions.compute()
    assert every.scores.tolist() == [[0.25], [0.5]]
    assert every.labels.dtype == np.int8


def test_values_are_copied():
    scores = np.array([[0.5]])
    predictions = Predictions()
    predictions.update([0], scores, [[1]])
    scores[:] = 0
    assert predictions.compute().scores.item() == 0.5


def test_merge_does_not_change_the_other():
    first, second = Predictions(), Predictions()
    first.update([0], [[0.5]], [[1]])
    second.update([1], [[0.25]], [[0]])
    first.merge(second)
    assert first.compute().index.tolist() == [0, 1]
    assert second.compute().index.tolist() == [1]


def test_repeated_image_is_refused():
    predictions = Predictions()
    predictions.update([4, 7], [[0.5], [0.1]], [[1], [0]])
    predictions.update([7], [[0.1]], [[0]])
    with pytest.raises(ValueError, match=r"Image 7 was added more than once \(1 repeats"):
        predictions.compute()


def test_nothing_added_is_refused():
    with pytest.raises(ValueError, match="No predictions were added"):
        Predictions().compute()


@pytest.mark.parametrize(
    ("index", "scores", "labels"),
    [([0, 1], [[0.5]], [[1]]), ([0], [[0.5]], [[1, 0]]), ([0], [0.5], [1])],
    ids=["index", "labels", "no classes"],
)
def test_shapes_must_agree(index, scores, labels):
    with pytest.raises(ValueError, match=r"must be \(images,\)"):
        Predictions().update(index, scores, labels)


def test_number_of_classes_stays_the_same():
    predictions = Predictions()
    predictions.update([0], [[0.5]], [[1]])
    with pytest.raises(ValueError, match="have 2 classes, earlier ones 1"):
        predictions.update([1], [[0.5, 0.5]], [[1, 0]])
