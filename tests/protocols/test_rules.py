"""The rule of each protocol against plain loops."""

from __future__ import annotations

import pytest

from protocols.cases import PARENTS, kept, made, truth
from reference import simulation as reference
from reference.pair_numbers import name_hash
from tagfill import protocols
from tagfill.protocols.positive_fraction import stratified
from tagfill.rng import PairNumbers

DATA = made(located=False)
TRUTH = truth(DATA)


@pytest.mark.parametrize(("num_pos", "num_neg"), [(1, 0), (2, 1), (-1, 0), (0, -1), (1, -1), (-1, -1), (100, 2)])
def test_k_positives(num_pos, num_neg):
    part = protocols.k_positives(DATA, num_pos=num_pos, num_neg=num_neg, seed=1200)

    assert kept(part) == reference.k_positives(TRUTH, num_pos, num_neg, 1200)


@pytest.mark.parametrize("proportion", [0.0, 0.1, 0.5, 1.0])
def test_random_entries(proportion):
    part = protocols.random_entries(DATA, proportion=proportion, seed=2)

    assert kept(part) == reference.random_entries(TRUTH, proportion, 2)


@pytest.mark.parametrize("proportion", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_random_per_image(proportion):
    part = protocols.random_per_image(DATA, proportion=proportion, seed=2)

    assert kept(part) == reference.random_per_image(TRUTH, proportion, 2)


@pytest.mark.parametrize("per_class", [1, 5, 1000])
def test_fixed_per_class(per_class):
    part = protocols.fixed_per_class(DATA, per_class=per_class, seed=2)

    assert kept(part) == reference.fixed_per_class(TRUTH, per_class, 2)


@pytest.mark.parametrize("rest", ["unknown", "absent"])
@pytest.mark.parametrize("keep", ["one", 0.0, 0.4, 0.75, 1.0])
def test_dropped_positives(keep, rest):
    part = protocols.dropped_positives(DATA, keep=keep, rest=rest, seed=2)

    assert kept(part) == reference.dropped_positives(TRUTH, keep, rest == "absent", 2)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9])
def test_positive_fraction(fraction, ratio):
    part = protocols.positive_fraction(DATA, fraction=fraction, ratio=ratio, seed=2)

    assert kept(part) == reference.positive_fraction(TRUTH, fraction, ratio, 2)


@pytest.mark.parametrize(("kind", "positive"), [("I", 1.0), ("SP", 2.4), ("SB", 7.0)])
@pytest.mark.parametrize("percent", [1, 20, 90])
def test_budget_with_exact_accounting(kind, positive, percent):
    part = protocols.budget(made(), percent=percent, kind=kind, accounting="exact", seed=2)

    seconds = percent / 100 * 60 * 8
    assert kept(part) == reference.budget_exact(truth(made()), seconds, positive, 1.0, 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_hierarchy(seed):
    data = made(hierarchical=True, share=0.2)

    assert kept(protocols.hierarchy(data, seed=seed)) == reference.hierarchy(truth(data), PARENTS, seed)


@pytest.mark.parametrize("held_out", [1, 7, 30])
@pytest.mark.parametrize("share", [0.08, 0.4])
def test_iterative_stratification(held_out, share):
    data = made(share=share, located=False)
    images = data.names(data.split("train"))
    order = {name: name_hash(4, "image", name) for name in images}
    order |= {name: name_hash(4, "label", name) for name in data.classes}

    chosen = stratified(data.labels("train"), PairNumbers.of(images, data.classes, 4), held_out)

    expected = reference.iterative_stratification(truth(data), held_out, order)
    assert {images[position] for position in chosen} == expected
