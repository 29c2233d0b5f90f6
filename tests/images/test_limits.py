"""Limits on the work of decoding: what is counted before, and a process that can be stopped."""

import threading
import time

import numpy as np
import pytest
from PIL import Image

import hostile_images as hostile
from tagfill.errors import ImageError, ImageLimitError
from tagfill.images import check_images, decode, load_batches, open_root, stoppable, thumbnail
from tagfill.images.stoppable import with_limits
from tagfill.images.structure import measure

from .pictures import encode, photo


@pytest.mark.parametrize(
    "content",
    [
        hostile.repeated_scans((64, 64), 200),
        hostile.fill_bytes(100_000),
        hostile.junk_bytes(100_000),
        hostile.jpeg()[:-2] + b"\xff" * 100_000 + b"\xff\xd9",
        hostile.app_segments(2_000),
        hostile.app_segments(300, payload=b"\0" * 60_000),
        hostile.png_chunks(2_000),
        hostile.empty_idat_chunks(10_000),
        hostile.webp_chunks(2_000),
    ],
    ids=["scans", "fill", "junk", "fill in a scan", "segments", "metadata", "chunks", "IDAT", "WebP"],
)
def test_files_that_keep_a_parser_busy_are_refused_by_counting(content, tmp_path):
    (tmp_path / "slow.jpg").write_bytes(content)
    with pytest.raises(ImageLimitError, match=r"slow\.jpg: the file has more than .* which no ordinary image has"):
        decode(tmp_path, "slow.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_ordinary_files_are_within_the_limits(kind):
    found = measure("a", encode(photo(300, 400), kind))
    assert found.pixels == 120_000
    assert found.work < 5 * 120_000 + 100_000


def test_scans_are_counted_and_cost_work():
    plain, progressive = (measure("a", hostile.jpeg(progressive=progressive)) for progressive in (False, True))
    assert (plain.scans, progressive.scans) == (1, 10)
    assert progressive.work > 1.5 * plain.work


@pytest.mark.parametrize("cut", [2, 3, 5, 20, 200, 500])
def test_damaged_structure_is_left_to_the_decoder(cut):
    for content in (hostile.jpeg(), hostile.png(), hostile.webp_chunks(1)):
        measure("a", content[:cut])
    with pytest.raises(ImageError, match="damaged"):
        with_limits(_size, "a", hostile.jpeg()[:cut] + b"\xff\xd9")


def _size(name, content):
    from tagfill.images.decode import decode_content

    return decode_content(name, content).size


@pytest.fixture
def heavy(monkeypatch):
    """Every image goes to a helper process, which may compute for half a second."""
    stoppable.stop_all()
    monkeypatch.setattr(stoppable, "LIGHT", -1)
    monkeypatch.setattr(stoppable, "SECONDS", 0.5)
    yield
    stoppable.stop_all()


def test_a_helper_process_gives_the_same_pixels_and_errors(tmp_path, heavy, monkeypatch):
    (tmp_path / "a.png").write_bytes(encode(photo(60, 80)))
    (tmp_path / "b.jpg").write_bytes(hostile.jpeg()[:300])
    there = [np.asarray(decode(tmp_path, "a.png")), np.asarray(thumbnail(tmp_path, "a.png", 32))]
    with pytest.raises(ImageError, match=r"b\.jpg: the file is damaged"):
        decode(tmp_path, "b.jpg")
    monkeypatch.setattr(stoppable, "LIGHT", 10**9)
    here = [np.asarray(decode(tmp_path, "a.png")), np.asarray(thumbnail(tmp_path, "a.png", 32))]
    assert all(np.array_equal(one, other) for one, other in zip(there, here, strict=True))


def test_an_interrupted_image_does_not_answer_for_the_next_one(tmp_path, heavy, monkeypatch):
    (tmp_path / "a.png").write_bytes(encode(photo(60, 80)))
    (tmp_path / "b.png").write_bytes(encode(photo(20, 30)))
    first = decode(tmp_path, "a.png").size

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(stoppable._DecoderProcess, "_wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            decode(tmp_path, "a.png")
    assert decode(tmp_path, "b.png").size != first


def test_a_slow_image_is_reported_by_name_and_skipped(tmp_path, heavy):
    (tmp_path / "good.png").write_bytes(encode(photo(60, 80)))
    (tmp_path / "slow.jpg").write_bytes(hostile.repeated_scans((6000, 6000), 80))
    root = open_root(tmp_path)
    (error,) = check_images(root, root.names())
    assert (error.image, "more than 0.5 seconds of computing time" in error.problem) == ("slow.jpg", True)
    (batch,) = load_batches([[0, 1]], lambda number: (root, root.names()[number]), (32, 32))
    assert [number for number, _ in batch.bad] == [1]
    assert batch.index.tolist() == [0]


def test_a_request_that_is_given_up_stops_its_decoder(heavy):
    given_up, outcome = threading.Event(), []

    def work():
        with stoppable.for_request(given_up.is_set):
            try:
                with_limits(_sleep, "a", b"", 60)
            except ImageLimitError as error:
                outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    given_up.set()
    thread.join(10)
    assert "given up" in outcome[0].problem


def _sleep(name, content, seconds):
    time.sleep(seconds)


def test_transparency_is_composited_in_strips_without_a_seam():
    from tagfill.images.decode import to_rgb

    pixels = np.random.default_rng(0).integers(0, 256, (1100, 3, 4), np.uint8)
    image = Image.fromarray(pixels, "RGBA")
    whole = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    assert np.array_equal(np.asarray(to_rgb(image)), np.asarray(whole))
