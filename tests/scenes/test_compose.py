from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tagfill.scenes import CLASSES, render

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


def test_a_scene_is_drawn_twice_alike():
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


def test_every_object_can_be_seen():
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


def test_an_object_differs_from_what_is_around_it():
    differences = []
    for scene in SCENES:
        light = scene.pixels @ np.array([0.299, 0.587, 0.114])
        free = ~np.any([instance.mask for instance in scene.instances], axis=0)
        differences += [abs(light[instance.mask].mean() - light[free].mean()) for instance in scene.instances]

    assert np.median(differences) > 40
