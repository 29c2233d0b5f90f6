"""Browsing a dataset in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import uvicorn
from PIL import Image

from tagfill.curation import browse_server
from tagfill.curation.browse import PhotoFilter, PhotoIndex
from tagfill.curation.browse_features import FeatureSpace
from tagfill.dataset import Dataset
from tagfill.inference import http

COUNT, FILES = 50_000, 20
CLASSES = ("cup", "dog", "tree")
READY = "!document.body.classList.contains('loading')"
SHOWN = "[...document.querySelectorAll('.tile')].filter((tile) => !tile.hidden && tile.dataset.row)"
LOADED = f"{SHOWN}.length > 0 && {SHOWN}.every((tile) => tile.querySelector('img').naturalWidth > 0)"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """50,000 names of 20 photos; every second shows a dog, every fifth does not, the last have no label."""
    root = tmp_path_factory.mktemp("many")
    (root / "0000").mkdir()
    for number in range(FILES):
        color = tuple(np.random.default_rng(number).integers(40, 220, 3).tolist())
        Image.new("RGB", (48, 40), color).save(root / "0000" / f"{number:02d}.jpg")
    for folder in range(1, COUNT // FILES):
        (root / f"{folder:04d}").symlink_to("0000")
    names = [f"{number // FILES:04d}/{number % FILES:02d}.jpg" for number in range(COUNT)]
    images = [{"image": name, "split": "train"} for name in names]
    rows = [
        {"image": name, "label": "dog", "present": number % 2 == 0}
        for number, name in enumerate(names[:-100])
        if number % 2 == 0 or number % 5 == 0
    ]
    return Dataset.from_records("many", root, CLASSES, images, rows)


@contextmanager
def browsing(index: PhotoIndex, space: FeatureSpace | None = None) -> Iterator[str]:
    """Serve what `tagfill browse` would, in a thread, until the end of the block; gives its address."""
    ended = threading.Event()

    class EndedByEvent(uvicorn.Server):
        should_exit = property(lambda self: ended.is_set(), lambda self, value: None)

    listening = http.listen("127.0.0.1", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", EndedByEvent)
        given = {"token": None, "space": space}
        thread = threading.Thread(target=browse_server.serve, args=(index, listening), kwargs=given)
        thread.start()
        try:
            yield http.address_of("127.0.0.1", listening.getsockname()[1], None)
        finally:
            ended.set()
            thread.join()


def until(page, expression, seconds=20):
    """Wait for a condition; the page's security policy forbids Playwright's own `wait_for_function`."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def opened(browser, address):
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.troubles = []
    page.on("console", lambda message: page.troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    own = (address, "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else page.troubles.append(request.url))
    page.goto(address)
    until(page, READY)
    until(page, LOADED)
    return page


def names(page):
    """Names of the photos on the screen and just around it, in their order."""
    order = f"{SHOWN}.sort((one, other) => one.dataset.position - other.dataset.position)"
    return page.evaluate(f"{order}.map((tile) => tile.title)")


def test_50000_photos_need_few_elements_and_few_requests(browser, dataset):
    with browsing(PhotoIndex(dataset)) as address:
        page = opened(browser, address)
        pictures = []
        page.on("request", lambda request: pictures.append(request.url) if "/picture/" in request.url else None)
        assert page.inner_text("#found") == "50,000 photos"
        assert names(page)[0] == "0000/00.jpg"
        counts = [page.evaluate("document.querySelectorAll('*').length")]
        height = page.evaluate("document.getElementById('scroller').scrollHeight")
        assert height > 1_000_000
        for step in range(1, 101):  # as one drags the scroll bar
            page.evaluate(f"document.getElementById('scroller').scrollTop = {height} * {step} / 100")
            page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
            counts.append(page.evaluate("document.querySelectorAll('*').length"))
        until(page, f"{SHOWN}.some((tile) => tile.dataset.row === '49999')")
        until(page, LOADED)
        assert max(counts) < 1000
        assert names(page)[-1] == "2499/19.jpg"
        assert len(pictures) < 1000  # what flies by is not loaded
        page.keyboard.press("Home")
        until(page, f"{SHOWN}.some((tile) => tile.dataset.row === '0')")
        pictures.clear()
        page.keyboard.press("m")  # without features, the map is a sentence that says how to make them
        assert "tagfill features" in page.inner_text("#no-map")
        page.click("#as-grid")
        until(page, LOADED)
        assert pictures == []  # the browser still has them
        assert page.troubles == []


def test_filters_search_and_one_photo(browser, dataset):
    with browsing(PhotoIndex(dataset)) as address:
        page = opened(browser, address)
        page.select_option("#label", "dog")
        until(page, "document.getElementById('found').textContent === '24,950 of 50,000 photos'")
        assert page.input_value("#state") == "present"
        assert page.evaluate(f"{SHOWN}.every((tile) => tile.dataset.state === '1')")
        page.select_option("#state", "unlabeled")
        until(page, "document.getElementById('found').textContent.startsWith('20,060 of')")
        page.click("#clear")
        page.fill("#text", "0234")
        until(page, "document.getElementById('found').textContent === '20 of 50,000 photos'")
        assert names(page)[:2] == ["0234/00.jpg", "0234/01.jpg"]
        page.click("#photo-1")
        page.wait_for_selector("#panel h2:has-text('0234/01.jpg')")
        assert "No label yet" in page.inner_text("#panel")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#panel h2:has-text('0234/03.jpg')")
        page.reload()  # the address says what is shown
        page.wait_for_selector("#panel h2:has-text('0234/03.jpg')")
        assert page.inner_text("#found") == "20 of 50,000 photos"
        page.keyboard.press("Escape")
        page.wait_for_selector("#panel", state="hidden")
        page.fill("#text", "nothing like this")
        page.click("#clear-all")
        until(page, "document.getElementById('found').textContent === '50,000 photos'")
        assert page.troubles == []


def test_nearest_photos(browser, part, cache):
    space = FeatureSpace(cache, part)
    nearest = np.argsort(-space.similarities(5), kind="stable")
    names_of = part.names()
    with browsing(PhotoIndex(part), space) as address:
        page = opened(browser, address)
        page.click("#photo-5")
        page.wait_for_selector("#nearest li:nth-child(8) img")
        shown = page.evaluate("[...document.querySelectorAll('#nearest img')].map((image) => image.alt)")
        assert shown == [names_of[row] for row in nearest[1:9]]
        page.click("#all-nearest")
        until(page, f"document.querySelector('#photo-0')?.dataset.row === '5' && {LOADED}")
        assert names(page)[:4] == [names_of[row] for row in nearest[:4]]
        assert page.inner_text("#photo-0 .score") == "1.00"
        assert names_of[5].split("/")[-1] in page.inner_text("#like")
        page.select_option("#split", "val")  # the nearest of a filter
        until(page, "document.getElementById('found').textContent === '60 of 190 photos'")
        val = [row for row in nearest if row in set(part.split("val").tolist())]
        assert names(page)[0] == names_of[val[0]]
        page.click("#clear")
        until(page, "document.getElementById('found').textContent === '190 photos'")
        assert page.is_hidden("#like")
        assert names(page)[0] == names_of[0]
        assert page.troubles == []


COLORS = """() => {
  const canvas = document.getElementById("points");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const blue = [0x2f, 0x5f, 0xd0], found = { blue: 0, any: 0 };
  for (let at = 0; at < data.length; at += 4) {
    if (!data[at + 3]) continue;
    found.any++;
    if (blue.every((value, channel) => Math.abs(data[at + channel] - value) < 6)) found.blue++;
  }
  return found;
}"""


def test_the_map_is_colored_by_a_class_and_opens_photos(browser, part, cache):
    index, space = PhotoIndex(part), FeatureSpace(cache, part)
    label = part.classes[0]
    with browsing(index, space) as address:
        page = opened(browser, address)
        page.click("#as-map")
        page.wait_for_selector("#about-map:has-text('Principal components')")
        assert f"{100 * space.map().share:.0f}% of their variation" in page.inner_text("#about-map")
        page.select_option("#label", label)
        present = len(index.select(PhotoFilter(label, "present")))
        page.wait_for_selector(f"#legend .present:has-text('{label} present ({present})')")
        assert page.input_value("#state") == "any"  # a class only chooses the colors
        colors = page.evaluate(COLORS)
        assert 0 < colors["blue"] < colors["any"]

        row = open_somewhere(page)
        assert page.inner_text("#name") == part.names()[row]
        page.select_option("#state", "present")  # the others fade, and cannot be opened any more
        page.wait_for_selector("#legend .unknown:has-text('(0)')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#panel", state="hidden")
        assert open_somewhere(page) in index.select(PhotoFilter(label, "present"))

        before = page.evaluate(COLORS)
        page.keyboard.press("p")
        until(page, f"({COLORS})().any > {2 * before['any']}")
        page.keyboard.press("m")
        until(page, LOADED)
        assert set(names(page)) <= {part.names()[row] for row in index.select(PhotoFilter(label, "present"))}
        assert page.troubles == []


def open_somewhere(page) -> int:
    """Move the pointer over the map until it finds a photo, click on it, and give its row."""
    box = page.locator("#points").bounding_box()
    for step in range(400):
        x, y = (
            box["x"] + 15 + (step % 20) * (box["width"] - 30) / 19,
            box["y"] + 15 + step // 20 * (box["height"] - 30) / 19,
        )
        page.mouse.move(x, y)
        if page.is_visible("#hint"):
            row = int(page.get_attribute("#hint", "data-row"))
            page.mouse.down()
            page.mouse.up()
            page.wait_for_selector("#panel h2")
            return row
    raise AssertionError("no photo on the map")
