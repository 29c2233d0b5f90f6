"""Decided labels of random rows against plain loops over the rules."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset.cases import at, dataset, image
from reference import labels as reference
from tagfill.dataset import Dataset, from_records
from tagfill.errors import DatasetError

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
def test_votes_settle_every_clash(found, cut):
    assert entries(made(found, cut=cut), "majority") == reference.decide(found)


@given(rows, st.integers(1, 9))
@often
def test_clashes_are_errors_that_name_two_rows(found, cut):
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
def test_labels_are_closed_over_the_hierarchy(found, hierarchy):
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
