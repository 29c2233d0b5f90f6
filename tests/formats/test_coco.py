from __future__ import annotations

import json
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from pycocotools import mask as coco_mask

from formats.compare import rows, same, states
from formats.layouts import arbitrary
from formats.layouts import coco as layout
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError, TagfillError
from tagfill.formats import coco

A, B, C = (f"train2014/COCO_train2014_{number:012d}.jpg" for number in (9, 25, 100))


@pytest.fixture
def folder(tmp_path):
    """Three images, one of them without annotations; two polygons in one object, and a crowd."""
    layout.write(
        tmp_path,
        [layout.image(9), layout.image(25), layout.image(100)],
        [
            layout.polygons(501, 25, 90, layout.TRIANGLE, layout.SQUARE),
            layout.crowd(900100, 9, 1),
            layout.polygons(7, 9, 13, layout.SQUARE),
            layout.polygons(8, 9, 13, layout.TRIANGLE),
        ],
    )
    return tmp_path


def changed(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8"))
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}), encoding="utf-8")


def message(folder, **options):
    with pytest.raises(TagfillError) as error:
        coco.read(folder, **options)
    return str(error.value).replace(str(folder), "FOLDER")


def test_classes_are_the_categories_in_file_order(folder):
    assert coco.read(folder).classes == ("person", "bicycle", "stop sign", "zebra")


def test_labels_are_exhaustive(folder):
    assert states(coco.read(folder, images="all")) == {
        A: {"person": 1, "bicycle": 0, "stop sign": 1, "zebra": 0},
        B: {"person": 0, "bicycle": 0, "stop sign": 0, "zebra": 1},
        C: {"person": 0, "bicycle": 0, "stop sign": 0, "zebra": 0},
    }


def test_what_is_not_annotated_is_unknown_if_labels_are_not_exhaustive(folder):
    assert states(coco.read(folder, images="all", exhaustive=False))[B] == {
        "person": -1,
        "bicycle": -1,
        "stop sign": -1,
        "zebra": 1,
    }


def test_images_are_annotated_ones_in_the_order_of_ids_as_strings(folder):
    assert coco.read(folder).names() == [B, A]
    assert coco.read(folder, images="all").names() == [C, B, A]


def test_a_row_holds_everything(folder):
    crowd = next(row for row in coco.read(folder).rows().to_pylist() if row["label"] == "person" and row["present"])
    expected = coco_mask.frPyObjects({"counts": [320, 160, 7520], "size": [80, 100]}, 80, 100)["counts"]

    assert crowd == {
        "image": A,
        "label": "person",
        "present": True,
        "kind": "mask",
        "x": np.float32(0.05),
        "y": 0.5,
        "w": np.float32(0.02),
        "h": 1.0,
        "rle": expected,
        "rle_height": 80,
        "rle_width": 100,
        "flags": ["crowd"],
        "source": "coco",
        "time": None,
        "seconds": None,
    }


def test_polygons_of_an_object_are_one_mask(folder):
    zebra = next(row for row in coco.read(folder).rows().to_pylist() if row["label"] == "zebra" and row["present"])
    both = coco_mask.merge(coco_mask.frPyObjects([layout.TRIANGLE, layout.SQUARE], 80, 100))

    assert zebra["rle"] == both["counts"]
    assert (zebra["x"], zebra["w"]) == (np.float32((10 + 80.5) / 2 / 100), np.float32(0.705))


def test_compressed_runs_are_kept(tmp_path):
    pixels = np.asfortranarray(np.random.default_rng(0).random((80, 100)) < 0.3, dtype=np.uint8)
    counts = coco_mask.encode(pixels)["counts"]
    item = layout.polygons(1, 9, 1, layout.SQUARE, segmentation={"size": [80, 100], "counts": counts.decode()})
    layout.write(tmp_path, [layout.image(9)], [item])

    assert coco.read(tmp_path).rows()["rle"][0].as_py() == counts


def test_boxes_only(folder):
    found = rows(coco.read(folder, locations="box", exhaustive=False))

    assert {row[3] for row in found} == {"box"}
    assert len(found) == 4


def test_labels_only_are_one_row_for_each_image_and_class(folder):
    found = rows(coco.read(folder, locations="none", exhaustive=False), ("image", "label", "present", "kind", "x"))

    assert found == [
        (A, "person", True, "image", None),
        (A, "stop sign", True, "image", None),
        (B, "zebra", True, "image", None),
    ]


