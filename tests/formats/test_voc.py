from __future__ import annotations

import tarfile
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from pycocotools import mask as coco_mask

from formats.compare import rows, same, states
from formats.layouts import arbitrary
from formats.layouts import voc as layout
from tagfill.errors import DatasetError
from tagfill.formats import voc
from tagfill.protocols import single_positive

OLD, PLAIN, VAL = (f"JPEGImages/{identity}.jpg" for identity in ("2007_000027", "2008_000008", "2011_003271"))


@pytest.fixture
def folder(tmp_path):
    return layout.write(tmp_path)


def message(source, **options):
    with pytest.raises(DatasetError) as error:
        voc.read(source, **options)
    return str(error.value).replace(str(source), "FOLDER")


def test_lists_decide_and_images_are_sorted_by_name(folder):
    dataset = voc.read(folder)

    assert dataset.images.to_pylist() == [
        {"image": OLD, "split": "train", "width": 200, "height": 100},
        {"image": PLAIN, "split": "train", "width": 200, "height": 100},
        {"image": VAL, "split": "val", "width": 200, "height": 100},
    ]
    assert states(dataset) == {
        OLD: {"aeroplane": 1, "cat": 0, "person": 0},
        PLAIN: {"aeroplane": 0, "cat": 1, "person": 1},
        VAL: {"aeroplane": 0, "cat": 0, "person": 1},
    }


def test_rows(folder):
    found = rows(voc.read(folder), ("image", "label", "present", "kind", "x", "y", "w", "h", "flags"))

    assert [row[1:] for row in found if row[0] == PLAIN] == [
        ("aeroplane", False, "image", None, None, None, None, None),
        ("cat", True, "box", 0.125, 0.125, 0.25, 0.25, None),
        ("person", True, "box", 0.75, 0.75, 0.5, 0.5, ("truncated",)),
    ]
    assert [row[1:4] + row[8:] for row in found if row[0] == OLD] == [
        ("aeroplane", True, "box", None),
        ("aeroplane", True, "box", ("difficult", "occluded")),
        ("cat", False, "image", ("difficult",)),
        ("person", False, "image", None),
    ]


@pytest.mark.parametrize(("difficult", "state", "kind"), [("present", 1, "box"), ("unknown", -1, "box")])
def test_difficult_only_classes_may_be_present_or_unknown(folder, difficult, state, kind):
    dataset = voc.read(folder, difficult=difficult)

    assert states(dataset)[OLD]["cat"] == state
    cat = next(row for row in dataset.rows().to_pylist() if (row["image"], row["label"]) == (OLD, "cat"))
    assert (cat["kind"], cat["flags"]) == (kind, ["difficult"])


def test_labels_only(folder):
    found = rows(voc.read(folder, locations="none", difficult="unknown"), ("image", "label", "present", "kind"))

    assert [row[1:] for row in found if row[0] == OLD] == [
        ("aeroplane", True, "image"),
        ("cat", None, "image"),
        ("person", False, "image"),
    ]


