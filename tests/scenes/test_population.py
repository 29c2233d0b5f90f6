from __future__ import annotations

from collections import Counter

import numpy as np

from tagfill import rng
from tagfill.scenes.compose import draw_objects
from tagfill.scenes.glyphs import GROUPS, PICTOGRAMS

PICTURES = [draw_objects(rng.generator(0, "population", index=i)) for i in range(1500)]
SHOWN = np.array([[pictogram in picture for pictogram in PICTOGRAMS] for picture in PICTURES])


def test_a_picture_has_one_to_eight_objects():
    assert {len(picture) for picture in PICTURES} == set(range(1, 9))


def test_a_picture_has_three_to_four_labels_on_average():
    assert 3.0 < SHOWN.sum(axis=1).mean() < 4.0


def test_classes_form_a_long_tail():
    frequency = np.sort(SHOWN.mean(axis=0))

    assert frequency[-1] > 6 * frequency[0]


def test_the_rarest_class_is_still_in_two_pictures_of_a_hundred():
    assert SHOWN.mean(axis=0).min() > 0.02


def test_classes_of_a_group_appear_together():
    names = [pictogram.name for pictogram in PICTOGRAMS]
    knight, crown, gear = (SHOWN[:, names.index(name)] for name in ("knight", "crown", "gear"))

    assert crown[knight].mean() > 2 * crown[gear].mean()


def test_every_group_has_four_pictograms():
    assert Counter(pictogram.group for pictogram in PICTOGRAMS) == dict.fromkeys(GROUPS, 4)
