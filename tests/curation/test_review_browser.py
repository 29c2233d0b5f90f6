"""The review page in a real browser.

The server is a thread of the test, which starts faster than a process; tests that kill it start a process.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import uvicorn

from servers import Server
from tagfill import models
from tagfill.curation import Suggestions, server
from tagfill.curation.review import open_session
from tagfill.dataset import Dataset
from tagfill.inference import http

from .cases import CLASSES, photos, suggestions

MANY = 5_000
READY = "!document.body.classList.contains('loading')"


class Serving(NamedTuple):
    """Where the page is."""

    address: str
    port: int


@contextmanager
def reviewing(folder: Path, *, run: Path | None = None, port: int = 0) -> Iterator[Serving]:
    """Serve what `tagfill review` would, until the end of the block."""
    ended = threading.Event()

    class EndedByEvent(uvicorn.Server):
        should_exit = property(lambda self: ended.is_set(), lambda self, value: None)

    data = Dataset.open(folder / "data")
    listening = http.listen("127.0.0.1", port)
    port = listening.getsockname()[1]
    with (
        open_session(data, Suggestions.read(folder / "s.parquet", data)) as session,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(uvicorn, "Server", EndedByEvent)
        options = {"run": run, "reviewer": "me", "token": None}
        thread = threading.Thread(target=server.serve, args=(session, listening), kwargs=options)
        thread.start()
        try:
            yield Serving(http.address_of("127.0.0.1", port, None), port)
        finally:
            ended.set()
            thread.join()


def in_a_process(folder: Path, port: int = 0) -> Server:
    what = ("review", str(folder / "data"), "--suggestions", str(folder / "s.parquet"))
    return Server(*what, "--no-browser", "--reviewer", "me", port=port)


def prepared(folder: Path, count: int = 30, labels: tuple[str, ...] = ("cup", "tree")) -> Dataset:
    data = photos(folder, count)
    suggestions(data, labels).save(folder / "s.parquet")
    return data


def decided(folder: Path) -> dict[tuple[str, str], bool | None]:
    """The reviewed rows of the dataset."""
    rows = Dataset.open(folder / "data").rows().to_pylist()
    found = [((row["image"], row["label"]), row["present"]) for row in rows if row["source"] == "review"]
    assert len(dict(found)) == len(found), "a decision became two rows"
    return dict(found)


def opened(browser, review, routes=None, **context):
    """A page of the review after it has been drawn; `troubles` collects its errors.

    `routes` holds handlers of requests by their address. They are set before the page is opened: Chromium may send
    requests of a page that is open already past a new handler.
    """
    page = browser.new_context(**context).new_page()
    for address, handler in (routes or {}).items():
        page.route(address, handler)
    page.troubles = []
    page.on("console", lambda message: page.troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.troubles.append(str(error)))
    own = review.address.split("?")[0]
    page.on(
        "request", lambda request: None if request.url.startswith((own, "data:")) else page.troubles.append(request.url)
    )
    page.goto(review.address)
    page.wait_for_selector(".tile.current")
    until(page, READY)
    return page


def until(page, expression, seconds=20):
    """Wait for a condition; the page's security policy forbids Playwright's own `wait_for_function`."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(20)


def saved(page):
    until(page, "document.getElementById('saved').textContent === 'All saved'")


