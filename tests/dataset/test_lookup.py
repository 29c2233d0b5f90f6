from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.dataset import lookup
from tagfill.dataset.lookup import Lookup, TextNumbers

NAMES = [f"{number:05d}.jpg" for number in range(2000)]


@pytest.fixture(params=["distinct", "all the same"])
def names(request, monkeypatch):
    """The names, with their own hashes and with equal hashes."""
    if request.param == "all the same":
        monkeypatch.setattr(lookup, "hash_text", lambda words: np.zeros(len(words), np.uint64))
    return Lookup(pa.array(NAMES))


def found(names: Lookup, places: np.ndarray, size: int = 100) -> list[int]:
    column = pa.array([NAMES[place] for place in places])
    return [code for begin in range(0, len(column), size) for code in names.codes(column.slice(begin, size)).tolist()]


@pytest.mark.parametrize("order", ["ascending", "with gaps", "from the middle", "descending", "shuffled", "restarting"])
def test_names_are_found_in_any_order(names, order):
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


def test_missing_names_and_null_are_not_found(names):
    column = pa.array(["00003.jpg", None, "zebra.jpg", "", "00001.jpg"])
    assert names.codes(column).tolist() == [3, -1, -1, -1, 1]
    assert names.codes(column.dictionary_encode()).tolist() == [3, -1, -1, -1, 1]
    assert names.codes(pa.array([None, None], pa.string())).tolist() == [-1, -1]
    assert names.codes(pa.array([], pa.string())).tolist() == []


def test_a_null_in_the_list_is_not_found():
    assert Lookup(pa.array(["a", None])).codes(pa.array([None, "a"])).tolist() == [-1, 0]


def test_repeated_text_is_found_at_its_first_position(names):
    twice = Lookup(pa.array(["b", "a", "c", "a", "b"]))
    assert twice.codes(pa.array(["a", "b", "c"])).tolist() == [1, 0, 2]
    assert twice.repeated() == (1, 3)
    assert names.repeated() is None


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 5))
@settings(deadline=None)
def test_equal_bytes_have_equal_numbers_and_others_do_not(words, begin):
    numbers = lookup.hash_text(pa.array(words, pa.binary()).slice(begin)).tolist()
    assert len(set(zip(words[begin:], numbers, strict=True))) == len(set(words[begin:])) == len(set(numbers))


@pytest.mark.parametrize("length", range(18))
def test_every_byte_and_the_length_count(length):
    word = bytes(length)
    others = [word[:at] + b"\1" + word[at + 1 :] for at in range(length)]
    numbers = lookup.hash_text(pa.array([word, word + b"\0", *others], pa.binary()))
    assert len(set(numbers.tolist())) == length + 2


def test_the_hash_of_a_text_does_not_depend_on_its_neighbors(monkeypatch):
    words = pa.array([f"image {number}.jpg" * (number % 5) for number in range(100)])
    whole = lookup.hash_text(words)
    monkeypatch.setattr(lookup, "_CHUNK", 7)
    np.testing.assert_array_equal(lookup.hash_text(words), whole)
    np.testing.assert_array_equal(lookup.hash_text(words.take(pa.array([42])))[0], whole[42])


def test_null_counts_as_empty():
    assert len(set(lookup.hash_text(pa.array([None, "", None])).tolist())) == 1


def test_hashes_are_the_same_in_every_version():
    numbers = lookup.hash_text(pa.array(["", "cat", "a longer name.jpg"]))
    assert [f"{number:016x}" for number in numbers] == ["e220a8397b1dcdaf", "94e5daa6cc184b85", "905fd77fb829f4a9"]


@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "ab", "é", *NAMES[:30]]), max_size=20), max_size=12))
def test_text_is_numbered_in_the_order_in_which_it_appears(batches):
    numbers, known = TextNumbers(), {}
    for batch in batches:
        expected = [known.setdefault(text, len(known)) for text in batch]
        assert numbers.add(pa.array(batch, pa.string())).tolist() == expected
        assert len(numbers) == len(known)
