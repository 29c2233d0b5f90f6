"""The report of a comparison in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tagfill.experiments import Leaderboard

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
HEADINGS = [
    "Leaderboard",
    "Data",
    "Learning curves",
    "Classes",
    "Score distributions",
    "Label recovery",
    "Class maps",
    "Likely missing labels",
    "Settings",
]
# Contrast of two colors as WCAG defines it.
CONTRAST = """([front, back]) => {
  const light = text => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255);
    const [r, g, b] = parts.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const color = (name, what) => getComputedStyle(document.querySelector(name))[what];
  const [x, y] = [light(color(front, "color")), light(color(back, "backgroundColor"))];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}"""


@pytest.fixture(scope="module")
def address(compared: tuple[Path, Leaderboard]) -> str:
    return (compared[0] / "report.html").as_uri()


@pytest.fixture(params=[(WIDE, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"])
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    viewport, scheme = request.param
    page = browser.new_page(viewport=viewport, color_scheme=scheme)
    page.asked, page.complaints = [], []
    page.on("request", lambda one: page.asked.append(one.url))
    page.on("console", lambda one: page.complaints.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda one: page.complaints.append(str(one)))
    page.goto(address)
    yield page
    page.close()


def test_page_is_self_contained_and_fits_the_window(page: Any, address: str) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.evaluate("Promise.all([...document.images].map(one => { one.loading = 'eager'; return one.decode(); }))")

    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert page.evaluate("[...document.images].filter(one => !one.naturalWidth || !one.alt).length") == 0
    assert page.locator("img").count() > 20
    assert page.locator("h1").all_inner_texts() == ["Methods on scenes"]
    assert page.locator("h2").all_inner_texts() == HEADINGS
    assert {one for one in page.asked if not one.startswith("data:")} == {address}
    assert page.complaints == []


@pytest.mark.parametrize("front", ["section p", "figcaption", ".caption", "thead th", "section a, summary"])
def test_text_has_enough_contrast(page: Any, front: str) -> None:
    assert page.evaluate(CONTRAST, [front, "section"]) >= 4.5


def test_contents_have_enough_contrast_and_link_to_sections(page: Any) -> None:
    assert page.evaluate(CONTRAST, ["nav a:not([aria-current])", "body"]) >= 4.5
    assert page.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    page.locator("nav a", has_text="Settings").click()
    page.wait_for_function("document.querySelector('nav a[aria-current]').hash === '#settings'")


def test_first_tab_key_skips_to_the_content(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.hash") == "#content"


def test_columns_are_sorted_by_their_headings(page: Any) -> None:
    table = page.locator("#leaderboard table")
    scores = [float(text) for text in table.locator("tbody td:nth-child(2)").all_inner_texts()]
    heading = table.locator("th button", has_text="mAP")

    heading.click()
    assert table.locator("th[aria-sort=descending]").count() == 1
    heading.click()

    assert [float(text) for text in table.locator("tbody td:nth-child(2)").all_inner_texts()] == sorted(scores)


def test_the_score_of_a_method_with_a_long_name_is_visible_without_scrolling(page: Any) -> None:
    right = page.evaluate("""() => {
      const rows = [...document.querySelectorAll("#leaderboard tbody tr")];
      rows[0].cells[0].append("ll-r:boost=5:boost_train=false:boost_from=0.5");
      return Math.max(...rows.map(row => row.cells[1].getBoundingClientRect().right));
    }""")

    assert right <= page.viewport_size["width"]
