import pytest

from tagfill.errors import TagfillError
from tagfill.experiments.report import Figure, Section, Table


def test_a_section_saves_its_pictures_and_the_numbers_behind_them(tmp_path):
    numbers = Table("curve", "mAP by epoch.", ("epoch", "mAP"), [(1, 10.5), (2, None)])
    board = Table("board", "All, best first.", ("method", "note"), [("an", 'says "absent", always')])
    section = Section(
        "curves",
        "Learning curves",
        figures=(Figure("curve", "Caption.", "A line.", b"png", data=numbers),),
        tables=(board,),
    )
    saved = section.save(tmp_path / "new")
    assert [path.name for path in saved] == ["curve.png", "curve.csv", "board.csv", "section.json"]
    assert saved[0].read_bytes() == b"png"
    assert saved[1].read_text() == "epoch,mAP\n1,10.5\n2,\n"
    assert saved[2].read_text() == 'method,note\nan,"says ""absent"", always"\n'
    assert Section.open(tmp_path / "new") == section


def test_a_folder_without_a_section_says_so(tmp_path):
    with pytest.raises(TagfillError, match=r"it has no section\.json"):
        Section.open(tmp_path)


def test_another_section_in_the_same_folder_leaves_nothing_of_the_first(tmp_path):
    figures = [Figure(name, "", "", b"png", data=Table(name, "", ("a",), [])) for name in "ab"]
    Section("x", "X", figures=tuple(figures)).save(tmp_path)
    (tmp_path / "mine.png").write_bytes(b"")

    Section("x", "X", figures=(figures[1],)).save(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"b.png", "b.csv", "section.json", "mine.png"}
