from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dataset.cases import at, dataset, row
from tagfill.dataset import Hierarchy, hierarchy
from tagfill.errors import DatasetError

CLASSES = ("dog", "cat", "pet", "animal", "car")
EDGES = (("dog", "pet"), ("cat", "pet"), ("pet", "animal"), ("dog", "animal"))


def labels(*rows):
    return dataset(*rows, classes=CLASSES, hierarchy=EDGES).labels().dense()[0].tolist()


def test_a_present_child_makes_all_its_ancestors_present():
    assert labels(row("dog")) == [1, -1, 1, 1, -1]


def test_an_absent_parent_makes_all_its_descendants_absent():
    assert labels(row("animal", False)) == [0, 0, 0, 0, -1]


def test_nothing_follows_from_an_absent_child_or_a_present_parent():
    assert labels(row("dog", False), row("animal", True)) == [0, -1, -1, 1, -1]


def test_nothing_follows_from_cannot_tell():
    assert labels(row("dog", None), row("animal", None)) == [-1] * 5


def test_an_implied_label_replaces_cannot_tell():
    assert labels(row("dog", True), row("pet", None)) == [1, -1, 1, 1, -1]
    assert labels(row("animal", False), row("dog", None)) == [0, 0, 0, 0, -1]


def test_a_superseded_row_implies_nothing():
    assert labels(row("dog", True, time=at(0)), row("dog", False, time=at(1))) == [0, -1, -1, -1, -1]


def test_a_class_with_two_parents_implies_both():
    edges = (("amphibian", "car"), ("amphibian", "boat"))
    data = dataset(row("amphibian"), classes=("car", "boat", "amphibian"), hierarchy=edges)
    assert data.labels().dense()[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("early", "late"), [(0, 1), (1, 0), (0, 0)])
def test_a_present_class_with_an_absent_ancestor_is_an_error_whichever_is_newer(early, late):
    rows = (row("car"), row("animal", False, time=at(early)), row("dog", True, time=at(late)))
    sentence = r"row 2 says that image 'a\.jpg' shows 'dog', and row 1 that it does not show 'animal', of which 'dog'"
    with pytest.raises(DatasetError, match=sentence):
        labels(*rows)


def test_the_closure_is_not_stored(tmp_path):
    data = dataset(row("dog"), classes=CLASSES, hierarchy=EDGES)
    data.labels()
    assert data.save(tmp_path).rows().num_rows == 1


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([("dog", "dog")], "dog → dog"),
        ([("dog", "pet"), ("pet", "animal"), ("animal", "dog")], "→"),
    ],
)
def test_a_cycle_is_refused_and_named(edges, cycle):
    with pytest.raises(DatasetError, match=f"The hierarchy has a cycle, .*{cycle}.*; drop one of its edges") as error:
        Hierarchy(CLASSES, edges)
    named = str(error.value).removeprefix("The hierarchy has a cycle, ").partition(";")[0].split(" → ")
    assert named[0] == named[-1]
    assert set(pairwise(named)) == set(edges)


def test_an_edge_of_an_unknown_class_is_refused():
    with pytest.raises(DatasetError, match="an edge from 'dog' to 'beast', but 'beast' is not a class"):
        Hierarchy(CLASSES, [("dog", "beast")])


def test_a_deep_hierarchy_does_not_run_out_of_stack():
    names = [str(number) for number in range(1500)]
    deep = Hierarchy(names, list(pairwise(names)))
    assert len(deep.ancestors[0]) == len(deep.descendants[-1]) == 1499


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_blocks_of_any_size_give_the_same_labels(monkeypatch, block):
    rng = np.random.default_rng(0)
    keys = np.sort(rng.choice(20 * 5, 40, replace=False))
    values = np.where(keys % 5 == 0, rng.integers(0, 2, 40), rng.choice([1, -1], 40)).astype(np.int8)
    tree = Hierarchy(CLASSES, EDGES)
    whole = tree.close(keys, values)
    monkeypatch.setattr(hierarchy, "_BLOCK", block)
    for found, expected in zip(tree.close(keys, values), whole, strict=True):
        np.testing.assert_array_equal(found, expected)