@pytest.mark.parametrize("place", [".", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_the_folder_is_found(tmp_path, place):
    layout.write(tmp_path)

    assert len(voc.read(tmp_path / place)) == 3


def test_one_of_two_years_must_be_given(folder):
    layout.write(folder.parents[1] / "other").rename(folder.with_name("VOC2007"))

    assert "several years of VOC (VOC2007, VOC2012)" in message(folder.parents[1])


def test_without_class_lists_the_xml_files_decide(folder):
    for path in (folder / "ImageSets" / "Main").glob("*_*.txt"):
        path.unlink()

    assert states(voc.read(folder))[OLD] == {"aeroplane": 1, "cat": 0, "person": 0}


def test_images_without_any_class_are_read_on_request(folder):
    layout.photo(folder, "2009_000001")
    layout.marks(folder, "val", {"2009_000001": (-1, -1, -1), "2011_003271": (-1, -1, 1)})

    assert len(voc.read(folder)) == 3
    assert states(voc.read(folder, images="all"))["JPEGImages/2009_000001.jpg"] == dict.fromkeys(layout.CLASSES, 0)


def test_masks_belong_to_objects_in_their_order(folder):
    numbers = np.zeros((50, 100))
    numbers[10:20, 30:40], numbers[0:5, 0:5], numbers[40:, :] = 2, 1, 255
    kinds = np.where(numbers == 1, 3, np.where(numbers == 2, 2, numbers))
    layout.mask(folder, "SegmentationObject", "2008_000008", numbers)
    layout.mask(folder, "SegmentationClass", "2008_000008", kinds)

    found = {row["label"]: row for row in voc.read(folder, locations="mask").rows().to_pylist() if row["rle"]}

    assert set(found) == {"cat", "person"}
    assert found["cat"]["rle"] == coco_mask.encode(np.asfortranarray(numbers == 2, dtype=np.uint8))["counts"]
    assert (found["cat"]["rle_height"], found["cat"]["rle_width"]) == (50, 100)
    assert (found["cat"]["x"], found["cat"]["w"]) == (0.125, 0.25)


def test_an_object_whose_pixels_are_of_another_class_stays_a_box(folder):
    numbers = np.zeros((50, 100))
    numbers[10:20, 30:40] = 2
    layout.mask(folder, "SegmentationObject", "2008_000008", numbers)
    layout.mask(folder, "SegmentationClass", "2008_000008", numbers / 2)

    assert set(voc.read(folder, locations="mask").rows()["kind"].to_pylist()) == {"box", "image"}


def test_pixels_of_a_class_are_those_of_its_only_object(folder):
    kinds = np.zeros((50, 100))
    kinds[10:20, 30:40] = 3
    layout.mask(folder, "SegmentationClass", "2008_000008", kinds)

    found = [row for row in voc.read(folder, locations="mask").rows().to_pylist() if row["kind"] == "mask"]

    assert [(row["image"], row["label"]) for row in found] == [(PLAIN, "person")]


def test_an_archive_is_unpacked_into_extract_to(tmp_path):
    layout.write(tmp_path / "original")
    with tarfile.open(tmp_path / "voc.tar", "w") as archive:
        archive.add(tmp_path / "original" / "VOCdevkit", "VOCdevkit")

    dataset = voc.read(tmp_path / "voc.tar", extract_to=tmp_path / "unpacked")

    assert len(dataset) == 3
    assert dataset.root == tmp_path / "unpacked" / "VOCdevkit" / "VOC2012"
    assert message(tmp_path / "voc.tar") == "FOLDER is an archive; say where to unpack it with extract_to."


def test_the_single_positive_protocol_runs_on_it(folder):
    assert single_positive(voc.read(folder)).splits.keys() == {"train", "test"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("</annotation>", "", "2008_000008.xml is not valid XML"),
        ("<width>200</width>", "<width>0</width>", "2008_000008.xml: the width of its size is '0'"),
        ("<size>", "<no>", "2008_000008.xml is not valid XML"),
        ("<name>cat</name>", "<name> </name>", "2008_000008.xml has an object without a name."),
        ("<xmax>50</xmax>", "<xmax>far</xmax>", "2008_000008.xml: the bndbox of a cat lacks one of xmin"),
        ("<xmax>50</xmax>", "<xmax>-7</xmax>", "2008_000008.xml: the bndbox of a cat ends before it begins."),
        ("<name>cat</name>", "<name>aeroplane</name>", "shows a aeroplane, but ImageSets/Main marks it -1."),
        ("<name>cat</name>", "<name>yak</name>", "shows a yak, but ImageSets/Main has no list for this class."),
    ],
)
def test_a_bad_xml_file_is_named(folder, old, new, problem):
    path = folder / "Annotations" / "2008_000008.xml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")

    assert problem in message(folder)


def test_a_missing_xml_file_is_named(folder):
    (folder / "Annotations" / "2008_000008.xml").unlink()

    assert message(folder).endswith("2008_000008.xml, although ImageSets/Main lists 2008_000008.")


def test_an_image_outside_of_the_folder_is_named(folder):
    layout.image_list(folder, "val", "../2011_003271")

    assert message(folder).endswith("val.txt lists ../2011_003271, which leads out of the folder.")


def test_masks_are_refused_or_written_as_boxes(folder, tmp_path):
    layout.mask(folder, "SegmentationObject", "2011_003271", np.ones((50, 100)))
    dataset = voc.read(folder, locations="mask")

    with pytest.raises(DatasetError, match=r"VOC cannot carry a mask, .* masks='box' writes the box of a mask"):
        voc.write(dataset, tmp_path / "out")
    voc.write(dataset, tmp_path / "out", masks="box")

    assert same(voc.read(tmp_path / "out"), voc.read(folder))