def test_an_object_without_polygons_is_a_box_and_one_without_a_box_gets_that_of_its_mask(tmp_path):
    box = layout.polygons(1, 9, 1, layout.SQUARE, segmentation=[])
    corner = layout.polygons(2, 9, 2, [0.0, 0.0, 50.0, 0.0, 50.0, 40.0, 0.0, 40.0])
    del corner["bbox"]
    layout.write(tmp_path, [layout.image(9)], [box, corner])

    found = coco.read(tmp_path, exhaustive=False).rows().to_pylist()

    assert [row["kind"] for row in found] == ["box", "mask"]
    assert [found[1][name] for name in "xywh"] == [0.25, 0.25, 0.5, 0.5]


def test_a_box_is_cut_where_it_leaves_the_image(tmp_path):
    item = layout.polygons(1, 9, 1, layout.SQUARE, bbox=[-10, 40, 30, 60])
    layout.write(tmp_path, [layout.image(9)], [item])

    row = coco.read(tmp_path, locations="box", exhaustive=False).rows().to_pylist()[0]

    assert [row[name] for name in "xywh"] == [np.float32(0.1), 0.75, np.float32(0.2), 0.5]


@pytest.mark.parametrize(
    "order",
    [("annotations", "images", "categories"), ("categories", "annotations", "images")],
    ids=["categories last", "images last"],
)
def test_lists_come_in_any_order(folder, tmp_path_factory, order):
    content = json.loads((folder / "annotations" / "instances_train2014.json").read_text(encoding="utf-8"))
    other = tmp_path_factory.mktemp("other")
    layout.write(other, content["images"], content["annotations"], order=order)

    assert same(coco.read(other), coco.read(folder))


def test_splits_of_2017(tmp_path):
    for subset in ("val2017", "train2017"):
        layout.write(
            tmp_path,
            [layout.image(5, subset)],
            [layout.polygons(1, 5, 1, layout.SQUARE)],
            name=f"instances_{subset}",
        )

    dataset = coco.read(tmp_path)

    assert dataset.name == "coco2017"
    assert dataset.images.select(["image", "split"]).to_pylist() == [
        {"image": "train2017/000000000005.jpg", "split": "train"},
        {"image": "val2017/000000000005.jpg", "split": "val"},
    ]


def test_one_of_two_years_must_be_chosen(folder):
    layout.write(folder, [layout.image(5)], [], name="instances_train2017")

    assert "choose a year" in message(folder)
    assert len(coco.read(folder, year=2014)) == 2


def test_any_file_of_this_form(tmp_path):
    path = layout.write(tmp_path, [layout.image(9)], [layout.polygons(1, 9, 1, layout.SQUARE)], name="shop")

    dataset = coco.read(path, split="test", root="elsewhere")

    assert dataset.images.to_pylist() == [
        {"image": "COCO_train2014_000000000009.jpg", "split": "test", "width": 100, "height": 80}
    ]
    assert str(dataset.root) == "elsewhere"


def test_categories_of_the_same_name_get_their_id(tmp_path):
    categories = [{"id": 3, "name": "bat"}, {"id": 5, "name": "cat"}, {"id": 9, "name": "bat"}]
    layout.write(tmp_path, [layout.image(9)], [], categories=categories)

    assert coco.read(tmp_path, images="all").classes == ("bat (3)", "cat", "bat (9)")


