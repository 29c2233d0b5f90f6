import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tagfill.curation.suggest import Best, Pairs, entropy, no_pairs, within


def pairs(rng, size):
    row, label = np.divmod(rng.permutation(400)[:size], 20)
    p = rng.integers(0, 8, size) / 8  # many ties
    return Pairs(row, label, p, entropy(p), np.full(size, -1, np.int8))


@given(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 4)), st.integers(1, 7))
def test_best_of_a_stream_is_best_of_all(size, limit, per_class, parts):
    everything = pairs(np.random.default_rng(size), size)
    best = Best(limit, per_class, lambda some: some.probability)
    best._held = no_pairs()
    for part in np.array_split(np.arange(size), parts):
        best.add(everything.take(part))
        best._held = best.pairs()  # as if there had been too many to keep
    expected, counts = [], {}
    for p, row, label in sorted(zip(-everything.probability, everything.row, everything.label, strict=True)):
        counts[label] = counts.get(label, 0) + 1
        if per_class is None or counts[label] <= per_class:
            expected.append((row, label, -p))
    found = best.pairs()
    assert list(zip(found.row, found.label, found.probability, strict=True)) == expected[:limit]


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 5))
def test_within_counts_each_group(groups, most):
    expected = [groups[:position].count(group) < most for position, group in enumerate(groups)]
    assert within(np.array(groups, dtype=np.int64), most).tolist() == expected


def test_certain_things_are_worth_nothing():
    assert entropy(np.array([0.0, 0.25, 0.5, 1.0])).round(4).tolist() == [0.0, 0.8113, 1.0, 0.0]
