"""XML files of CVAT."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import PLAIN_NAMES, dataset, known_labels, label_states, quick, rows, splits
from formats.layouts.cvat import write_cvat
from reference import rle
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.formats import cvat, rasterize
from tagfill.progress import SILENT

TAG = '<tag label="cat" source="manual"></tag>\n'
BOX = (
    '<box label="dog" source="auto" occluded="1" xtl="50.00" ytl="25.00" xbr="150.00" ybr="75.00" z_order="0">'
    '<attribute name="truncated">true</attribute><attribute name="age">3</attribute></box>\n'
)
POINTS = '<points label="cat" source="manual" occluded="0" points="20.00,50.00;100.00,25.00" z_order="0"></points>\n'
POLYGON = '<polygon label="cat" occluded="0" points="0,0;4,0;4,2;0,2" z_order="0"></polygon>\n'
MASK = '<mask label="cat" occluded="0" rle="1, 2, 3" left="10" top="20" width="3" height="2" z_order="0"></mask>\n'


def pixels(row):
    return np.array(rle.decode(row["rle"], row["rle_height"], row["rle_width"]))


def test_tags_boxes_and_points(tmp_path):
    path = write_cvat(tmp_path / "annotations.xml", ["cat", "dog", "cow"], {"a.jpg": TAG + BOX + POINTS, "ü/b.jpg": ""})
    data = cvat.read(tmp_path, absent_means="unknown")
    assert data.classes == ("cat", "dog", "cow")
    assert rows(data, "image", "label", "present", "kind", "x", "y", "w", "h", "flags", "source") == [
        ("a.jpg", "cat", True, "image", None, None, None, None, None, "cvat:manual"),
        ("a.jpg", "dog", True, "box", 0.5, 0.5, 0.5, 0.5, ["occluded", "truncated"], "cvat:auto"),
        ("a.jpg", "cat", True, "point", pytest.approx(0.1), 0.5, None, None, None, "cvat:manual"),
        ("a.jpg", "cat", True, "point", 0.5, 0.25, None, None, None, "cvat:manual"),
    ]
    assert data.images.to_pylist() == [
        {"image": "a.jpg", "split": "train", "width": 200, "height": 100},
        {"image": "ü/b.jpg", "split": "train", "width": 200, "height": 100},
    ]
    assert path.parent == data.root


def test_other_labels_are_asked_about_with_counts(tmp_path):
    path = write_cvat(tmp_path / "a.xml", ["cat", "dog"], {"a.jpg": TAG, "b.jpg": ""})
    with pytest.raises(DatasetError, match=r"1 of 4 .* the other 3 become unknown"):
        cvat.read(path)
    assert known_labels(cvat.read(path, absent_means="absent")) == {"a.jpg": {"cat": True, "dog": False}, "b.jpg": {}}
    assert known_labels(cvat.read(path, absent_means="absent", empty="absent"))["b.jpg"] == {"cat": False, "dog": False}


def test_polygons_and_masks(tmp_path):
    path = write_cvat(tmp_path / "a.xml", ["cat"], {"a.jpg": POLYGON + MASK})
    polygon, mask = cvat.read(path, absent_means="unknown").rows().to_pylist()
    expected = np.zeros((100, 200))
    expected[:2, :4] = 1
    assert (pixels(polygon) == expected).all()
    assert [polygon[side] for side in "xywh"] == pytest.approx([0.01, 0.01, 0.02, 0.02])
    expected = np.zeros((100, 200))
    expected[20, 11:13] = 1
    assert (pixels(mask) == expected).all()
    assert [mask[side] for side in "xywh"] == pytest.approx([0.0575, 0.21, 0.015, 0.02])


def test_polygons_as_boxes_or_refused(tmp_path):
    path = write_cvat(tmp_path / "a.xml", ["cat"], {"a.jpg": POLYGON})
    assert rows(cvat.read(path, absent_means="unknown", polygons="box"), "kind", "rle") == [("box", None)]
    with pytest.raises(DatasetError, match=r"image a.jpg, polygon of 'cat': polygons are refused"):
        cvat.read(path, absent_means="unknown", polygons="refuse")


def test_subsets_are_splits_and_other_shapes_are_counted(tmp_path):
    line = '<polyline label="cat" points="1,1;2,2"></polyline>\n'
    path = write_cvat(tmp_path / "a.xml", ["cat"], {"a.jpg": line}, attributes=' subset="Validation"')
    said_lines = []

    class Listener:
        bar = staticmethod(SILENT.bar)
        say = staticmethod(said_lines.append)

    data = cvat.read(path, absent_means="unknown", progress=Listener())
    assert splits(data) == {"a.jpg": "val"}
    assert said_lines == ["a.xml: 1 polyline shapes were left out; they have no counterpart here."]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ('<box label="cat" xtl="a" ytl="1" xbr="2" ybr="2"></box>', r"image a.jpg, box of 'cat' cannot be read"),
        ('<box label="cat" xtl="1"></box>', "cannot be read"),
        ('<box xtl="1"></box>', "image a.jpg: a box has no label"),
        ('<points label="cat" points="1;2"></points>', "cannot be read"),
        ('<mask label="cat" rle="1, 2" left="0" top="0" width="2" height="2"></mask>', "do not fill a rectangle"),
        ('<mask label="cat" rle="4" left="199" top="0" width="2" height="2"></mask>', "do not fill a rectangle"),
        ('<tag label="cat"><attribute name="present">maybe</attribute></tag>', "has present='maybe'"),
        ('<tag label="cat">', "is not valid XML"),
    ],
)
def test_bad_shapes_are_named(tmp_path, shapes, message):
    path = write_cvat(tmp_path / "a.xml", ["cat"], {"a.jpg": shapes})
    with pytest.raises(DatasetError, match=message):
        cvat.read(path, absent_means="unknown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html></html>", "begins with <html>"),
        ("<annotations><track id='0'></track></annotations>", "is of a video"),
        ("<annotations><image name='a.jpg'></image></annotations>", "width and height"),
        ("<annotations><image name='../a.jpg'></image></annotations>", "not a path below"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><annotations>&a;</annotations>', "declares a document type"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(DatasetError, match=message):
        cvat.read(tmp_path / "a.xml", absent_means="unknown")


def test_empty_regions_are_refused(tmp_path):
    images = from_records([{"image": "a.jpg", "split": "val", "width": 4, "height": 4}], IMAGES_SCHEMA)
    row = {"image": "a.jpg", "label": "x", "present": False, "kind": "point", "x": 0.5, "y": 0.5}
    with pytest.raises(DatasetError, match="cannot express that a region does not show a label"):
        cvat.write(Dataset("test", tmp_path, ("x",), images, from_records([row])), tmp_path / "a.xml")


def test_mask_of_another_size_is_refused(tmp_path):
    images = from_records([{"image": "a.jpg", "split": "val", "width": 4, "height": 4}], IMAGES_SCHEMA)
    place = {"x": 0.5, "y": 0.5, "w": 0.5, "h": 0.5}
    row = {"image": "a.jpg", "label": "x", "present": True, "kind": "mask", "rle": b"22", **place}
    row |= {"rle_height": 2, "rle_width": 2}
    with pytest.raises(DatasetError, match="is 2×2, but the image is 4×4"):
        cvat.write(Dataset("test", tmp_path, ("x",), images, from_records([row])), tmp_path / "a.xml")


def test_missing_sizes_are_read_from_files(tmp_path):
    from formats.layouts.pictures import write_picture

    write_picture(tmp_path / "a.jpg", (12, 9))
    cvat.write(dataset({"a.jpg": {"x": True}}, ("x",), root=tmp_path), tmp_path / "a.xml")
    assert cvat.read(tmp_path / "a.xml").images["width"].to_pylist() == [12]


@given(data=label_states())
@quick
def test_round_trip_of_labels(tmp_path, data):
    sized = data.replace(
        images=data.images.drop_columns(["width", "height"]).append_column("width", [[40] * len(data)])
    )
    sized = sized.replace(images=sized.images.append_column("height", [[30] * len(data)]).cast(IMAGES_SCHEMA))
    cvat.write(sized, tmp_path / "a.xml")
    back = cvat.read(tmp_path / "a.xml", absent_means="unknown")
    assert back.classes == data.classes
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)


SIDE = st.integers(0, 64).map(lambda number: number / 64)


@st.composite
def drawn(draw):
    """Boxes, points and masks of a 40×30 image."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["box", "point", "mask"]))
        row = {"image": "a.jpg", "label": draw(PLAIN_NAMES), "present": True, "kind": kind, "source": "cvat:manual"}
        row["flags"] = draw(st.sampled_from([None, ["occluded"], ["occluded", "crowd"], ["difficult"]]))
        if kind == "mask":
            x, y, w, h = (draw(st.integers(1, 9)) for _ in range(4))
            inside = np.zeros((30, 40), dtype=bool)
            inside[y : y + h, x : x + w] = np.random.RandomState(x).rand(h, w) < 0.5
            inside[y, x] = inside[y + h - 1, x + w - 1] = True
            row |= rasterize.from_pixels(inside).columns()
            row |= {"x": (x + w / 2) / 40, "y": (y + h / 2) / 30, "w": w / 40, "h": h / 30}
        else:
            row |= {"x": draw(SIDE), "y": draw(SIDE)} | ({"w": draw(SIDE), "h": draw(SIDE)} if kind == "box" else {})
        found.append(row)
    return found


@given(found=drawn())
@quick
def test_round_trip_of_locations(tmp_path, found):
    images = from_records([{"image": "a.jpg", "split": "val", "width": 40, "height": 30}], IMAGES_SCHEMA)
    classes = tuple(sorted({row["label"] for row in found}))
    data = Dataset("test", tmp_path, classes, images, from_records(found))
    cvat.write(data, tmp_path / "a.xml")
    back = cvat.read(tmp_path / "a.xml", absent_means="unknown")
    exact = ("image", "label", "present", "kind", "flags", "source", "rle", "rle_height", "rle_width")
    assert rows(back, *exact) == rows(data, *exact)
    for side in "xywh":
        assert [row[0] for row in rows(back, side)] == pytest.approx([row[0] for row in rows(data, side)], abs=1e-6)
