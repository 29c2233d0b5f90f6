"""Which objects a scene shows: a context first, then classes, then how many of each."""

from __future__ import annotations

import numpy as np

from tagfill.scenes.vocabulary import GROUPS, PICTOGRAMS, Pictogram

MOST_OBJECTS = 8
_LABELS = (0.08, 0.17, 0.22, 0.22, 0.18, 0.13)  # chance of 1, 2, … 6 classes in a picture
_CONTEXTS = (0.30, 0.24, 0.19, 0.15, 0.12)  # chance of each group to be the picture's context
_IN_CONTEXT = 8.0  # how much more often a class appears in its context
_ANOTHER = 0.18  # chance of one more object of the same class


def draw_objects(rng: np.random.Generator) -> list[Pictogram]:
    """One to eight pictograms, in random order; a class may occur several times."""
    context = GROUPS[rng.choice(len(GROUPS), p=_CONTEXTS)]
    weights = np.array([p.share * (_IN_CONTEXT if p.group == context else 1.0) for p in PICTOGRAMS])
    labels = 1 + int(rng.choice(len(_LABELS), p=_LABELS))
    chosen = rng.choice(len(PICTOGRAMS), size=labels, replace=False, p=weights / weights.sum())
    repeats = 1 + (rng.random((labels, 2)) < _ANOTHER).sum(axis=1)
    objects = np.concatenate([chosen, np.repeat(chosen, repeats - 1)])[:MOST_OBJECTS]
    return [PICTOGRAMS[i] for i in rng.permutation(objects)]