ANNOTATION = layout.polygons(17, 9, 1, layout.SQUARE)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"image_id": 8}, "annotation 17 belongs to image 8, which is not among the images."),
        ({"category_id": 12}, "annotation 17 is of category 12, which is not among the categories."),
        ({"bbox": [1, 2, 3, -4]}, "annotation 17: its bbox is 3 × -4 pixels, but sizes are not negative."),
        ({"bbox": [1, 2, 3]}, "annotation 17: its bbox is not a list of left, top, width and height."),
        ({"segmentation": [[1, 2, 3, 4, 5]]}, "annotation 17: a polygon of its segmentation is not a list of x, y"),
        ({"segmentation": [[1, 2, 3, 4, 1e9, 5]]}, "annotation 17: a polygon of its segmentation lies far outside"),
        ({"segmentation": {"size": [80, 100], "counts": [1, 2]}}, "do not fill its 80 × 100 pixels."),
        ({"segmentation": {"size": [80, 100], "counts": "12"}}, "do not fill its 80 × 100 pixels."),
        ({"segmentation": {"size": [80, 100], "counts": "1ü"}}, "have a character 'Ã'."),
        ({"segmentation": {"size": [80, 100], "counts": "1o"}}, "end in the middle of a number."),
        ({"segmentation": {"size": [80], "counts": "12"}}, "have no size of [height, width]."),
        ({"segmentation": {"size": [8, 8], "counts": [1.5]}}, "are neither a list of numbers nor compressed."),
        ({"segmentation": "12"}, "its segmentation is neither a list of polygons nor run lengths."),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_a_bad_annotation_is_named(tmp_path, changes, problem):
    layout.write(tmp_path, [layout.image(9)], [{**ANNOTATION, **changes}])

    text = message(tmp_path)

    assert text.startswith("FOLDER/annotations/instances_train2014.json, annotation 17")
    assert problem in text


@pytest.mark.parametrize("key", ["image_id", "category_id"])
def test_an_annotation_without_a_key_is_named(tmp_path, key):
    layout.write(tmp_path, [layout.image(9)], [{name: value for name, value in ANNOTATION.items() if name != key}])

    assert message(tmp_path) == f"FOLDER/annotations/instances_train2014.json, annotation 17 has no {key}."


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"width": -5}, "image 9 has a width of -5; it must be a whole number of pixels, at least one."),
        ({"id": None}, "images[0] has no id but null."),
        ({"file_name": 9}, "images[0] has a file_name of 9, which is not text."),
        ({"file_name": "../../9.jpg"}, '"../../9.jpg" is not the path of an image below the image root.'),
    ],
    ids=["size", "id", "number", "path"],
)
def test_a_bad_image_is_named(tmp_path, changes, problem):
    layout.write(tmp_path, [{**layout.image(9), **changes}], [])

    assert problem in message(tmp_path)


def test_an_image_without_a_size_has_no_locations(tmp_path):
    bare = {"id": 9, "file_name": "9.jpg"}
    layout.write(tmp_path, [bare], [ANNOTATION])

    assert "its image has no width and height" in message(tmp_path)
    assert len(coco.read(tmp_path, locations="none")) == 1


def test_repeated_ids_are_named(tmp_path):
    layout.write(tmp_path, [layout.image(9), layout.image(9)], [])

    assert message(tmp_path).endswith("image id 9 occurs twice; ids must be distinct.")


@pytest.mark.parametrize("key", ["images", "annotations", "categories"])
def test_a_missing_list_is_named(folder, key):
    changed(folder / "annotations" / "instances_train2014.json", **{key: None})

    assert f"has no list '{key}'" in message(folder)


def test_a_cut_file_is_named(folder):
    path = folder / "annotations" / "instances_train2014.json"
    path.write_bytes(path.read_bytes()[:-500])

    assert message(folder) == (
        "FOLDER/annotations/instances_train2014.json ends in the middle of its JSON; it may be an incomplete download."
    )


def test_a_damaged_file_is_named(folder):
    path = folder / "annotations" / "instances_train2014.json"
    path.write_bytes(path.read_bytes().replace(b'"category_id": 90', b'"category_id"; 90'))

    assert message(folder).startswith("FOLDER/annotations/instances_train2014.json is not valid JSON at annotations[0]")


def test_a_folder_without_annotations_is_refused(tmp_path):
    assert message(tmp_path).startswith("FOLDER has no annotations/instances_*.json")


def test_options_are_checked(folder):
    assert message(folder, images="some") == "images is 'some'; give one of annotated, all."


@settings(max_examples=25, deadline=None)
@given(arbitrary.datasets(kinds=("box", "mask"), flags=("crowd",)))
def test_what_is_written_is_read(dataset):
    with tempfile.TemporaryDirectory() as folder:
        coco.write(dataset, folder, year=2017)

        assert same(coco.read(folder, images="all"), dataset)


