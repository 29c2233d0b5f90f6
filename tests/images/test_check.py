"""All bad images of a root are found."""

from __future__ import annotations

import os
import signal

import pytest
from PIL import Image

from images.pictures import encode, noise, write
from tagfill.errors import TagfillError
from tagfill.images import check_images, open_root

GOOD = encode(Image.fromarray(noise(4, 4)))


class Watch:
    """A progress bar that records its calls."""

    def __init__(self):
        self.steps, self.notes, self.ended = 0, [], False

    def bar(self, title, total, unit=""):
        self.total = total
        return self

    def advance(self, steps=1):
        self.steps += steps

    def note(self, text):
        self.notes.append(text)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.ended = True


@pytest.fixture
def names(tmp_path) -> list[str]:
    """Fifty images, of which three are bad and one is not there."""
    for number in range(50):
        content = {7: b"", 30: GOOD[:50], 44: b"text"}.get(number, GOOD)
        write(tmp_path, f"{number:02}.png", content)
    return [*open_root(tmp_path).names(), "missing.png"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("opened", [False, True])
def test_bad_images_are_listed_in_order(tmp_path, names, workers, opened):
    watch = Watch()
    bad = check_images(open_root(tmp_path) if opened else tmp_path, names, workers=workers, progress=watch)
    assert [error.image for error in bad] == ["07.png", "30.png", "44.png", "missing.png"]
    assert "empty" in bad[0].problem
    assert (watch.total, watch.steps, watch.ended) == (51, 51, True)
    assert watch.notes[-1] == "4 bad"


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_to_check(tmp_path, workers):
    assert check_images(tmp_path, [], workers=workers) == []


class Deadly:
    """A root that kills the process that reads from it."""

    def read(self, name):
        os.kill(os.getpid(), signal.SIGKILL)

    def names(self):
        return ["a.jpg"]


def test_killed_worker_is_an_error_that_says_so():
    with pytest.raises(TagfillError, match="killed, perhaps because memory ran out"):
        check_images(Deadly(), ["a.jpg"], workers=1)
