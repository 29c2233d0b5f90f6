"""Every method on every label situation: it works, or says in one sentence why it cannot."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from methods.problem import SITUATIONS, train
from tagfill.errors import TagfillError
from tagfill.methods import ALIASES, METHODS

KINDS = {"rejected", "flipped", "ignored", "pseudo-labelled"}
GAPS = set(SITUATIONS) - {"everything known"}

# What a method refuses, and words of the sentence that says why.
REFUSED = {
    **dict.fromkeys(("bce", "bce-ls"), (GAPS, "is for complete labels")),
    "patchcluster": ({"nothing known"}, "found nothing marked in the training images"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", [*METHODS, *ALIASES])
def test_it_trains_or_says_why_not(name, situation):
    labels = SITUATIONS[situation]
    refused, words = REFUSED.get(name, (set(), ""))
    if situation in refused:
        with pytest.raises(TagfillError, match=words):
            train(name, labels)
        return

    outcome = train(name, labels)

    assert outcome.weights.isfinite().all()
    assert np.isfinite(outcome.losses).all()
    for decided in outcome.decisions:
        known = labels[decided.image, decided.label] != -1
        assert set(decided.kind) <= KINDS
        assert set(decided.value) <= {-1, 0, 1}
        assert not known.any()


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