def test_deciding_by_key_and_by_click_undoing_and_reloading(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        page.keyboard.press("p")
        page.keyboard.press("a")
        page.keyboard.press("c")
        page.keyboard.press("s")
        page.click("#tile-6")
        page.click("[data-act=present]")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("a")
        page.keyboard.press("u")
        saved(page)
        marks = page.eval_on_selector_all(".tile", "tiles => tiles.slice(0, 8).map(tile => tile.className)")
        assert [name.split()[-1] for name in marks[:3]] == ["present", "absent", "doubt"]
        assert "present" in marks[6]
        page.reload()
        page.wait_for_selector(".tile.current")
        until(page, READY)
        assert page.inner_text("#pace").startswith("4 of 60 decided")
        page.keyboard.press("u")  # goes on where it was before the reload
        saved(page)
        assert page.troubles == []
    assert decided(tmp_path) == {
        ("00000.jpg", "cup"): True,
        ("00001.jpg", "cup"): False,
        ("00002.jpg", "cup"): None,
    }


def test_two_tabs_lose_and_double_nothing(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        unchanged = {"**/api/changes*": lambda route: route.fulfill(json={"newest": 0, "statuses": []})}
        one, two = opened(browser, review), opened(browser, review, unchanged)
        one.keyboard.press("p")
        saved(one)
        two.keyboard.press("a")  # about the same image, which it has not seen decided
        two.wait_for_selector("#note:not([hidden])")
        assert "already decided cup: present. Your decision was not saved." in two.inner_text("#note")
        assert two.inner_text("#saved") == "1 not saved. me already decided cup: present."
        two.keyboard.press("p")
        two.wait_for_selector("#tile-1.present:not(.unsaved)")
        assert two.inner_text("#saved").startswith("1 not saved.")
        two.click("#tile-0")
        two.keyboard.press("p")  # the same as the other, after it was seen
        saved(two)
        one.wait_for_selector("#tile-1.present", timeout=10_000)  # one sees what two did
        assert one.troubles + two.troubles == []
    assert decided(tmp_path) == {("00000.jpg", "cup"): True, ("00001.jpg", "cup"): True}


def test_a_killed_server_loses_nothing_that_was_confirmed_and_gets_the_rest_later(tmp_path, browser):
    prepared(tmp_path)
    with in_a_process(tmp_path) as review:
        page = opened(browser, review)
        page.keyboard.press("p")
        saved(page)
        review.kill()
        page.keyboard.press("p")
        page.keyboard.press("a")
        page.wait_for_selector("#saved.waiting")
        assert "2 not saved" in page.inner_text("#saved")
        with reviewing(tmp_path, port=review.port):
            saved(page)
    assert decided(tmp_path) == {
        ("00000.jpg", "cup"): True,
        ("00001.jpg", "cup"): True,
        ("00002.jpg", "cup"): False,
    }


def test_decisions_about_another_file_of_suggestions_stay_listed_as_not_saved(tmp_path, browser):
    data = prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
    for key in "papapa":
        page.keyboard.press(key)
    page.wait_for_selector("#saved.waiting")
    suggestions(data, ("tree", "dog")).save(tmp_path / "s.parquet")
    with reviewing(tmp_path, port=review.port):
        until(page, "document.getElementById('saved').textContent.startsWith('6 not saved. The decision about')")
        assert "'cup' in 00005.jpg belongs to" in page.inner_text("#saved")
        assert page.locator(".tile.refused").count() == 6
        page.reload()  # they are sent again, refused again, and still there
        page.wait_for_selector("#unsaved:not([hidden])")
        until(page, "document.getElementById('saved').textContent.startsWith('6 not saved.')")
        page.wait_for_selector("#tile-0.current")
        until(page, READY)
        page.keyboard.press("p")  # of this file
        page.wait_for_selector("#tile-0.present:not(.unsaved)")
        assert page.inner_text("#saved").startswith("6 not saved.")
        page.click("#unsaved")
        assert "00001.jpg, cup: absent. The decision about" in page.inner_text("#refused-list li:nth-child(2)")
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        until(page, "document.getElementById('saved').textContent.startsWith('6 not saved.')")
    suggestions(data).save(tmp_path / "s.parquet")
    with reviewing(tmp_path, port=review.port):
        page.click("#unsaved")
        page.click("#send-again")
        saved(page)
    assert decided(tmp_path) == {(f"0000{number}.jpg", "cup"): number % 2 == 0 for number in range(6)}


def test_what_is_refused_does_not_take_the_rest_of_its_batch_along(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review, {"**/api/decisions": lambda route: route.abort()})
        for _ in range(4):
            page.keyboard.press("p")
        page.wait_for_selector("#saved.waiting")
        for key, change in (("00001.jpg", {"image": "gone.jpg"}), ("00002.jpg", {"seconds": -1})):
            page.evaluate(
                """([image, change]) => {
                    const key = Object.keys(localStorage).find((one) => localStorage[one].includes(image));
                    const entry = JSON.parse(localStorage[key]);
                    localStorage[key] = JSON.stringify({ ...entry, body: { ...entry.body, ...change } });
                }""",
                [key, change],
            )
        page.unroute("**/api/decisions")
        page.reload()
        until(page, "document.getElementById('saved').textContent.startsWith('2 not saved.')")
        page.click("#unsaved")
        listed = page.inner_text("#refused-list")
        assert "gone.jpg, cup: present. The decision about" in listed
        assert "00002.jpg, cup: present. The request is invalid: decisions.0.seconds" in listed
        page.click("#discard")
        saved(page)
        page.reload()
        until(page, "document.getElementById('pace').textContent.startsWith('2 of 60')")
        saved(page)
    assert decided(tmp_path) == {("00000.jpg", "cup"): True, ("00003.jpg", "cup"): True}


def test_unconfirmed_decisions_survive_a_reload(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review, {"**/api/decisions": lambda route: route.abort()})
        page.keyboard.press("p")
        page.wait_for_selector("#saved.waiting")
        page.unroute("**/api/decisions")
        page.reload()
        saved(page)
    assert decided(tmp_path) == {("00000.jpg", "cup"): True}


def test_accepting_many_is_undone_at_once(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        page.keyboard.press("b")
        page.fill("#many-minimum", "0.5")
        until(page, "document.getElementById('many-count').textContent === '15'")
        page.click("#many-yes")
        until(page, "document.getElementById('pace').textContent.startsWith('15 of 60')")
        page.keyboard.press("u")
        saved(page)
        page.reload()
        until(page, "document.getElementById('pace').textContent.startsWith('0 of 60')")
        page.fill("#minimum", "0.9")
        page.dispatch_event("#minimum", "change")
        until(page, "document.querySelectorAll('.tile').length === 3")
    assert decided(tmp_path) == {}


def test_accepting_many_accepts_what_it_shows(tmp_path, browser):
    prepared(tmp_path)
    count = "document.getElementById('many-count').textContent === "
    with reviewing(tmp_path) as review:
        page, other = opened(browser, review), opened(browser, review)
        page.keyboard.press("b")
        for wrong in ("", "1.5", "-1"):
            page.fill("#many-minimum", "0.9")
            until(page, f"{count}'3'")
            page.fill("#many-minimum", wrong)  # is no score: nothing is shown, and nothing can be accepted
            until(page, f"{count}'–'")
            assert page.is_disabled("#many-yes")
        page.fill("#many-minimum", "0.9")
        until(page, f"{count}'3'")
        other.keyboard.press("a")  # another reviewer decides the first of the three
        saved(other)
        page.click("#many-yes")
        page.wait_for_selector("#unsaved:not([hidden])")
        assert "The page showed 3 suggestions of 'cup'" in page.inner_text("#saved")
        page.keyboard.press("u")
        saved(page)
        page.keyboard.press("b")
        until(page, f"{count}'2'")
        page.click("#many-yes")
        until(page, "document.getElementById('pace').textContent.startsWith('3 of 60')")
        page.keyboard.press("b")
        page.fill("#many-minimum", "0.5")
        until(page, f"{count}'12'")
        page.keyboard.press("Escape")  # closes without accepting, also after a dialog that accepted
        page.wait_for_timeout(200)
        saved(page)
    assert list(decided(tmp_path).values()) == [False, True, True]


def test_one_image_with_all_its_tags_and_where_the_model_sees_them(tmp_path, browser):
    prepared(tmp_path)
    models.create("resnet10t", "cam", CLASSES, pretrained=False, image_size=64).save(tmp_path / "model")
    with reviewing(tmp_path, run=tmp_path / "model") as review:
        page = opened(browser, review)
        with page.expect_response(lambda answer: "/heatmap/2/0?" in answer.url) as answer:
            page.hover("#tile-2")
        assert answer.value.status == 200
        page.keyboard.press("v")
        page.wait_for_selector("body.single .tile")
        assert page.eval_on_selector_all(".tile .words span:first-child", "all => all.map(one => one.textContent)") == [
            "cup",
            "tree",
        ]
        until(page, READY)
        page.keyboard.press("p")
        page.keyboard.press("a")  # the last one: the next image comes
        until(page, "document.querySelector('figcaption').textContent === '00001.jpg'")
        saved(page)
        assert page.troubles == []
    assert decided(tmp_path) == {("00000.jpg", "cup"): True, ("00000.jpg", "tree"): False}


def test_thousands_of_suggestions_keep_the_page_small(tmp_path, browser):
    data = photos(tmp_path, 50)
    labels = tuple(f"label {number:03d}" for number in range(MANY // 50))
    data.replace(classes=(*data.classes, *labels)).save(tmp_path / "data")
    suggestions(data, labels).save(tmp_path / "s.parquet")
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        assert page.inner_text("#pace").startswith("0 of 5,000")
        largest = 0
        for press in range(30):
            until(page, READY)
            page.keyboard.press("p" if press % 3 else "a")
            largest = max(largest, page.evaluate("document.querySelectorAll('*').length"))
        saved(page)
        assert largest < 500
    assert len(decided(tmp_path)) == 30


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off(tmp_path, browser, scheme):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review, viewport={"width": 390, "height": 780}, color_scheme=scheme, has_touch=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.tap("#tile-1")
        page.tap("[data-act=absent]")
        saved(page)
        page.tap("#single")
        page.wait_for_selector("body.single .tile")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", dark))) < 200) == (scheme == "dark")
        if folder := os.environ.get("TAGFILL_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/review-phone-{scheme}.png")
    assert decided(tmp_path) == {("00001.jpg", "cup"): False}


def test_keys_alone_reach_everything(tmp_path, browser):
    prepared(tmp_path)
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        page.keyboard.press("]")
        until(page, "document.getElementById('label').selectedIndex === 1")
        until(page, READY)
        page.keyboard.press("PageDown")
        until(page, "document.querySelectorAll('.tile').length === 6")
        page.keyboard.press("PageUp")
        until(page, "document.querySelectorAll('.tile').length === 24")
        page.keyboard.press("/")
        page.keyboard.type("0002")
        until(page, "document.querySelectorAll('.tile').length === 11")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")
        page.keyboard.press("Escape")
        until(page, READY)
        page.keyboard.press("Enter")
        page.keyboard.press("Backspace")
        page.keyboard.press("Control+z")
        saved(page)
    assert decided(tmp_path) == {("00002.jpg", "tree"): True}


def test_keys_meant_for_one_class_do_not_decide_the_next(tmp_path, browser):
    prepared(tmp_path, 2)
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)
        assert page.inner_text("#question") == "Is there a cup?"
        page.keyboard.press("p")
        page.keyboard.press("p")  # the last cup: the page goes on with trees
        until(page, "document.getElementById('question').textContent === 'Is there a tree?'")
        page.clock.run_for(200)
        page.keyboard.press("p")  # too early
        page.clock.resume()
        until(page, READY)
        page.keyboard.press("a")
        saved(page)
    assert decided(tmp_path) == {("00000.jpg", "cup"): True, ("00001.jpg", "cup"): True, ("00000.jpg", "tree"): False}


def test_one_image_shows_its_tags_and_takes_any_other(tmp_path, browser):
    data = photos(tmp_path, 2)
    suggestions(data, ("dog",), kind="wrong", annotated=True).save(tmp_path / "s.parquet")
    with reviewing(tmp_path) as review:
        page = opened(browser, review)
        assert page.inner_text("#question") == "Tagged dog; the model doubts it. Is there a dog?"
        page.keyboard.press("v")
        page.wait_for_selector("body.single .tile")
        until(page, READY)
        tags = "[...document.querySelectorAll('#tags li')].map(one => one.firstChild.textContent.trim()).join()"
        assert page.evaluate(tags) == "dog"
        page.keyboard.press("t")
        page.keyboard.type("tr")
        page.keyboard.press("Enter")
        until(page, f"{tags} === 'dog,tree'")
        page.click("#tags [aria-label='Remove dog']")  # which is the suggestion: the next image comes
        until(page, "document.querySelector('figcaption').textContent === '00001.jpg'")
        saved(page)
        assert page.troubles == []
    assert decided(tmp_path) == {("00000.jpg", "tree"): True, ("00000.jpg", "dog"): False}


def completing(folder: Path, port: int = 0) -> Server:
    words = ("review", str(folder / "data"), "--complete", "3", "--no-browser", "--reviewer", "me")
    return Server(*words, port=port)


def test_all_tags_of_a_photo_survive_a_killed_server_and_make_a_split(tmp_path, browser):
    data = photos(tmp_path, 8)
    with completing(tmp_path) as review:
        page = opened(browser, review)
        first = page.inner_text("figcaption")
        page.keyboard.press("/")
        page.keyboard.type("tree")
        page.keyboard.press("Enter")  # adds the tag
        page.keyboard.press("Enter")  # finishes the photo
        saved(page)
        until(page, READY)
        second = page.inner_text("figcaption")
        review.kill()
        page.keyboard.press("1")
        page.keyboard.press("Enter")
        page.wait_for_selector("#saved.waiting")
        with completing(tmp_path, review.port) as again:
            saved(page)
            page.reload()
            page.wait_for_selector(".tile.current")
            until(page, READY)
            assert page.inner_text("#pace").startswith("2 of 3 photos complete")
            out, _ = again.end()
    assert "2 of 3 photos are complete; they are the split 'val'" in out
    after = Dataset.open(data.folder)
    assert set(after.names(after.split("val"))) == {first, second}
    assert after.labels("val").complete()
    assert (after.labels("val").dense()[after.names(after.split("val")).index(first)] == [0, 1, 1]).all()


def test_an_audit_asks_one_question_at_a_time_and_states_precision(tmp_path, browser):
    data = photos(tmp_path, 6)
    rows = [{"image": name, "label": "cup", "present": True, "source": "fill"} for name in data.names()[:4]]
    data.with_records(rows).save(data.folder)
    words = ("audit", str(data.folder), "--added", "4", "--left-out", "2", "--no-browser", "--reviewer", "me")
    with Server(*words) as audit:
        page = opened(browser, audit)
        for _ in range(6):
            until(page, READY)
            page.keyboard.press("p" if page.inner_text("#question") == "Is there a cup?" else "a")
        page.wait_for_selector("#empty:not([hidden])")
        saved(page)
        assert page.troubles == []
        out, _ = audit.end()
    assert "Precision 100 %, between 51 and 100, from 4 decisions" in out
    assert (data.folder / "audit.json").is_file()
