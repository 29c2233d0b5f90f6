from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from tagfill.labels import LabelMatrix
from tagfill.memory import Scores, Shard

LOGITS = torch.tensor([[2, -1, 0.5, -3], [-0.5, 1.5, -2, 0]])
LABELS = LabelMatrix.from_dense(np.array([[1, -1, -1, 0], [-1, 1, -1, -1]], dtype=np.int8))


def whole(labels: LabelMatrix) -> Shard:
    return Shard(np.arange(len(labels)))


def test_scores_start_at_the_observed_positives():
    scores = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    assert scores.read(torch.arange(2)).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]


def test_worked_example_of_one_visit():
    scores = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    scores.update(torch.tensor([0]), LOGITS[:1].sigmoid())
    golden = [0.976159, 0.053788, 0.124492, 0.009485]
    assert scores.read(torch.tensor([0]))[0].tolist() == pytest.approx(golden, abs=3e-4)


def test_only_images_of_the_batch_change():
    scores = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    scores.update(torch.tensor([0]), LOGITS[:1].sigmoid())
    assert scores.read(torch.tensor([1])).tolist() == [[0, 1, 0, 0]]


def test_averages_are_taken_in_single_precision_and_kept_in_half():
    scores = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    probabilities = LOGITS.sigmoid()
    expected = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float16)
    for _ in range(3):
        scores.update(torch.arange(2), probabilities)
        expected = (0.8 * expected.astype(np.float32) + (1 - 0.8) * probabilities.numpy()).astype(np.float16)
    assert scores.values.dtype == torch.float16
    np.testing.assert_array_equal(scores.values.numpy(), expected)


def test_bytes_are_those_of_the_table():
    labels = single_positives(10, 3)
    shard = Shard(np.arange(0, 10, 2))
    scores = Scores(labels, shard, momentum=0.8).allocate()
    assert scores.bytes == scores.values.numel() * scores.values.element_size() == 30


@pytest.mark.parametrize("world", [2, 3])
def test_shards_hold_the_rows_of_the_whole(world):
    labels = single_positives(10, 4)
    order = np.random.default_rng(3).permutation(10)
    probabilities = torch.rand(10, 4, generator=torch.Generator().manual_seed(0))
    every = Scores(labels, whole(labels), momentum=0.8).allocate()
    every.update(torch.arange(10), probabilities)
    for rank in range(world):
        mine = torch.from_numpy(order[rank::world].copy())
        part = Scores(labels, Shard(mine.numpy()), momentum=0.8).allocate()
        part.update(mine, probabilities[mine])
        assert torch.equal(part.read(mine), every.read(mine))


def test_saved_scores_come_back():
    scores = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    scores.update(torch.arange(2), LOGITS.sigmoid())
    again = Scores(LABELS, whole(LABELS), momentum=0.8).allocate()
    again.load_state_dict(scores.state_dict())
    assert torch.equal(again.values, scores.values)
