from __future__ import annotations

import pytest

from dataset.cases import at, dataset, image, row
from tagfill.dataset import Dataset, Problem, tables, validate

BOX = {"kind": "box", "x": 0.5, "y": 0.5, "w": 0.5, "h": 0.5}
MASK = {**BOX, "kind": "mask", "rle": b"0T1", "rle_height": 6, "rle_width": 6}  # no zero, then 36 ones


def problems(data: Dataset) -> list[Problem]:
    """Problems except classes without a positive, which every small dataset has."""
    return [problem for problem in validate(data) if problem.kind != "class-without-positive"]


def the_problem(*rows, **attributes) -> Problem:
    found = problems(dataset(*rows, **attributes))
    assert len(found) == 1, found
    return found[0]


def test_a_valid_dataset_has_no_problem():
    sound = [row(), row("dog", False), row("007", None), row("no", kind="point", x=0.0, y=1.0), row(**BOX), row(**MASK)]
    data = dataset(*sound, images=[image("a.jpg", width=60, height=60), image("b.jpg")])
    assert problems(data) == []


@pytest.mark.parametrize(
    ("wrong", "kind", "what"),
    [
        (row("cta"), "unknown-label", "label 'cta' is not in the class list"),
        (row(image="z.jpg"), "unknown-image", "image 'z.jpg' is not in the image table"),
        (row(kind="bbox"), "unknown-kind", "kind is 'bbox'"),
        (row(kind="point", x=0.5), "missing-coordinates", "a row of kind point lacks y"),
        (row(**{**BOX, "w": None, "h": None}), "missing-coordinates", "a row of kind box lacks w, h"),
        (row(**{**MASK, "rle": None}), "missing-coordinates", "a row of kind mask lacks rle"),
        (row(**{**MASK, "rle_width": None}), "missing-coordinates", "a row of kind mask lacks rle_width"),
        (row(x=0.5, y=0.5), "superfluous-coordinates", "a row of kind image has x, y"),
        (row(**{**BOX, "kind": "point"}), "superfluous-coordinates", "a row of kind point has w, h"),
        (row(**{**MASK, "kind": "box"}), "superfluous-coordinates", "a row of kind box has rle, rle_height, rle_width"),
        (row(kind="point", x=float("nan"), y=0.5), "coordinates-not-finite", "x = nan, y = 0.5"),
        (row(**{**BOX, "w": float("inf")}), "coordinates-not-finite", "x = 0.5, y = 0.5, w = inf, h = 0.5"),
        (row(kind="point", x=1.5, y=0.5), "coordinates-outside", "x = 1.5, y = 0.5, outside of 0 to 1"),
        (row(**{**BOX, "h": -0.5}), "coordinates-outside", "x = 0.5, y = 0.5, w = 0.5, h = -0.5, outside of 0 to 1"),
        (row(**{**BOX, "w": 0}), "empty-box", "a box without area, x = 0.5, y = 0.5, w = 0, h = 0.5"),
        (row(**{**MASK, "rle_height": 7}), "mask-raster", "the run lengths cover 36 pixels, and the raster is 6 × 7"),
        (row(**{**MASK, "rle": b"\x00"}), "mask-raster", "the run lengths cannot be read, and the raster is 6 × 6"),
    ],
)
def test_invalid_row(wrong, kind, what):
    problem = the_problem(row("dog"), wrong)
    assert (problem.kind, problem.row, problem.what, problem.severity) == (kind, 1, what, "error")
    assert problem.file == "the annotations of small"
    assert problem.remedy


def test_a_box_beyond_the_image_is_a_warning():
    problem = the_problem(row(**{**BOX, "x": 0.9}))
    assert (problem.kind, problem.severity, problem.row) == ("box-sticks-out", "warning", 0)


def test_a_box_may_exceed_the_image_by_a_rounding_error():
    assert problems(dataset(row(**{**BOX, "x": 0.7501}))) == []


def test_a_mask_of_swapped_height_and_width_is_a_warning():
    images = [image("a.jpg", width=640, height=480), image("b.jpg")]
    problem = the_problem(row(**{**MASK, "rle_height": 9, "rle_width": 4}), images=images)
    assert (problem.kind, problem.severity) == ("mask-shape", "warning")


def test_a_mask_at_another_scale_is_fine():
    images = [image("a.jpg", width=601, height=599), image("b.jpg")]
    assert problems(dataset(row(**MASK), images=images)) == []


