from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest

from tagfill import rng
from tagfill.scenes import CLASSES, render
from tagfill.scenes.compose import PixelOwners, Place, sample_objects
from tagfill.scenes.glyphs import GROUPS, PICTOGRAMS

SCENES = [render("train", index, size=128) for index in range(40)]

PIXELS = {
    ("train", 0, 224): "3cd0fe68221f9a6e",
    ("train", 599, 224): "209a534fc56abb73",
    ("val", 7, 224): "26cefc7b4f0266ce",
    ("test", 42, 224): "94f5785c972b46b2",
    ("test", 3, 96): "2deed42964ad2998",
}


@pytest.mark.parametrize(("address", "expected"), PIXELS.items())
def test_pixels_are_the_same_on_every_machine(address, expected):
    split, index, size = address
    pixels = render(split, index, size=size).pixels

    assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == expected


def test_a_scene_is_the_same_every_time():
    first, second = render("val", 3, size=96), render("val", 3, size=96)

    assert np.array_equal(first.pixels, second.pixels)


def test_splits_show_different_scenes():
    train, test = render("train", 0, size=96), render("test", 0, size=96)

    assert not np.array_equal(train.pixels, test.pixels)


def test_seeds_show_different_scenes():
    first, second = render("train", 0, size=96, seed=0), render("train", 0, size=96, seed=1)

    assert not np.array_equal(first.pixels, second.pixels)


def test_every_scene_has_one_to_eight_objects():
    assert all(1 <= len(scene.instances) <= 8 for scene in SCENES)


def test_objects_are_of_known_classes():
    assert {instance.label for scene in SCENES for instance in scene.instances} <= set(CLASSES)


def test_no_pixel_belongs_to_two_objects():
    assert all(sum(instance.mask.astype(int) for instance in scene.instances).max() == 1 for scene in SCENES)


def test_every_object_is_visible():
    smallest = min(instance.mask.sum() for scene in SCENES for instance in scene.instances)

    assert smallest >= 30


def test_some_objects_hide_others():
    touching = 0
    for scene in SCENES:
        for instance in scene.instances:
            grown = instance.mask.copy()
            grown[1:] |= instance.mask[:-1]
            touching += any((grown & other.mask).any() for other in scene.instances if other is not instance)

    assert touching > 10


def test_the_longer_side_is_the_size():
    assert all(max(scene.pixels.shape[:2]) == 128 for scene in SCENES)


def test_shapes_vary():
    assert len({scene.pixels.shape for scene in SCENES}) == 5


def test_an_object_differs_from_its_background():
    differences = []
    for scene in SCENES:
        light = scene.pixels @ np.array([0.299, 0.587, 0.114])
        free = ~np.any([instance.mask for instance in scene.instances], axis=0)
        differences += [abs(light[instance.mask].mean() - light[free].mean()) for instance in scene.instances]

    assert np.median(differences) > 40


SQUARE = np.ones((4, 4), dtype=bool)


def at(row, column, *, rows=4, columns=4):
    """The place of a whole 4×4 stamp, or of its last rows and columns if it exceeds the picture."""
    return Place((slice(row, row + rows), slice(column, column + columns)), (slice(4 - rows, 4), slice(4 - columns, 4)))


@pytest.fixture
def owners():
    """An empty picture of 10×10 with a square in its corner."""
    owners = PixelOwners(np.full((10, 10), -1, dtype=np.int16))
    owners.try_add(at(0, 0), SQUARE, share=1.0)
    return owners


def test_an_object_owns_its_pixels(owners):
    assert np.argwhere(owners.pixels == 0).max(axis=0).tolist() == [3, 3]


def test_a_new_object_may_cover_half_of_another(owners):
    assert owners.try_add(at(0, 2), SQUARE, share=0.5)


def test_a_new_object_may_not_cover_more_than_half_of_another(owners):
    assert not owners.try_add(at(0, 1), SQUARE, share=0.5)


def test_an_object_that_leaves_all_visible_covers_nothing(owners):
    assert not owners.try_add(at(3, 3), SQUARE, share=1.0)


def test_hidden_pixels_add_up(owners):
    owners.try_add(at(0, 2), SQUARE, share=0.5)

    assert not owners.try_add(at(3, 0), SQUARE, share=0.5)


def test_a_refused_object_leaves_no_trace(owners):
    before = owners.pixels.copy()

    owners.try_add(at(0, 1), SQUARE, share=0.5)

    assert np.array_equal(owners.pixels, before)
    assert (owners.totals, owners.visible) == ([16], [16])


def test_an_object_that_is_mostly_outside_is_refused(owners):
    assert not owners.try_add(at(0, 6, rows=1), SQUARE, share=0.5)


def test_covered_pixels_change_owner(owners):
    owners.try_add(at(0, 2), SQUARE, share=0.5)

    assert owners.visible == [8, 16]


PICTURES = [sample_objects(rng.generator(0, "population", index=i)) for i in range(1500)]
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
