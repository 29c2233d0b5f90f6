from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tagfill.dataset import identity
from tagfill.dataset.tables import Lookup

NAMES = [f"{number:05d}.jpg" for number in range(2000)]


@pytest.fixture(params=["distinct", "all the same"])
def names(request, monkeypatch):
    """The names, with hashes as they are and with hashes that tell nothing."""
    if request.param == "all the same":
        monkeypatch.setattr(identity, "hash_text", lambda words: np.zeros(len(words), np.uint64))
    return Lookup(pa.array(NAMES))


def found(names: Lookup, places: np.ndarray, size: int = 100) -> list[int]:
    column = pa.array([NAMES[place] for place in places])
    return [code for begin in range(0, len(column), size) for code in names.codes(column.slice(begin, size)).tolist()]


@pytest.mark.parametrize("order", ["ascending", "with gaps", "from the middle", "descending", "shuffled", "restarting"])
def test_names_are_found_in_whatever_order_they_come(names, order):
    rng = np.random.default_rng(0)
    places = {
        "ascending": np.repeat(np.arange(2000), 2),
        "with gaps": np.arange(0, 2000, 17),
        "from the middle": np.arange(1500, 2000),
        "descending": np.arange(2000)[::-1],
        "shuffled": rng.integers(0, 2000, 3000),
        "restarting": np.tile(np.arange(500), 4),
    }[order]
    assert found(names, places) == places.tolist()


def test_what_is_missing_or_null_is_nowhere(names):
    column = pa.array(["00003.jpg", None, "zebra.jpg", "", "00001.jpg"])
    assert names.codes(column).tolist() == [3, -1, -1, -1, 1]
    assert names.codes(column.dictionary_encode()).tolist() == [3, -1, -1, -1, 1]
    assert names.codes(pa.array([None, None], pa.string())).tolist() == [-1, -1]
    assert names.codes(pa.array([], pa.string())).tolist() == []


def test_a_null_in_the_list_is_not_found():
    assert Lookup(pa.array(["a", None])).codes(pa.array([None, "a"])).tolist() == [-1, 0]


def test_of_text_that_is_listed_twice_the_first_position_counts(names):
    twice = Lookup(pa.array(["b", "a", "c", "a", "b"]))
    assert twice.codes(pa.array(["a", "b", "c"])).tolist() == [1, 0, 2]
    assert twice.repeated() == (1, 3)
    assert names.repeated() is None
