from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dataset.cases import dataset, image
from tagfill.dataset import table
from tagfill.labels import LabelMatrix, Overlay

dense_labels = arrays(np.int8, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.sampled_from([-1, 0, 1]))


def small() -> LabelMatrix:
    """Three images of four classes; the second is not annotated, and class 3 of the third is "cannot tell"."""
    return LabelMatrix.from_entries(
        np.array([0, 0, 2, 2]), np.array([1, 3, 0, 3]), np.array([1, 0, 1, -1], np.int8), (3, 4)
    )


@given(dense_labels, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_entries_does_not_matter(dense, random):
    found, label = np.nonzero(dense != -1)
    order = list(range(len(found)))
    random.shuffle(order)
    labels = LabelMatrix.from_entries(found[order], label[order], dense[found, label][order], dense.shape)
    np.testing.assert_array_equal(labels.dense(), dense)
    assert (labels.starts.dtype, labels.classes.dtype, labels.values.dtype) == (np.int64, np.int32, np.int8)


def test_rows_may_be_in_any_order_and_repeated():
    rows = small().rows(np.array([2, 0, 1, 2]))
    assert rows.tolist() == [[1, -1, -1, -1], [-1, 1, -1, 0], [-1, -1, -1, -1], [1, -1, -1, -1]]
    assert rows.dtype == np.int8


def test_a_batch_may_be_empty():
    assert small().rows(np.array([], np.int64)).shape == (0, 4)


def test_counts_of_each_class():
    labels = small()
    assert labels.positives.tolist() == [1, 1, 0, 0]
    assert labels.negatives.tolist() == [0, 0, 0, 1]
    assert labels.known.tolist() == [1, 1, 0, 1]
    assert labels.undecided.tolist() == [0, 0, 0, 1]
    assert labels.positives_per_image().tolist() == [1, 0, 1]


def test_unannotated_images():
    assert small().unannotated().tolist() == [1]


def test_cannot_tell_differs_from_not_annotated():
    assert small().is_annotated(np.array([2])).tolist() == [[True, False, False, True]]
    assert small().rows(np.array([2])).tolist() == [[1, -1, -1, -1]]


def test_some_images_can_be_taken_as_a_matrix():
    taken = small().take(np.array([2, 0]))
    assert taken.dense().tolist() == [[1, -1, -1, -1], [-1, 1, -1, 0]]
    assert taken.undecided.tolist() == [0, 0, 0, 1]


def test_a_pair_that_occurs_twice_is_refused():
    with pytest.raises(ValueError, match="occurs twice"):
        LabelMatrix.from_entries(np.array([0, 0]), np.array([1, 1]), np.array([1, 1]), (1, 2))


def test_complete_means_that_every_label_is_known():
    assert LabelMatrix.from_dense(np.zeros((2, 2), np.int8)).complete()
    assert not small().complete()


def test_blocks_cover_all_images():
    blocks = [block for _, block in small().blocks(2)]
    np.testing.assert_array_equal(np.concatenate(blocks), small().dense())


def test_memory_grows_with_annotations_and_not_with_images_times_classes():
    images, classes, rows = 20_000, 9_600, 30_000  # 192 MB as dense bytes
    rng = np.random.default_rng(0)
    names, labels = [f"{number}.jpg" for number in range(images)], [f"class {number}" for number in range(classes)]
    chosen = np.unique(rng.integers(0, images * classes, rows))
    data = dataset(images=[image(name) for name in names], classes=tuple(labels))
    data = data.replace(
        annotations=table(
            {
                "image": [names[key] for key in chosen // classes],
                "label": [labels[key] for key in chosen % classes],
                "present": [True] * len(chosen),
            }
        ),
        hierarchy=tuple((labels[number], labels[number + 1]) for number in range(10)),
    )
    tracemalloc.start()
    try:
        matrix = data.labels()
        overlaid = matrix.rows(np.arange(256))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert overlaid.shape == (256, classes)
    assert peak < 20e6
    assert matrix.nbytes == 8 * (images + 1) + 5 * len(matrix.values)


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


def test_the_labels_below_are_never_changed():
    labels = base()
    before = labels.dense()
    overlay = Overlay(labels)
    overlay.set(np.arange(SIZE), np.zeros(SIZE, np.int64), 1)
    overlay.matrix()
    np.testing.assert_array_equal(labels.dense(), before)


def test_dropped_and_cleared_changes_show_the_labels_below():
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
    assert overlay.matrix().is_annotated(np.array([0])).tolist() == [[True, True]]


def test_keys_and_values_restore_an_overlay():
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
def test_invalid_entries_are_refused(entry, error):
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
