from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memory.cases import modest, single_positives
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory, SavedPart, Scores, Shard, TopKScores

IMAGES, CLASSES, K = 9, 7, 3
LABELS = single_positives(IMAGES, CLASSES)
EVERYBODY = torch.arange(IMAGES)


def store(shard: np.ndarray | None = None) -> TopKScores:
    return TopKScores(LABELS, Shard(np.arange(IMAGES) if shard is None else shard), momentum=0.8, count=K).allocate()


def probabilities(seed: int) -> torch.Tensor:
    return torch.rand(IMAGES, CLASSES, generator=torch.Generator().manual_seed(seed))


@modest
@given(visits=st.lists(st.lists(st.integers(0, IMAGES - 1), unique=True, min_size=1), max_size=6))
def test_kept_classes_hold_what_all_classes_would(visits):
    few, every = store(), Scores(LABELS, Shard(np.arange(IMAGES)), momentum=0.8).allocate()
    for number, images in enumerate(visits):
        index = torch.tensor(images)
        few.update(index, probabilities(number)[index])
        every.update(index, probabilities(number)[index])
    kept = torch.zeros(IMAGES, CLASSES, dtype=torch.bool)
    for n, classes in enumerate(few.classes.tolist()):
        kept[n, [c for c in classes if c >= 0]] = True
    seen = kept.any(1)
    assert torch.equal(few.read(EVERYBODY)[kept], every.read(EVERYBODY)[kept])
    assert not few.read(EVERYBODY)[seen][~kept[seen]].any()
    assert torch.equal(few.read(EVERYBODY)[~seen], every.read(EVERYBODY)[~seen])


def test_an_image_keeps_its_annotated_class_and_the_highest_of_its_first_visit():
    few = store()
    few.update(EVERYBODY, probabilities(0))
    few.update(EVERYBODY, 1 - probabilities(0))
    for n in range(IMAGES):
        positive = int(np.flatnonzero(LABELS.dense()[n] == 1)[0])
        others = sorted(set(range(CLASSES)) - {positive}, key=lambda c: -float(probabilities(0)[n, c]))
        assert few.classes[n].tolist() == sorted([positive, *others[: K - 1]])


def test_columns_are_those_of_all_rows():
    few = store()
    few.update(EVERYBODY[:5], probabilities(0)[:5])
    values, kept = few.columns(2, 5)
    assert torch.equal(values[:5].float(), few.read(EVERYBODY)[:5, 2:5])
    assert kept.sum() == ((few.classes >= 2) & (few.classes < 5)).sum() > 0


def test_more_annotated_classes_than_are_kept_are_refused():
    labels = LabelMatrix.from_dense(np.ones((2, 5), dtype=np.int8))
    with pytest.raises(
        TagfillError, match=r"keep 3 classes per image, but an image has 5 annotated ones; set classes_per"
    ):
        Memory(labels, np.arange(2), seed=0).scores(momentum=0.8, classes_per_image=3)


def test_as_many_classes_as_there_are_is_all_of_them():
    assert isinstance(Memory(LABELS, np.arange(3), seed=0).scores(momentum=0.8, classes_per_image=CLASSES), Scores)


def test_saved_scores_come_back_and_move_with_their_image():
    few = store()
    few.update(EVERYBODY[:6], probabilities(0)[:6])
    again, moved = store(), store(np.array([8, 1, 3]))
    again.load_state_dict(few.state_dict())
    moved.reshard([SavedPart(Shard(np.arange(IMAGES)), few.state_dict())])
    assert again.visited
    for one, index in ((again, EVERYBODY), (moved, torch.tensor([3, 8, 1]))):
        assert torch.equal(one.read(index), few.read(index))


def test_bytes_are_those_of_both_tables():
    few = store()
    assert few.bytes == few.classes.nbytes + few.values.nbytes
