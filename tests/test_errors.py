from __future__ import annotations

import pickle

from tagfill.errors import ImageError, unknown_name


def test_a_near_name_is_suggested():
    assert str(unknown_name("head", "camm", ["cam", "linear"])) == (
        "There is no head 'camm'; did you mean 'cam'? Known: cam, linear."
    )


def test_nothing_is_suggested_where_nothing_is_near():
    assert str(unknown_name("head", "xyz", ["linear", "cam"])) == "There is no head 'xyz'. Known: cam, linear."


def test_an_error_about_an_image_survives_the_way_from_a_worker():
    error = pickle.loads(pickle.dumps(ImageError("a/b.jpg", "it is empty")))
    assert (str(error), error.image) == ("Image a/b.jpg: it is empty.", "a/b.jpg")