def test_a_bad_mark_is_named(folder):
    path = folder / "ImageSets" / "Main" / "cat_val.txt"
    path.write_text("2011_003271 2\n", encoding="utf-8")

    assert message(folder).endswith("cat_val.txt, line 1: '2011_003271 2' is not an image and one of 1, -1 and 0.")


def test_lists_of_different_images_are_named(folder):
    (folder / "ImageSets" / "Main" / "cat_val.txt").write_text("2011_000001 -1\n", encoding="utf-8")

    assert "cat_val.txt and val.txt beside it do not list the same images" in message(folder)


def test_a_folder_of_something_else_is_refused(tmp_path):
    assert message(tmp_path) == "FOLDER has no ImageSets/Main, neither itself nor in VOCdevkit/VOC2012."


@settings(max_examples=20, deadline=None)
@given(
    arbitrary.datasets(
        name="JPEGImages/{split}_{number}.jpg", flags=("difficult", "truncated", "occluded"), unlocated={}
    )
)
def test_what_is_written_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        voc.write(dataset, folder)

        assert same(voc.read(folder, images="all"), dataset)


@settings(max_examples=10, deadline=None)
@given(arbitrary.datasets(name="my photos/{split}/{number}.png", unlocated={}))
def test_names_of_any_form_are_kept(dataset):
    with tempfile.TemporaryDirectory() as folder:
        voc.write(dataset, folder)

        assert same(voc.read(folder, images="all"), dataset)


def test_difficult_absences_are_written_as_such(folder, tmp_path):
    dataset = voc.read(folder)
    voc.write(dataset, tmp_path / "out")

    assert (tmp_path / "out" / "ImageSets" / "Main" / "cat_train.txt").read_text() == "2007_000027  0\n2008_000008  1\n"
    assert same(voc.read(tmp_path / "out"), dataset)


def test_unknown_labels_are_refused_or_written_as_absent(folder, tmp_path):
    dataset = voc.read(folder, difficult="unknown", locations="none")

    with pytest.raises(DatasetError, match="VOC cannot express unknown labels, but 1 of 6 labels of split train"):
        voc.write(dataset, tmp_path / "out")
    voc.write(dataset, tmp_path / "out", unknown="absent")

    assert states(voc.read(tmp_path / "out"))[OLD] == {"aeroplane": 1, "cat": 0, "person": 0}


def test_names_that_differ_in_their_suffix_only_are_refused(folder, tmp_path):
    dataset = voc.read(folder, locations="none")
    images = dataset.images.to_pylist()
    wrong = f"{images[0]['image'].removesuffix('.jpg')}.png"
    table = dataset.images.from_pylist([*images, {**images[0], "image": wrong}], schema=dataset.images.schema)

    with pytest.raises(DatasetError, match="VOC identifies images by their name without suffix"):
        voc.write(dataset.replace(images=table), tmp_path / "out", unknown="absent")


@pytest.mark.parametrize("corner", ["nan", "inf", "1e999"])
def test_a_corner_that_is_not_finite_is_refused(folder, corner):
    path = folder / "Annotations" / "2011_003271.xml"
    path.write_text(path.read_text(encoding="utf-8").replace("<xmax>200<", f"<xmax>{corner}<"), encoding="utf-8")

    assert "the bndbox of a person lacks one of xmin, ymin, xmax and ymax, or it is not a number" in message(folder)


def test_an_xml_file_of_an_unknown_encoding_is_refused(folder):
    path = folder / "Annotations" / "2011_003271.xml"
    path.write_bytes(b'<?xml version="1.0" encoding="klingon"?>' + path.read_bytes())

    assert "2011_003271.xml is not valid XML" in message(folder)


@pytest.mark.parametrize(("difficult", "count"), [("present", 2), ("absent", 1), ("unknown", 1)])
def test_an_image_of_difficult_objects_alone_is_annotated_if_these_are_present(tmp_path, difficult, count):
    folder = tmp_path / "VOC2012"
    layout.photo(folder, "1", layout.thing("cat", (1, 1, 100, 100)))
    layout.photo(folder, "2", layout.thing("cat", (1, 1, 100, 100), difficult=1))
    layout.marks(folder, "train", {"1": (-1, 1, -1), "2": (-1, 0, -1)})

    assert len(voc.read(folder, difficult=difficult)) == count
