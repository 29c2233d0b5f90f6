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
from tagfill.memory import ChangedLabels, FoundLabels, Memory, PseudoLabels, SavedPart, Shard, pseudo_labels

LABELS = single_positives(9, 3)
SHARD = Shard(np.array([1, 4, 5, 8]))


def test_there_is_nothing_at_first():
    labels = PseudoLabels(LABELS, SHARD).allocate()
    assert not labels.given.any()
    assert (labels.read(torch.tensor([4, 8])) == -1).all()


@modest
@given(
    first=arrays(np.bool_, (4, 3)),
    second=arrays(np.bool_, (4, 3)),
    asked=st.lists(st.sampled_from([1, 4, 5, 8]), max_size=6),
)
def test_reading_equals_a_table(first, second, asked):
    """Values are given twice; the later one stands."""
    soft = np.arange(12, dtype=np.float32).reshape(4, 3) / 16  # exact in half precision
    labels = PseudoLabels(LABELS, SHARD).allocate()
    labels.assign(torch.from_numpy(first), torch.from_numpy(soft))
    labels.assign(torch.from_numpy(second), 1.0)
    table = np.where(second, 1.0, np.where(first, soft, -1.0))
    expected = [table[[1, 4, 5, 8].index(image)].tolist() for image in asked]
    assert labels.read(torch.tensor(asked, dtype=torch.int64)).tolist() == expected


def test_everything_can_be_forgotten():
    labels = PseudoLabels(LABELS, SHARD).allocate()
    labels.assign(torch.ones(4, 3, dtype=torch.bool), 0.0)
    assert labels.given.all()
    labels.clear()
    assert not labels.given.any()


def filled(shard: Shard) -> PseudoLabels:
    """Values that depend on the image alone."""
    labels = PseudoLabels(LABELS, shard).allocate()
    values = torch.from_numpy(shard.index)[:, None] / 16 + torch.tensor([0.0, 0.125, 0.25])
    labels.assign(values > 0.2, values)
    return labels


def test_saved_labels_come_back():
    again = PseudoLabels(LABELS, SHARD).allocate()
    again.load_state_dict(filled(SHARD).state_dict())
    assert torch.equal(again.values, filled(SHARD).values)


def test_labels_move_with_their_image():
    parts = [Shard(np.arange(rank, 9, 2)) for rank in range(2)]
    saved = [SavedPart(part, filled(part).state_dict()) for part in parts]
    for rank in range(3):
        shard = Shard(np.arange(rank, 9, 3))
        moved = PseudoLabels(LABELS, shard).allocate()
        moved.reshard(saved)
        assert torch.equal(moved.values, filled(shard).values)


def test_bytes_are_those_of_the_table():
    assert PseudoLabels(LABELS, SHARD).bytes == PseudoLabels(LABELS, SHARD).allocate().values.nbytes


FOUND_LABELS = LabelMatrix.from_dense(np.full((4, 3), -1, np.int8))
FOUND = (
    np.array([3, 0, 3, 2]),
    np.array([1, 2, 0, 1]),
    np.array([1, 0, 0, 1], np.int8),
    np.array([7, 0, 3, 5], np.int16),
)


def found_filled(index: list[int]) -> FoundLabels:
    store = FoundLabels(Shard(np.array(index)), 3, limit=3).allocate()
    store.replace(*FOUND)
    return store


def test_labels_and_cells_of_images_in_any_order():
    labels, cells = found_filled([0, 1, 2, 3]).read(torch.tensor([3, 1, 0]))
    assert labels.tolist() == [[0, 1, -1], [-1, -1, -1], [-1, -1, 0]]
    assert cells[0].tolist() == [3, 7, 0]


def test_a_rank_keeps_what_is_about_its_images():
    assert len(found_filled([0, 2])) == 2
    assert found_filled([2]).read(torch.tensor([2]))[0].tolist() == [[-1, 1, -1]]


def test_state_comes_back():
    saved, empty = found_filled([0, 1, 2, 3]).state_dict(), FoundLabels(Shard(np.arange(4)), 3, limit=3).allocate()
    assert not empty.made
    empty.load_state_dict(saved)
    assert empty.made
    assert all(np.array_equal(saved[name], empty.state_dict()[name]) for name in saved)


def test_resharding_moves_labels_with_their_images():
    parts = [SavedPart(Shard(np.array(index)), found_filled(index).state_dict()) for index in ([0, 3], [1, 2])]
    store = FoundLabels(Shard(np.array([2, 3])), 3, limit=3).allocate()
    store.reshard(parts)
    assert store.made
    assert store.read(torch.tensor([2, 3]))[0].tolist() == found_filled([2, 3]).read(torch.tensor([2, 3]))[0].tolist()


