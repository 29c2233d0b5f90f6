"""The page of a report from handmade sections: a single file that escapes all names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagfill import figures
from tagfill.experiments.report import Figure, Gallery, Listing, Picture, Section, Table, write
from tagfill.experiments.report.page import fits_side_by_side

NASTY = "<script>alert('a|b')</script>"


def figure(name: str) -> Figure:
    drawn, axes = figures.new_figure(3, 2)
    axes.plot([0, 1], [0, 1], "o-", label="$x$")
    axes.set_title(figures.escape_math("$5 and $6"))
    axes.legend()
    numbers = Table(name, "Numbers.", ("x", "y"), [(0, 0.5), (1, None)])
    return Figure(name, "A line.", f'A "line" of {NASTY}', figures.png(drawn), figures.svg(drawn), numbers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page")
    table = Table(
        "board", "All.", ("method", "gap"), [(NASTY, 0.25), ("an", None)], formats={"gap": ".0%"}, bars=("gap",)
    )
    tiles = Gallery("tiles", "Small.", [("", [Picture(b"\x89PNG", NASTY, NASTY, right=False)])])
    sections = [
        Section("scores", "Scores", (f"Words about {NASTY} and `code`.",), figures=(figure("one"), figure("two"))),
        Section("scores", "More", tables=(table,), galleries=(tiles,), listings=(Listing(NASTY, f"a: {NASTY}"),)),
    ]
    write(sections, place / "report.html", title=NASTY, summary=NASTY, facts={NASTY: NASTY})
    return place


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def test_names_are_escaped(page: str) -> None:
    assert NASTY not in page
    assert page.count("<script>") == 1  # our own
    assert "&lt;script&gt;" in page


def test_the_page_refers_to_nothing_outside(page: str) -> None:
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert addresses
    assert [address for address in addresses if not address.startswith(("#", "data:"))] == []


def test_ids_are_unique_and_all_references_exist(page: str) -> None:
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)) <= set(names)


def test_sections_of_the_same_name_get_different_anchors(page: str) -> None:
    assert re.findall(r'<section id="([^"]+)"', page) == ["scores", "scores-2"]


def test_dollars_are_not_formulas(page: str) -> None:
    assert "$5 and $6" in page


def test_markdown_has_tables_figures_and_the_files_that_it_names(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    assert "| &lt;script>alert('a\\|b')&lt;/script> | 25% |" in text
    assert "| an | – |" in text
    assert NASTY not in text.replace(f"a: {NASTY}", "")  # except in a listing, where it is text
    linked = re.findall(r"\]\((report-files/[^)]+)\)", text)
    assert linked == ["report-files/scores/one.png", "report-files/scores/two.png"]
    assert all((folder / place).stat().st_size > 1000 for place in linked)
    assert (folder / "report-files/scores-2/board.csv").read_text().startswith("method,gap\n")


@pytest.mark.parametrize(("columns", "side_by_side"), [(("method", "gap"), True), (("method", "found " * 9), False)])
def test_a_narrow_table_goes_beside_its_figure(columns: tuple[str, ...], side_by_side: bool):
    table = Table("board", "All.", columns, [("an", 0.5)])
    assert fits_side_by_side(Section("one", "One", figures=(figure("one"),), tables=(table,))) == side_by_side
