from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset.cases import at, dataset, image, row
from reference import labels as reference
from tagfill.dataset import Dataset, from_records
from tagfill.errors import DatasetError, TagfillError


def cat(*rows, **attributes) -> int:
    """The resolved label of class cat in image a.jpg."""
    return int(dataset(*rows, **attributes).labels().dense()[0, 0])


def test_the_newest_row_decides_at_any_position():
    old, new = row(present=True, time=at(0)), row(present=False, time=at(1))
    assert cat(old, new) == cat(new, old) == 0


def test_a_microsecond_is_enough():
    assert cat(row(present=False, time=at(0).replace(microsecond=1)), row(present=True, time=at(0))) == 0


def test_a_row_without_a_time_is_older_than_any():
    assert cat(row(present=False, time=at(0).replace(year=1900)), row(present=True)) == 0


def test_cannot_tell_supersedes_and_leaves_an_entry():
    labels = dataset(row(present=True, time=at(0)), row(present=None, time=at(1))).labels()
    assert labels.dense()[0, 0] == -1
    assert labels.is_annotated(np.array([0]))[0].tolist() == [True] + [False] * 8
    assert labels.undecided[0] == 1


def test_cannot_tell_is_superseded():
    assert cat(row(present=None, time=at(0)), row(present=True, time=at(1))) == 1


@pytest.mark.parametrize("kind", ["point", "box", "mask"])
def test_a_location_makes_its_label_present(kind):
    assert cat(row(kind=kind)) == 1


@pytest.mark.parametrize("kind", ["point", "box", "mask"])
def test_an_absent_location_is_about_its_region_only(kind):
    assert cat(row(kind=kind, present=False)) == -1
    assert cat(row(present=True, time=at(0)), row(kind=kind, present=False, time=at(1))) == 1
    assert len(dataset(row(kind=kind, present=False)).labels().values) == 0


def test_rows_that_agree_do_not_conflict():
    assert cat(row(), row(kind="box"), row(kind="point")) == 1


@pytest.mark.parametrize("time", [None, at(3)])
@pytest.mark.parametrize(("one", "other"), [(True, False), (True, None), (None, False)])
def test_rows_of_one_age_that_contradict_each_other_are_both_named(one, other, time):
    rows = (row("dog"), row(present=one, time=time), row("007"), row(present=other, time=time))
    sentence = r"the annotations of small: rows 1 and 3 contradict each other about label 'cat' of image 'a\.jpg'"
    with pytest.raises(DatasetError, match=sentence):
        cat(*rows)


def test_a_conflict_among_older_rows_is_ignored():
    assert cat(row(present=True, time=at(0)), row(present=False, time=at(0)), row(present=True, time=at(1))) == 1


def test_a_conflict_in_another_split_is_ignored():
    data = dataset(row(image="c.jpg"), row(image="c.jpg", present=False), row())
    assert data.labels("train").dense()[0, 0] == 1
    with pytest.raises(DatasetError, match="rows 0 and 1"):
        data.labels("val")


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        ([True, True, False], 1),
        ([False, True, False], 0),
        ([True, False], -1),
        ([True, None], -1),
        ([True, True, False, None], -1),
        ([None, None, True], -1),
        ([True, True, True, False, None], 1),
    ],
)
def test_a_majority_is_more_than_half_of_the_votes_and_without_one_the_label_is_unknown(votes, label):
    rows = [row(present=vote, source=f"annotator {number}") for number, vote in enumerate(votes)]
    data = dataset(*rows)
    labels = data.labels(conflict="majority")
    assert labels.dense()[0, 0] == label
    assert labels.is_annotated(np.array([0]))[0, 0]


def test_a_source_has_one_vote_however_many_boxes_it_draws():
    boxes = [row(kind="box", source="Ann") for _ in range(5)]
    assert cat(*boxes, row(present=False, source="Bob"), conflict="majority") == -1
    assert cat(*boxes, *[row(present=False, source=name) for name in ("Bob", "Cid")], conflict="majority") == 0


def test_each_row_without_a_source_has_one_vote():
    assert cat(row(), row(), row(present=False), conflict="majority") == 1


def test_only_the_newest_rows_vote():
    old = [row(present=False, time=at(0), source=str(number)) for number in range(3)]
    assert cat(*old, row(time=at(1), source="4"), conflict="majority") == 1


def test_an_unknown_resolution_of_conflicts_is_refused():
    with pytest.raises(TagfillError, match="no way to resolve a conflict 'majorty'; did you mean 'majority'"):
        dataset(row()).labels(conflict="majorty")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (row("cta"), "row 1: label 'cta' is not in the class list"),
        (row(image="z.jpg"), r"row 1: image 'z\.jpg' is not in the image table"),
        (row(kind="bbox"), "row 1: kind 'bbox' is not one of image, point, box, mask"),
        (row(None), "row 1: it has no label"),
    ],
)
def test_a_row_about_something_unknown_is_named(wrong, sentence):
    with pytest.raises(DatasetError, match=sentence):
        dataset(row(), wrong, row("dog")).labels()


def test_the_file_is_named(tmp_path):
    data = dataset(row(), row("cta")).save(tmp_path, tables="csv")
    with pytest.raises(DatasetError, match=r"annotations\.csv, row 1"):
        data.labels()