def test_it_says_what_it_takes_before_it_is_made():
    assert FoundLabels(Shard(np.arange(10)), 5000, limit=100).bytes == 11 * 1000
    with pytest.raises(TagfillError, match="'found_labels' takes"):
        Memory(FOUND_LABELS, np.arange(len(FOUND_LABELS)), seed=0, budget=10).found_labels(limit=100)


IMAGES, CLASSES = 20, 4
CHANGED_LABELS = single_positives(IMAGES, CLASSES)
ALL_IMAGES = torch.arange(IMAGES)
DENSE = torch.from_numpy(CHANGED_LABELS.dense())


def mask(*entries: tuple[int, int], images: int = IMAGES) -> torch.Tensor:
    chosen = torch.zeros(images, CLASSES, dtype=torch.bool)
    for row, label in entries:
        chosen[row, label] = True
    return chosen


def changed(shard: list[int] | None = None) -> ChangedLabels:
    return ChangedLabels(CHANGED_LABELS, Shard(np.arange(IMAGES) if shard is None else np.array(shard))).allocate()


def test_nothing_is_changed_at_first():
    store = changed()
    assert len(store) == 0
    assert torch.equal(store.read(ALL_IMAGES, DENSE), DENSE)


def test_changes_stay_and_the_given_labels_do_not_change():
    store, given = changed(), DENSE.clone()
    store.set(torch.tensor([7, 3]), mask((0, 2), (1, 1), images=2), 1)
    expected = DENSE.clone()
    expected[7, 2] = expected[3, 1] = 1
    assert torch.equal(store.read(ALL_IMAGES, given), expected)
    assert torch.equal(given, DENSE)
    assert torch.equal(torch.from_numpy(CHANGED_LABELS.dense()), DENSE)


def test_a_change_can_be_changed():
    store = changed()
    for value in (1, 0):
        store.set(torch.tensor([7]), mask((0, 2), images=1), value)
    assert store.read(torch.tensor([7]), DENSE[[7]])[0, 2] == 0
    assert len(store) == 1


@pytest.mark.parametrize("merge_at", [0, 3, 4096])
def test_many_small_changes_equal_a_dense_table(monkeypatch, merge_at):
    """Whenever recent changes are merged into the others."""
    monkeypatch.setattr(pseudo_labels, "_MERGE_AT", merge_at)
    store, expected = changed(), DENSE.clone()
    draws = torch.Generator().manual_seed(0)
    for _ in range(30):
        index = torch.randperm(IMAGES, generator=draws)[:5]
        chosen = torch.rand(5, CLASSES, generator=draws) < 0.2
        value = int(torch.randint(-1, 2, (), generator=draws))
        store.set(index, chosen, value)
        table = expected[index]
        table[chosen] = value
        expected[index] = table
        asked = torch.randperm(IMAGES, generator=draws)[:7]
        assert torch.equal(store.read(asked, DENSE[asked]), expected[asked])


def test_saved_changes_come_back():
    store, again = changed(), changed()
    store.set(ALL_IMAGES, mask((1, 2), (19, 0)), 1)
    again.load_state_dict(store.state_dict())
    assert torch.equal(again.read(ALL_IMAGES, DENSE), store.read(ALL_IMAGES, DENSE))
    assert len(again) == 2


def test_changes_move_with_their_image():
    shards = [list(range(0, IMAGES, 2)), list(range(1, IMAGES, 2))]
    parts = []
    for shard in shards:
        store = changed(shard)
        index = torch.tensor(shard)
        store.set(index, torch.ones(len(shard), CLASSES, dtype=torch.bool), shard[0])
        parts.append(SavedPart(Shard(np.array(shard)), store.state_dict()))
    for shard in ([0, 1, 2], [3, 18, 19]):
        moved = changed(shard)
        moved.reshard(parts)
        index = torch.tensor(shard)
        assert torch.equal(moved.read(index, DENSE[index]), (index % 2).to(torch.int8)[:, None].expand(-1, CLASSES))
        assert len(moved) == 3 * CLASSES


def test_images_of_other_processes_are_refused():
    with pytest.raises(IndexError, match="another process"):
        changed([0, 2]).read(torch.tensor([1]), DENSE[[1]])


def test_a_change_takes_nine_bytes():
    memory = Memory(CHANGED_LABELS, np.arange(IMAGES), seed=0, budget=900)
    store = memory.overlay(changes=100)
    assert memory.sizes() == {"overlay": 900}
    store.set(ALL_IMAGES, torch.ones(IMAGES, CLASSES, dtype=torch.bool), 1)
    assert sum(value.numel() * value.element_size() for value in store.state_dict().values()) == 9 * IMAGES * CLASSES


def test_expected_changes_above_the_budget_are_refused():
    with pytest.raises(TagfillError, match="memory 'overlay' takes"):
        Memory(CHANGED_LABELS, np.arange(IMAGES), seed=0, budget=899).overlay(changes=100)