@pytest.mark.parametrize(
    ("wrong", "kind", "what"),
    [
        (image("a.jpg"), "repeated-image", "image 'a.jpg' is already listed in row 0"),
        (
            image("a.jpg", "val"),
            "image-in-two-splits",
            "image 'a.jpg' is in split 'val' here and in split 'train' in row 0",
        ),
        (image("b.jpg", " "), "blank-split", "the split has no name"),
        (image("b.jpg", None), "blank-split", "the split has no name"),
        (image(""), "blank-image", "the image has no name"),
        (image("../b.jpg"), "image-outside-root", "image '../b.jpg' is not below the image root"),
        (image("/b.jpg"), "image-outside-root", "image '/b.jpg' is not below the image root"),
        (image("b.jpg", width=0), "image-size", "width is 0"),
        (image("b.jpg", height=-3), "image-size", "height is -3"),
    ],
)
def test_invalid_image(wrong, kind, what):
    problem = the_problem(images=[image("a.jpg"), wrong])
    assert (problem.kind, problem.row, problem.what) == (kind, 1, what)
    assert problem.file == "the images of small"


def test_names_with_dots_are_below_the_root():
    assert problems(dataset(images=[image("..a/b..jpg"), image("a/..b.jpg"), image("a..")])) == []


def test_every_repeat_refers_to_the_first():
    found = problems(dataset(images=[image("b.jpg"), image("a.jpg"), image("a.jpg"), image("b.jpg"), image("a.jpg")]))
    assert [(problem.row, problem.what[-5:]) for problem in found] == [(2, "row 1"), (3, "row 0"), (4, "row 1")]


def test_contradictions_name_both_rows():
    problem = the_problem(row("dog"), row(), row(present=False), row("dog", time=at(0)))
    assert problem.kind == "contradiction"
    assert problem.what.startswith("rows 1 and 2 contradict each other about label 'cat' of image 'a.jpg'")
    assert "let the majority decide" in problem.remedy


def test_contradictions_are_no_problem_with_majority():
    assert problems(dataset(row(), row(present=False), conflict="majority")) == []


def test_contradictions_with_the_hierarchy_name_both_rows():
    problem = the_problem(row(), row("animal", False), hierarchy=(("cat", "animal"),))
    assert problem.kind == "hierarchy-contradiction"
    assert problem.what.startswith("row 0 says that image 'a.jpg' shows 'cat', and row 1 that it does not")


@pytest.mark.parametrize(
    ("edges", "what"),
    [
        ((("cat", "dog"), ("dog", "cat")), "The hierarchy has a cycle"),
        ((("cat", "beast"),), "The hierarchy has an edge from 'cat' to 'beast', but 'beast' is not a class"),
    ],
)
def test_an_invalid_hierarchy_is_a_problem(edges, what):
    problem = the_problem(row(), hierarchy=edges)
    assert (problem.kind, problem.row) == ("hierarchy", None)
    assert problem.what.startswith(what)


def test_classes_without_a_positive_are_warnings_unless_something_implies_them():
    data = dataset(row(), row("dog", False), classes=("cat", "dog", "animal"), hierarchy=(("cat", "animal"),))
    assert [(problem.what, problem.severity) for problem in validate(data)] == [
        ("no image is known to show 'dog'", "warning")
    ]


def test_a_dataset_without_images_or_classes():
    found = {problem.kind for problem in validate(dataset(images=[], classes=()))}
    assert found == {"no-image", "no-class"}


def test_all_problems_are_listed_at_once_errors_first():
    data = dataset(
        row("cta"),
        row(kind="point", x=2.0, y=0.5),
        row(**{**BOX, "x": 0.9}),
        row(),
        row(present=False),
        images=[image("a.jpg"), image("a.jpg", "val")],
        hierarchy=(("cat", "cat"),),
    )
    found = validate(data)
    kinds = ["image-in-two-splits", "unknown-label", "coordinates-outside", "contradiction", "hierarchy"]
    assert [problem.kind for problem in found if problem.severity == "error"] == kinds
    assert [problem.severity for problem in found] == sorted(problem.severity for problem in found)


def test_examples_of_one_kind_are_limited_and_the_rest_counted(monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 4)
    data = dataset(*[row(f"unknown {number}") for number in range(30)])
    found = problems(data)
    assert [problem.row for problem in found] == [*range(20), None]
    assert found[-1].what == "10 more of this kind (unknown-label)"
    assert len([problem for problem in validate(data, examples=2) if problem.kind == "unknown-label"]) == 3


def test_many_contradictions_are_counted():
    names = [f"{number}.jpg" for number in range(25)]
    rows = [row(image=name, present=present) for present in (True, False) for name in names]
    found = problems(dataset(*rows, images=[image(name) for name in names]))
    assert len(found) == 21
    assert found[0].what.startswith("rows 0 and 25")
    assert found[-1].what == "5 more of this kind (contradiction)"


def test_row_numbers_run_through_all_batches(monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 3)
    rows = [row("dog")] * 7 + [row("cta"), row("cat"), row("cat", False)]
    found = problems(dataset(*rows))
    assert found[0].row == 7
    assert found[1].what.startswith("rows 8 and 9")


def test_a_problem_is_a_sentence(tmp_path):
    data = dataset(row("cta")).save(tmp_path, tables="csv")
    assert str(problems(data)[0]) == (
        f"{tmp_path / 'annotations.csv'}, row 0: label 'cta' is not in the class list; "
        "correct it, add it to the classes, or drop the row."
    )
