from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest, single_positives
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory import EntrySet, Memory, SavedPart, Scores, Shard, TopKScores

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


IMAGES, CLASSES, K = 9, 7, 3
TOP_K_LABELS = single_positives(IMAGES, CLASSES)
ALL_IMAGES = torch.arange(IMAGES)


def store(shard: np.ndarray | None = None) -> TopKScores:
    return TopKScores(
        TOP_K_LABELS, Shard(np.arange(IMAGES) if shard is None else shard), momentum=0.8, count=K
    ).allocate()


def probabilities(seed: int) -> torch.Tensor:
    return torch.rand(IMAGES, CLASSES, generator=torch.Generator().manual_seed(seed))


@modest
@given(visits=st.lists(st.lists(st.integers(0, IMAGES - 1), unique=True, min_size=1), max_size=6))
def test_kept_classes_hold_what_all_classes_would(visits):
    few, every = store(), Scores(TOP_K_LABELS, Shard(np.arange(IMAGES)), momentum=0.8).allocate()
    for number, images in enumerate(visits):
        index = torch.tensor(images)
        few.update(index, probabilities(number)[index])
        every.update(index, probabilities(number)[index])
    kept = torch.zeros(IMAGES, CLASSES, dtype=torch.bool)
    for n, classes in enumerate(few.classes.tolist()):
        kept[n, [c for c in classes if c >= 0]] = True
    seen = kept.any(1)
    assert torch.equal(few.read(ALL_IMAGES)[kept], every.read(ALL_IMAGES)[kept])
    assert not few.read(ALL_IMAGES)[seen][~kept[seen]].any()
    assert torch.equal(few.read(ALL_IMAGES)[~seen], every.read(ALL_IMAGES)[~seen])


def test_an_image_keeps_its_annotated_class_and_the_highest_of_its_first_visit():
    few = store()
    few.update(ALL_IMAGES, probabilities(0))
    few.update(ALL_IMAGES, 1 - probabilities(0))
    for n in range(IMAGES):
        positive = int(np.flatnonzero(TOP_K_LABELS.dense()[n] == 1)[0])
        others = sorted(set(range(CLASSES)) - {positive}, key=lambda c: -float(probabilities(0)[n, c]))
        assert few.classes[n].tolist() == sorted([positive, *others[: K - 1]])


def test_columns_are_those_of_all_rows():
    few = store()
    few.update(ALL_IMAGES[:5], probabilities(0)[:5])
    values, kept = few.columns(2, 5)
    assert torch.equal(values[:5].float(), few.read(ALL_IMAGES)[:5, 2:5])
    assert kept.sum() == ((few.classes >= 2) & (few.classes < 5)).sum() > 0


def test_more_annotated_classes_than_are_kept_are_refused():
    labels = LabelMatrix.from_dense(np.ones((2, 5), dtype=np.int8))
    with pytest.raises(
        TagfillError, match=r"keep 3 classes per image, but an image has 5 annotated ones; set classes_per"
    ):
        Memory(labels, np.arange(2), seed=0).scores(momentum=0.8, classes_per_image=3)


def test_as_many_classes_as_there_are_is_all_of_them():
    assert isinstance(
        Memory(TOP_K_LABELS, np.arange(3), seed=0).scores(momentum=0.8, classes_per_image=CLASSES), Scores
    )


def test_saved_scores_come_back_and_move_with_their_image():
    few = store()
    few.update(ALL_IMAGES[:6], probabilities(0)[:6])
    again, moved = store(), store(np.array([8, 1, 3]))
    again.load_state_dict(few.state_dict())
    moved.reshard([SavedPart(Shard(np.arange(IMAGES)), few.state_dict())])
    assert again.visited
    for one, index in ((again, ALL_IMAGES), (moved, torch.tensor([3, 8, 1]))):
        assert torch.equal(one.read(index), few.read(index))


def test_bytes_are_those_of_both_tables():
    few = store()
    assert few.bytes == few.classes.nbytes + few.values.nbytes


SHARD = Shard(np.array([1, 4, 5, 8]))


def test_nothing_is_in_the_set_at_first():
    assert not EntrySet(SHARD, 3).allocate().read(torch.tensor([4, 8])).any()


@modest
@given(mask=arrays(np.bool_, (4, 3)), asked=st.lists(st.sampled_from([1, 4, 5, 8]), max_size=6))
def test_reading_equals_a_dense_mask(mask, asked):
    entries = EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.from_numpy(mask))])
    expected = [mask[[1, 4, 5, 8].index(image)].tolist() for image in asked]
    assert entries.read(torch.tensor(asked, dtype=torch.int64)).tolist() == expected


def test_replacing_forgets_what_was_there():
    entries = EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.ones(4, 3, dtype=torch.bool))])
    entries.replace([(0, torch.zeros(4, 3, dtype=torch.bool))])
    assert len(entries) == 0


def test_saved_entries_come_back():
    entries, again = EntrySet(SHARD, 3).allocate(), EntrySet(SHARD, 3).allocate()
    entries.replace([(0, torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool))])
    again.load_state_dict(entries.state_dict())
    assert torch.equal(again.read(torch.from_numpy(SHARD.index)), entries.read(torch.from_numpy(SHARD.index)))
