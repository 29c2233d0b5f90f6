"""Every method on every label situation: it works, or says in one sentence why it cannot."""

from __future__ import annotations

import numpy as np
import pytest

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