@settings(max_examples=10, deadline=None)
@given(arbitrary.datasets(name="{split}-{number}.jpg"))
def test_names_of_any_form_are_kept(dataset):
    with tempfile.TemporaryDirectory() as folder:
        coco.write(dataset, folder)

        assert same(coco.read(folder, images="all"), dataset)


def test_ids_in_file_names_are_kept(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("written")
    coco.write(coco.read(folder), target, year=2014)

    written = json.loads((target / "annotations" / "instances_train2014.json").read_text(encoding="utf-8"))

    assert [image["id"] for image in written["images"]] == [25, 9]
    assert written["annotations"][0]["area"] == coco_mask.area(
        coco_mask.merge(coco_mask.frPyObjects([layout.TRIANGLE, layout.SQUARE], 80, 100))
    )


def some(*records):
    images = from_records([{"image": "a.jpg", "split": "train", "width": 10, "height": 10}], IMAGES_SCHEMA)
    return Dataset("some", ".", ("cat", "dog"), images, from_records([{"image": "a.jpg", **row} for row in records]))


BOX = {"kind": "box", "x": 0.5, "y": 0.5, "w": 0.2, "h": 0.2}
CAT = {"label": "cat", "present": True, **BOX}
NO_DOG = {"label": "dog", "present": False}


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (
            [CAT],
            "COCO cannot express unknown labels, but 1 of 2 labels of split train are unknown; unknown='absent'",
        ),
        ([CAT, {"label": "dog", "present": None}], "COCO cannot express unknown labels, but 1 of 2 labels"),
        ([{"label": "cat", "present": True}, NO_DOG], "have none, the first being 'cat' of a.jpg"),
        ([CAT, NO_DOG, {**CAT, "kind": "point"}], "COCO cannot carry a point, but 'cat' of a.jpg has one"),
        ([CAT, NO_DOG, {**CAT, "present": False}], "COCO cannot express that a region is empty, but a box says so"),
    ],
    ids=["unknown", "cannot tell", "unlocated", "point", "region"],
)
def test_what_the_format_cannot_express_is_refused(tmp_path, records, problem):
    with pytest.raises(DatasetError) as error:
        coco.write(some(*records), tmp_path)

    assert problem in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_unknown_is_written_as_absent_on_request(tmp_path):
    coco.write(some(CAT), tmp_path, unknown="absent")

    assert states(coco.read(tmp_path)) == {"a.jpg": {"cat": 1, "dog": 0}}


def test_overruled_locations_are_not_written(tmp_path):
    later = {"label": "cat", "present": False, "time": 2_000_000}
    coco.write(some(CAT, NO_DOG, later), tmp_path)

    assert states(coco.read(tmp_path, images="all")) == {"a.jpg": {"cat": 0, "dog": 0}}


def test_all_splits_are_checked_before_the_first_file_is_written(tmp_path):
    images = [{"image": f"{split}.jpg", "split": split, "width": 10, "height": 10} for split in ("train", "val")]
    rows = [{"image": "train.jpg", **CAT}, {"image": "val.jpg", "label": "cat", "present": True}]
    data = Dataset("some", ".", ("cat",), from_records(images, IMAGES_SCHEMA), from_records(rows))

    with pytest.raises(DatasetError, match="of split val have none"):
        coco.write(data, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_the_same_categories_under_other_ids_are_refused(tmp_path):
    shifted = [{**category, "id": category["id"] + 1} for category in layout.CATEGORIES]
    layout.write(tmp_path, [layout.image(9)], [layout.polygons(1, 9, 1, layout.SQUARE)])
    val = [layout.image(8, "val2014")], [layout.polygons(1, 8, 2, layout.SQUARE)]
    layout.write(tmp_path, *val, name="instances_val2014", categories=shifted)

    assert "give the same categories different ids; import them as two datasets" in message(tmp_path)


def test_images_in_deeper_folders_keep_their_names(tmp_path):
    names = ["train2017/000000000009.jpg", "train2017/night/000000000025.jpg"]
    images = [{"image": name, "split": "train", "width": 10, "height": 10} for name in names]
    rows = [{"image": name, **CAT} for name in names]
    coco.write(
        Dataset("some", ".", ("cat",), from_records(images, IMAGES_SCHEMA), from_records(rows)), tmp_path, year=2017
    )

    assert coco.read(tmp_path).names() == sorted(names, key=lambda name: name.rpartition("/")[2])
