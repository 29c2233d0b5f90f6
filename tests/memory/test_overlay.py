from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.cases import single_positives
from tagfill.errors import TagfillError
from tagfill.memory import ChangedLabels, Memory, SavedPart, Shard, pseudo_labels

IMAGES, CLASSES = 20, 4
LABELS = single_positives(IMAGES, CLASSES)
EVERYBODY = torch.arange(IMAGES)
DENSE = torch.from_numpy(LABELS.dense())


def mask(*entries: tuple[int, int], images: int = IMAGES) -> torch.Tensor:
    chosen = torch.zeros(images, CLASSES, dtype=torch.bool)
    for row, label in entries:
        chosen[row, label] = True
    return chosen


def changed(shard: list[int] | None = None) -> ChangedLabels:
    return ChangedLabels(LABELS, Shard(np.arange(IMAGES) if shard is None else np.array(shard))).allocate()


def test_nothing_is_changed_at_first():
    store = changed()
    assert len(store) == 0
    assert torch.equal(store.read(EVERYBODY, DENSE), DENSE)


def test_changes_stay_and_the_given_labels_do_not_change():
    store, given = changed(), DENSE.clone()
    store.set(torch.tensor([7, 3]), mask((0, 2), (1, 1), images=2), 1)
    expected = DENSE.clone()
    expected[7, 2] = expected[3, 1] = 1
    assert torch.equal(store.read(EVERYBODY, given), expected)
    assert torch.equal(given, DENSE)
    assert torch.equal(torch.from_numpy(LABELS.dense()), DENSE)


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
    store.set(EVERYBODY, mask((1, 2), (19, 0)), 1)
    again.load_state_dict(store.state_dict())
    assert torch.equal(again.read(EVERYBODY, DENSE), store.read(EVERYBODY, DENSE))
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
    memory = Memory(LABELS, np.arange(IMAGES), seed=0, budget=900)
    store = memory.overlay(changes=100)
    assert memory.sizes() == {"overlay": 900}
    store.set(EVERYBODY, torch.ones(IMAGES, CLASSES, dtype=torch.bool), 1)
    assert sum(value.numel() * value.element_size() for value in store.state_dict().values()) == 9 * IMAGES * CLASSES


def test_expected_changes_above_the_budget_are_refused():
    with pytest.raises(TagfillError, match="memory 'overlay' takes"):
        Memory(LABELS, np.arange(IMAGES), seed=0, budget=899).overlay(changes=100)
