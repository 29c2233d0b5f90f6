from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest
from reference.soft_exposure import class_distances as reference
from tagfill.labels import LabelMatrix
from tagfill.memory import ClassDistances, SavedPart, Shard
from tagfill.memory import neighbors as module
from tagfill.memory.neighbors import distances, prototypes, unit_rows


@pytest.mark.parametrize("kind", ["median", "mean"])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@modest
@given(
    features=arrays(np.float32, (7, 3), elements=st.integers(0, 4).map(float)),
    labels=arrays(np.int8, (7, 4), elements=st.sampled_from([-1, 0, 1])),
)
def test_equals_a_loop_over_classes(kind, distance, features, labels):
    psi, defined = prototypes(unit_rows(features), LabelMatrix.from_dense(labels), kind)
    found = distances(psi, defined, distance)
    expected = reference(features.tolist(), labels.tolist(), kind, distance)
    for a in range(4):
        for b in range(4):
            if a != b:
                assert found[a, b] == pytest.approx(expected[a][b], abs=2e-4 if distance == "euclidean" else 1e-6)


def test_a_class_that_nobody_showed_is_at_distance_one_of_all():
    labels = LabelMatrix.from_dense(np.array([[1, 0, -1], [1, 0, 1]]))
    found = distances(*prototypes(unit_rows(np.array([[1.0, 0], [1.0, 0.1]])), labels))
    assert found[1].tolist() == [1, 1, 1]
    assert found[0, 2] < 0.01


def test_large_classes_are_taken_in_parts(monkeypatch):
    unit = unit_rows(np.random.default_rng(0).random((40, 9)))
    labels = LabelMatrix.from_dense(np.ones((40, 1), dtype=np.int8))
    whole, _ = prototypes(unit, labels)
    monkeypatch.setattr(module, "_VALUES", 100)
    np.testing.assert_array_equal(prototypes(unit, labels)[0], whole)
    np.testing.assert_array_equal(whole[0], np.median(unit, axis=0))


def test_saved_distances_come_back_whoever_saved_them():
    labels = LabelMatrix.from_dense(np.eye(3, dtype=np.int8) * 2 - 1)
    store = ClassDistances(Shard(np.arange(3)), 3).allocate()
    store.fill(unit_rows(np.random.default_rng(1).random((3, 4))), labels, prototype="mean", distance="cosine")
    again, moved = ClassDistances(Shard(np.arange(3)), 3).allocate(), ClassDistances(Shard(np.arange(3)), 3).allocate()
    again.load_state_dict(store.state_dict())
    moved.reshard([SavedPart(Shard(np.arange(2)), store.state_dict())])
    for one in (again, moved):
        assert one.ready
        assert one.values.tolist() == store.values.tolist()
