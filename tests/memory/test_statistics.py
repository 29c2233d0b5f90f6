from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reference.patchcluster import distance, prototypes
from tagfill.contract import Ranks
from tagfill.errors import TagfillError
from tagfill.memory import Memory, Prior, SavedPart, Shard, read_prior
from tagfill.memory import statistics as module
from tagfill.memory.statistics import FAR, Prototypes

from .cases import single_positives

CLASSES = 3
ALONE = Ranks()


def prior(index: list[int] | None = None) -> Prior:
    return Prior(Shard(np.array(index if index is not None else range(6))), CLASSES).allocate()


def visits(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, CLASSES, generator=torch.Generator().manual_seed(seed))


def test_without_visits_it_is_zero():
    assert prior().mean(ALONE).tolist() == [0, 0, 0]
    assert prior().total_visits(ALONE) == 0


def test_mean_is_over_all_visits():
    """Over images, not over batches: a small last batch weighs less."""
    store, first, second = prior(), visits(4, 0), visits(1, 1)
    store.update(first)
    store.update(second)
    torch.testing.assert_close(store.mean(ALONE), torch.cat([first, second]).double().mean(0))
    assert store.total_visits(ALONE) == 5


def test_many_visits_lose_no_digits():
    store = prior()
    for _ in range(2000):
        store.update(torch.full((64, CLASSES), 0.1))
    torch.testing.assert_close(store.mean(ALONE), torch.full((CLASSES,), float(np.float32(0.1)), dtype=torch.float64))


def test_reading_changes_nothing():
    """A collective sum may work in place."""

    class Doubling(Ranks):
        def sum(self, values):
            return values.mul_(2)

    store = prior()
    store.update(visits(4, 0))
    before = store.mean(ALONE)
    for _ in range(2):
        torch.testing.assert_close(store.mean(Doubling()), before)
        assert store.total_visits(Doubling()) == 8


def test_clearing_starts_from_zero():
    store = prior()
    store.update(visits(4, 0))
    store.clear()
    store.update(visits(2, 1))
    torch.testing.assert_close(store.mean(ALONE), visits(2, 1).double().mean(0))


def test_saved_sums_come_back():
    store, again = prior(), prior()
    store.update(visits(4, 0))
    again.load_state_dict(store.state_dict())
    for each in (store, again):
        each.update(visits(2, 1))
    assert torch.equal(again.mean(ALONE), store.mean(ALONE))


@pytest.mark.parametrize("shards", [[range(6)], [[0, 3], [1, 2, 4, 5]], [[5], [0, 1], [2, 3, 4]]])
def test_nothing_is_lost_or_counted_twice_among_other_processes(shards):
    parts = []
    for rank, shard in enumerate(([0, 1, 5], [2, 3, 4])):
        store = prior(shard)
        store.update(visits(3 + rank, rank))
        parts.append(SavedPart(Shard(np.array(shard)), store.state_dict()))
    moved = [prior(list(shard)) for shard in shards]
    for store in moved:
        store.reshard(parts)
    assert sum(store.total_visits(ALONE) for store in moved) == 7
    total = sum(store.state_dict()["sums"] for store in moved)
    torch.testing.assert_close(total, torch.cat([visits(3, 0), visits(4, 1)]).double().sum(0))


def test_memory_knows_its_size():
    memory = Memory(single_positives(6, CLASSES), np.arange(6), seed=0)
    assert memory.prior() is memory.prior()
    assert memory.sizes() == {"prior": 32}


def test_a_file_is_read_by_name(tmp_path: Path):
    path = tmp_path / "prior.csv"
    path.write_text("Classes,avg_pred\ncat,0.25\nother,1\nant,0.5\n")
    assert read_prior(path, ("ant", "cat")).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("Classes,avg_pred\nant,0.5\n", "has no line for the class 'cat'; add one for each class"),
        ("Classes,avg_pred\nant,0.5\ncat,often\n", "Line 3 of the prior .* has no class or no number"),
        ("class,prior\nant,0.5\ncat,1\n", "the columns are Classes and avg_pred"),
        ("Classes,avg_pred\nant\ncat,1\n", "Line 2 of the prior"),
    ],
)
def test_an_incomplete_prior_file_is_refused(tmp_path: Path, content: str, sentence: str):
    path = tmp_path / "prior.csv"
    path.write_text(content)
    with pytest.raises(TagfillError, match=sentence):
        read_prior(path, ("ant", "cat"))


def test_a_missing_prior_file_is_refused(tmp_path: Path):
    with pytest.raises(TagfillError, match="cannot be read: No such file"):
        read_prior(tmp_path / "prior.csv", ("ant",))


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_distances_equal_the_formula(monkeypatch, at_once):
    monkeypatch.setattr(module, "_CLASSES_AT_ONCE", at_once)
    features = torch.randn(4, 5, 2, 3, generator=torch.Generator().manual_seed(0))
    cells = features.flatten(2).transpose(1, 2).tolist()
    marked = [(0, 0, 1), (1, 0, 4), (0, 2, 1), (3, 2, 0), (2, 2, 5)]
    found = Prototypes(3, 5)
    for image, label, cell in marked:
        found.add(features.flatten(2)[image, :, cell][None], torch.tensor([label]))
    expected = prototypes(cells, marked, 3)
    nearest, cell = found.nearest(features)
    for n in range(4):
        for c in range(3):
            if expected[c] is None:
                assert nearest[n, c] == FAR
                continue
            distances = [distance(place, expected[c]) for place in cells[n]]
            assert nearest[n, c].item() == pytest.approx(min(distances), abs=1e-5)
            assert cell[n, c] == distances.index(min(distances))
    assert found.known.tolist() == [True, False, True]


def test_pooled_features_are_one_cell():
    found = Prototypes(1, 2)
    found.add(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    distances, cell = found.nearest(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]))
    torch.testing.assert_close(distances, torch.tensor([[0.0], [1.0], [2.0]]))
    assert not cell.any()


def test_the_length_of_a_feature_does_not_matter_to_distances():
    found = Prototypes(1, 3)
    found.add(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]))
    torch.testing.assert_close(found.nearest(torch.tensor([[10.0, 20.0, 30.0]]))[0], torch.zeros(1, 1))