def test_an_image_that_is_listed_twice_is_refused():
    with pytest.raises(DatasetError, match=r"the images of small: image 'a\.jpg' is listed twice, in rows 0 and 2"):
        dataset(row(), images=[image("a.jpg"), image("b.jpg"), image("a.jpg", "val")]).labels()


def test_labels_of_a_split_are_those_of_its_images_in_table_order():
    images = [image("a.jpg", "val"), image("b.jpg"), image("c.jpg", "val")]
    data = dataset(row(image="c.jpg"), row("dog", False, image="a.jpg"), row("dog", image="b.jpg"), images=images)
    assert data.labels("val").dense()[:, :2].tolist() == [[-1, 0], [1, -1]]


def test_labels_of_a_split_can_be_taken_from_those_of_all():
    rows = [row(image=name, present=present) for name, present in [("a.jpg", True), ("c.jpg", False)]]
    alone, together = dataset(*rows), dataset(*rows)
    together.labels()
    for split in ("train", "val"):
        assert together.labels(split).dense().tolist() == alone.labels(split).dense().tolist()


def test_labels_are_resolved_once():
    data = dataset(row())
    assert data.labels("train") is data.labels("train")


def test_a_dataset_without_rows_images_or_classes():
    assert dataset().labels().dense().shape == (3, 9)
    assert dataset(images=[]).labels().dense().shape == (0, 9)
    assert dataset(classes=()).labels().dense().shape == (3, 0)


def test_an_unknown_split_is_named(tmp_path):
    data: Dataset = dataset(row())
    with pytest.raises(DatasetError, match="no split 'test'; it has train, val"):
        data.labels("test")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_labels_are_the_same_from_memory_and_from_files(tmp_path, kind):
    data = dataset(row("dog", False, image="b.jpg"), row("cat", image="a.jpg"), row("cat", None, image="b.jpg"))
    assert data.save(tmp_path, tables=kind).labels().dense().tolist() == data.labels().dense().tolist()


IMAGES = ["a.jpg", "b.jpg", "c.jpg"]
CLASSES = ["dog", "cat", "pet", "animal", "thing"]

rows = st.lists(
    st.fixed_dictionaries(
        {
            "image": st.sampled_from(IMAGES),
            "label": st.sampled_from(CLASSES),
            "present": st.sampled_from([True, False, None]),
            "kind": st.sampled_from(["image", "image", "point", "box"]),
            "time": st.sampled_from([None, 0, 1, 2]),
            "source": st.sampled_from([None, "Ann", "Bob"]),
        }
    ),
    max_size=25,
)
edges = st.lists(
    st.tuples(st.sampled_from(range(5)), st.sampled_from(range(5)))
    .filter(lambda pair: pair[0] < pair[1])  # upwards only, so that there is no cycle
    .map(lambda pair: (CLASSES[pair[0]], CLASSES[pair[1]])),
    max_size=5,
)
often = settings(max_examples=100, deadline=None)


def made(found: list[reference.Row], hierarchy=(), cut: int = 1000) -> Dataset:
    """A dataset of these rows, in batches of at most `cut`."""
    records = [{**row, "time": None if row["time"] is None else at(row["time"])} for row in found]
    data = dataset(images=[image(name) for name in IMAGES], classes=tuple(CLASSES), hierarchy=tuple(hierarchy))
    parts = [from_records(records[begin : begin + cut]) for begin in range(0, len(records), cut)]
    return data.replace(annotations=pa.concat_tables([data.annotations, *parts]))


def entries(data: Dataset, conflict: str) -> dict[reference.Pair, int]:
    labels = data.labels(conflict=conflict)
    return {
        (IMAGES[at], CLASSES[label]): int(value)
        for at, label, value in zip(labels.images(), labels.classes, labels.values, strict=True)
    }


@given(rows, st.integers(1, 9))
@often
def test_votes_resolve_every_conflict(found, cut):
    assert entries(made(found, cut=cut), "majority") == reference.decide(found)


@given(rows, st.integers(1, 9))
@often
def test_conflicts_are_errors_that_name_two_rows(found, cut):
    clashes, data = reference.clashes(found), made(found, cut=cut)
    if not clashes:
        assert entries(data, "error") == reference.decide(found)
        return
    with pytest.raises(DatasetError) as error:
        data.labels()
    first, second = (found[int(number)] for number in re.search(r"rows (\d+) and (\d+)", str(error.value)).groups())
    pair = (first["image"], first["label"])
    assert pair in clashes
    assert first in reference.newest(found)[pair]
    assert second in reference.newest(found)[pair]
    assert first["present"] != second["present"]


@given(rows, edges)
@often
def test_labels_include_implied_ones(found, hierarchy):
    decided, data = reference.decide(found), made(found, hierarchy)
    contradictions = reference.contradictions(decided, hierarchy)
    if not contradictions:
        assert entries(data, "majority") == reference.close(decided, hierarchy, CLASSES)
        return
    with pytest.raises(DatasetError) as error:
        data.labels(conflict="majority")
    present, absent = (
        found[int(number)] for number in re.search(r"row (\d+) says .* row (\d+) that", str(error.value)).groups()
    )
    assert (present["image"], present["label"], absent["label"]) in contradictions
    assert (present["present"], absent["present"]) == (True, False)
    assert present["image"] == absent["image"]
