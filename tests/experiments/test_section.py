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
    assert [path.name for path in saved] == ["curve.png", "curve.csv", "board.csv"]
    assert saved[0].read_bytes() == b"png"
    assert saved[1].read_text() == "epoch,mAP\n1,10.5\n2,\n"
    assert saved[2].read_text() == 'method,note\nan,"says ""absent"", always"\n'
