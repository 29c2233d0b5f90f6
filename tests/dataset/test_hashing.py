from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagfill.dataset import identity


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 5))
@settings(deadline=None)
def test_equal_bytes_have_equal_numbers_and_others_do_not(words, begin):
    numbers = identity.hash_text(pa.array(words, pa.binary()).slice(begin)).tolist()
    assert len(set(zip(words[begin:], numbers, strict=True))) == len(set(words[begin:])) == len(set(numbers))


@pytest.mark.parametrize("length", range(18))
def test_every_byte_and_the_length_count(length):
    word = bytes(length)
    others = [word[:at] + b"\1" + word[at + 1 :] for at in range(length)]
    numbers = identity.hash_text(pa.array([word, word + b"\0", *others], pa.binary()))
    assert len(set(numbers.tolist())) == length + 2


def test_text_and_its_neighbours_do_not_matter_to_each_other(monkeypatch):
    words = pa.array([f"image {number}.jpg" * (number % 5) for number in range(100)])
    whole = identity.hash_text(words)
    monkeypatch.setattr(identity, "_CHUNK", 7)
    np.testing.assert_array_equal(identity.hash_text(words), whole)
    np.testing.assert_array_equal(identity.hash_text(words.take(pa.array([42])))[0], whole[42])


def test_null_counts_as_empty():
    assert len(set(identity.hash_text(pa.array([None, "", None])).tolist())) == 1


def test_the_numbers_stay_the_same_from_version_to_version():
    numbers = identity.hash_text(pa.array(["", "cat", "a longer name.jpg"]))
    assert [f"{number:016x}" for number in numbers] == ["e220a8397b1dcdaf", "94e5daa6cc184b85", "905fd77fb829f4a9"]
