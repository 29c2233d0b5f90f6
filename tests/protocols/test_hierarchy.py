from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protocols.cases import CLASSES, PARENTS, kept, made, path
from tagfill.dataset import Hierarchy
from tagfill.errors import DatasetError
from tagfill.labels import LabelMatrix
from tagfill.protocols import hierarchy
from tagfill.protocols.hierarchy import keep_verified
from tagfill.rng import PairNumbers

DATA = made(hierarchical=True, share=0.2)
TREE = Hierarchy(DATA.classes, DATA.hierarchy)


def test_ancestors_of_verified_labels_are_verified():
    for labels in kept(hierarchy(DATA)).values():
        present = {label for label, value in labels.items() if value}
        assert present == {upper for label in present for upper in path(label)}


def test_absent_labels_are_siblings_of_verified_ones():
    for labels in kept(hierarchy(DATA)).values():
        families = {PARENTS.get(label) for label, value in labels.items() if value}
        assert all(PARENTS.get(label) in families for label, value in labels.items() if not value)


def test_roots_of_positives_are_always_verified():
    truth = DATA.labels("train").dense()
    found = kept(hierarchy(DATA))

    for name, row in zip(found, truth, strict=True):
        shown = {path(CLASSES[index])[-1] for index in np.flatnonzero(row)}
        assert shown == {label for label, value in found[name].items() if value and label not in PARENTS}


def images_that_show(label: str, size: int = 3000) -> tuple[LabelMatrix, PairNumbers]:
    row = [int(name in path(label)) for name in CLASSES]
    return LabelMatrix.from_dense(np.array([row] * size)), PairNumbers.of([str(i) for i in range(size)], CLASSES, 0)


def test_nodes_of_a_path_are_equally_likely():
    labels, numbers = images_that_show("tram")

    found = keep_verified(labels, numbers, TREE).dense()

    depth = [(found[:, CLASSES.index(label)] == 1).sum() for label in ("vehicle", "bus", "tram")]
    stops = [depth[0] - depth[1], depth[1] - depth[2], depth[2]]
    assert stats.chisquare(stops).pvalue > 0.001


def test_either_parent_is_followed():
    tree = Hierarchy(CLASSES, [("cat", "animal"), ("cat", "tree")])
    row = [int(name in ("cat", "animal", "tree")) for name in CLASSES]
    labels = LabelMatrix.from_dense(np.array([row] * 1000))

    found = keep_verified(labels, PairNumbers.of([str(i) for i in range(1000)], CLASSES, 0), tree).dense()

    at_parent = found[found[:, CLASSES.index("cat")] != 1]
    shares = [(at_parent[:, CLASSES.index(label)] == 1).mean() for label in ("animal", "tree")]
    assert shares == pytest.approx([0.5, 0.5], abs=0.08)


def test_a_dataset_without_hierarchy_is_refused():
    with pytest.raises(DatasetError, match="made has no hierarchy; add"):
        hierarchy(made())


def test_a_cycle_is_refused():
    edges = (("cat", "animal"), ("animal", "tree"), ("tree", "cat"))

    with pytest.raises(DatasetError, match=r"has a cycle, .*cat.*; drop one of its edges"):
        hierarchy(made().replace(hierarchy=edges))


def test_a_child_without_its_parent_is_refused():
    labels = LabelMatrix.from_dense(np.array([[int(name == "cat") for name in CLASSES]]))

    with pytest.raises(DatasetError, match="shows 'cat' but not its parent 'animal'"):
        keep_verified(labels, PairNumbers.of(["a"], CLASSES, 0), TREE)
