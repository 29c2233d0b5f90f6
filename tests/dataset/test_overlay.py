from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.labels import LabelMatrix, Overlay

SIZE, WIDTH = 5, 4
changes = st.dictionaries(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, WIDTH - 1)), st.sampled_from([1, 0, -1]), max_size=8
)


def base(seed: int = 0) -> LabelMatrix:
    return LabelMatrix.from_dense(np.random.default_rng(seed).integers(-1, 2, (SIZE, WIDTH)).astype(np.int8))


def put(overlay: Overlay, change: dict[tuple[int, int], int]) -> None:
    overlay.set([pair[0] for pair in change], [pair[1] for pair in change], list(change.values()))


@given(st.lists(changes, max_size=4), st.lists(st.integers(0, SIZE - 1), max_size=6))
@settings(deadline=None)
def test_rows_are_those_of_a_dense_copy_with_the_same_changes(steps, index):
    overlay, dense = Overlay(base()), base().dense()
    for change in steps:
        put(overlay, change)
        for pair, value in change.items():
            dense[pair] = value
    np.testing.assert_array_equal(overlay.rows(index), dense[np.array(index, np.int64)])
    np.testing.assert_array_equal(overlay.matrix().dense(), dense)
    assert (np.diff(overlay.keys) > 0).all()


def test_what_lies_below_is_never_changed():
    labels = base()
    before = labels.dense()
    overlay = Overlay(labels)
    overlay.set(np.arange(SIZE), np.zeros(SIZE, np.int64), 1)
    overlay.matrix()
    np.testing.assert_array_equal(labels.dense(), before)


def test_dropped_and_cleared_changes_show_what_lies_below():
    overlay, dense = Overlay(base()), base().dense()
    overlay.set([0, 1, 2], [0, 1, 2], 1)
    overlay.drop([0, 3], [0, 3])
    assert overlay.rows([0]).tolist() == dense[:1].tolist()
    assert len(overlay) == 2
    overlay.clear()
    np.testing.assert_array_equal(overlay.rows(np.arange(SIZE)), dense)


def test_an_ignored_label_stays_an_entry_of_the_matrix():
    overlay = Overlay(LabelMatrix.from_dense(np.array([[1, 0]], np.int8)))
    overlay.set([0], [0], -1)
    assert overlay.rows([0]).tolist() == [[-1, 0]]
    assert overlay.matrix().looked_at(np.array([0])).tolist() == [[True, True]]


def test_keys_and_values_are_all_there_is_to_save():
    overlay = Overlay(base())
    overlay.set([3, 1], [2, 0], [1, 0])
    again = Overlay(base(), overlay.keys, overlay.values)
    np.testing.assert_array_equal(again.rows(np.arange(SIZE)), overlay.rows(np.arange(SIZE)))
    assert [part.tolist() for part in again.changes()] == [[1, 3], [0, 2], [0, 1]]
    assert overlay.keys.nbytes + overlay.values.nbytes == 9 * len(overlay)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (([SIZE], [0], 1), IndexError),
        (([-1], [0], 1), IndexError),
        (([0], [WIDTH], 1), IndexError),
        (([0], [0], 2), ValueError),
        (([0, 0], [1, 1], [1, 1]), ValueError),
    ],
)
def test_what_is_no_entry_is_refused(entry, error):
    overlay = Overlay(base())
    with pytest.raises(error):
        overlay.set(*entry)
    assert len(overlay) == 0


@pytest.mark.parametrize(("image", "label"), [(1, [0, 2]), ([1], [0, 2]), ([1, 1], [0, 2])])
def test_one_image_serves_several_classes(image, label):
    overlay = Overlay(LabelMatrix.from_dense(np.full((2, 3), -1, np.int8)))
    overlay.set(image, label, 1)
    assert overlay.rows([0, 1]).tolist() == [[-1, -1, -1], [1, -1, 1]]


@pytest.mark.parametrize("image", [[0, 1], [0, 1, 1, 1]])
def test_images_and_classes_of_other_lengths_are_refused(image):
    with pytest.raises(ValueError, match="broadcast"):
        Overlay(LabelMatrix.from_dense(np.full((2, 3), -1, np.int8))).set(image, [0, 1, 2], 1)
