"""No method is another one under a second name."""

from __future__ import annotations

from itertools import combinations

import torch

from methods.problem import SITUATIONS, train
from tagfill.errors import TagfillError
from tagfill.methods import ALIASES, METHODS

LABELS = SITUATIONS["positives and negatives"]
OPTIONS = {"csl": {"likely": 1, "threshold": 0.5}}  # whose own would leave out all unknown labels of so few classes
ONLY_COMPLETE = {"bce", "bce-ls"}  # refuse these labels, and equal other methods on complete ones as they should


def weights(name: str) -> torch.Tensor:
    return train(name, LABELS, epochs=5, options=OPTIONS.get(name)).weights


def test_no_two_methods_end_with_equal_weights():
    ends = {}
    for name in METHODS:
        try:
            ends[name] = weights(name)
        except TagfillError:
            assert name in ONLY_COMPLETE
    equal = [(a, b) for a, b in combinations(ends, 2) if torch.allclose(ends[a], ends[b], rtol=1e-5, atol=1e-7)]
    assert equal == []


def test_smoothing_makes_a_difference_on_complete_labels():
    complete = SITUATIONS["everything known"]
    assert not torch.equal(train("bce", complete).weights, train("bce-ls", complete).weights)


def test_an_alias_ends_where_its_method_does():
    assert {alias: torch.equal(weights(alias), weights(name)) for alias, name in ALIASES.items()} == dict.fromkeys(
        ALIASES, True
    )
