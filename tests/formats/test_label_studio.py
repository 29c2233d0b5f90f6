"""Label Studio exports and tasks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.datasets import NAMES, dataset, known_labels, label_states, quick, rows, splits
from formats.layouts.label_studio import annotation, result, task, write_export
from reference import rle
from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.formats import label_studio
from tagfill.formats.label_studio_config import LAYOUTS, LabelingConfig, labeling_config
from tagfill.progress import SILENT

CHOICE = result("choices", {"choices": ["cat", "dog"]})
WHEN = datetime(2021, 3, 9, 22, 16, 8, 728378, tzinfo=UTC)


class Listener:
    def __init__(self):
        self.lines = []

    def bar(self, title, total, unit=""):
        return SILENT.bar(title, total, unit)

    def say(self, text):
        self.lines.append(text)


def test_choices_are_present_with_source_time_and_shared_seconds(tmp_path):
    path = write_export(tmp_path / "a.json", task("/data/upload/3/猫.jpg", annotation(CHOICE)), task("b.jpg", number=2))
    data = label_studio.read(path, absent_means="unknown")
    columns = ("image", "label", "present", "kind", "source", "time", "seconds")
    assert rows(data, *columns) == [
        ("upload/3/猫.jpg", "cat", True, "image", "label-studio:10", WHEN, 2.25),
        ("upload/3/猫.jpg", "dog", True, "image", "label-studio:10", WHEN, 2.25),
    ]
    assert data.images.to_pylist() == [
        {"image": "upload/3/猫.jpg", "split": "train", "width": 200, "height": 100},
        {"image": "b.jpg", "split": "train", "width": None, "height": None},
    ]


def test_untaken_choices_are_asked_about_with_counts(tmp_path):
    one = annotation(result("choices", {"choices": ["cat"]}))
    path = write_export(tmp_path / "a.json", task("a.jpg", annotation(CHOICE)), task("b.jpg", one))
    with pytest.raises(DatasetError, match=r"3 of 4 .* the other 1 become unknown"):
        label_studio.read(path)
    data = label_studio.read(path, absent_means="absent")
    assert known_labels(data)["b.jpg"] == {"cat": True, "dog": False}
    assert rows(data, "label", "present", "time", "seconds")[2:] == [
        ("cat", True, WHEN, 2.25),
        ("dog", False, WHEN, 2.25),
    ]


def test_rectangles_points_and_polygons(tmp_path):
    found = [
        result(
            "rectanglelabels", {"x": 25, "y": 50, "width": 50, "height": 25, "rotation": 0, "rectanglelabels": ["a"]}
        ),
        result("keypointlabels", {"x": 12.5, "y": 75, "width": 0.3, "keypointlabels": ["b"]}),
        result("polygonlabels", {"points": [[0, 0], [2, 0], [2, 4], [0, 4]], "polygonlabels": ["c"]}),
    ]
    path = write_export(tmp_path / "a.json", task("a.jpg", annotation(*found)))
    data = label_studio.read(path, absent_means="unknown")
    assert rows(data, "label", "kind", "x", "y", "w", "h") == [
        ("a", "box", 0.5, 0.625, 0.5, 0.25),
        ("b", "point", 0.125, 0.75, None, None),
        ("c", "mask", pytest.approx(0.01), pytest.approx(0.02), pytest.approx(0.02), pytest.approx(0.04)),
    ]
    mask = data.rows().to_pylist()[2]
    pixels = rle.decode(mask["rle"], mask["rle_height"], mask["rle_width"])
    assert pixels == [[1 if x < 4 and y < 4 else 0 for x in range(200)] for y in range(100)]


def test_rotated_rectangle_becomes_the_box_around_it(tmp_path):
    value = {"x": 50, "y": 10, "width": 10, "height": 40, "rotation": 90, "rectanglelabels": ["a"]}
    path = write_export(tmp_path / "a.json", task("a.jpg", annotation(result("rectanglelabels", value))))
    (row,) = label_studio.read(path, absent_means="unknown").rows().to_pylist()
    # 20×40 pixels at (100, 10), turned by a right angle around that corner: x from 60 to 100, y from 10 to 30
    assert [row[side] for side in "xywh"] == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert row["flags"] == ["rotated"]


def test_controls_for_absent_and_cannot_tell(tmp_path):
    found = [
        result("choices", {"choices": ["cat"]}),
        result("choices", {"choices": ["dog"]}, control="absent"),
        result("choices", {"choices": ["cow"]}, control="cannot-tell"),
    ]
    path = write_export(tmp_path / "a.json", task("a.jpg", annotation(*found)))
    assert known_labels(label_studio.read(path)) == {"a.jpg": {"cat": True, "cow": None, "dog": False}}


def test_looked_and_found_nothing_differs_from_not_looked_at(tmp_path):
    def answers(**controls):
        return annotation(*(result("choices", {"choices": words}, control=name) for name, words in controls.items()))

    per_class = {"class:cat": ["absent"], "class:dog": ["cannot-tell"]}
    tasks = [
        task("cat-only.jpg", answers(present=["cat"], others=["absent"])),
        task("cat.jpg", answers(present=["cat"], others=["unknown"])),
        task("nothing.jpg", answers(others=["absent"])),
        task("not-looked-at.jpg", answers(others=["unknown"])),
        task("per-class.jpg", answers(**per_class)),
        task("empty.jpg", answers()),
    ]
    data = label_studio.read(write_export(tmp_path / "a.json", *tasks), classes=["cat", "cow", "dog"])
    nothing = dict.fromkeys(["cat", "cow", "dog"], False)
    assert known_labels(data) == {
        "cat-only.jpg": nothing | {"cat": True},
        "cat.jpg": {"cat": True},
        "nothing.jpg": nothing,
        "not-looked-at.jpg": {},
        "per-class.jpg": {"cat": False, "dog": None},
        "empty.jpg": {},
    }


OWN_CONFIG = """<View><Image name="photo" value="$url"/><Text name="note" value="$note"/>
  <Choices name="tags" toName="photo" choice="multiple">
    <Choice value="Cat "/><Choice value="Hund" alias="dog"/><Choice value="Vehicle" predicted_values="bus, car"/>
    <Choice value="blurred"/>
  </Choices>
  <Choices name="mood" toName="note"><Choice value="cow"/></Choices>
  <RectangleLabels name="where" toName="photo"><Label value="cow"/></RectangleLabels>
  <Choices name="size" toName="photo" perRegion="true"><Choice value="cow"/></Choices></View>"""


def test_choices_of_a_projects_own_configuration_stand_for_classes():
    config = LabelingConfig.parse(OWN_CONFIG, ["cat", "dog", "car", "cow"])
    tags, where = config.controls
    assert tags.classes == {"Cat ": "cat", "dog": "dog", "Vehicle": "car"}
    assert (tags.multiple, tags.image, where.classes) == (True, "photo", {"cow": "cow"})
    assert (config.image_key(), config.unmatched, config.tells_absent) == ("url", ("blurred",), False)
    given = annotation(result("choices", {"choices": ["dog", "Vehicle", "blurred"]}, control="tags"))
    found = label_studio.parse_annotation(given, "annotation 1", config)
    assert found.statements == [("dog", True, {}), ("car", True, {})]
    assert found.unmatched == {"blurred"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_written_configurations_ask_about_every_class(layout):
    classes = ("cat", 'the "big" <one>', "others")
    config = LabelingConfig.parse(labeling_config(classes, layout=layout, boxes=True), classes)
    assert (config.shown, config.unmatched, config.tells_absent) == (classes, (), True)
    assert config.control("box").words == dict(zip(classes, classes, strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<View", "is not valid XML"),
        ('<!DOCTYPE v [<!ENTITY a "aaaa">]><View>&a;</View>', "defines a document type"),
        ("x" * 3_000_000, "more than 2,097,152 characters"),
    ],
)
def test_bad_configurations_are_refused(text, message):
    with pytest.raises(DatasetError, match=message):
        LabelingConfig.parse(text, ["cat"])


def test_cancelled_annotations_predictions_and_brushes_are_left_out(tmp_path):
    brush = result("brushlabels", {"format": "rle", "rle": [1, 2], "brushlabels": ["sky"]}, identity="brush")
    of_region = result("choices", {"choices": ["blurred"]}, identity="brush")
    one = task("a.jpg", annotation(CHOICE, was_cancelled=True), annotation(brush, of_region))
    one["predictions"] = [{"result": [CHOICE]}]
    listener = Listener()
    data = label_studio.read(write_export(tmp_path / "a.json", one), absent_means="unknown", progress=listener)
    assert known_labels(data) == {"a.jpg": {}}
    assert listener.lines == [
        "a.json: 1 results of type brushlabels were left out; they have no counterpart here.",
        "a.json: 1 results of type choices were left out; they have no counterpart here.",
    ]


def test_newer_annotation_of_another_person_decides(tmp_path):
    first = annotation(CHOICE, completed_by={"id": 3, "email": "ann@example.org"})
    second = annotation(
        result("choices", {"choices": ["cat"]}, control="absent"), created_at="2021-03-10T00:16:08+01:00"
    )
    data = label_studio.read(write_export(tmp_path / "a.json", task("a.jpg", first, second)))
    assert known_labels(data) == {"a.jpg": {"cat": False, "dog": True}}
    assert rows(data, "source", "time")[2] == ("label-studio:10", datetime(2021, 3, 9, 23, 16, 8, tzinfo=UTC))
    assert rows(data, "source")[0] == ("label-studio:ann@example.org",)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/data/local-files/?d=photos/a%20b.jpg", "a b.jpg"),
        ("https://example.org/photos/a%20b.jpg?token=1", "a b.jpg"),
        ("s3://photos/photos/a.jpg", "a.jpg"),
        ("photos/a%20b#1.jpg", "a%20b#1.jpg"),
    ],
)
def test_image_is_known_by_its_path(tmp_path, address, expected):
    path = write_export(tmp_path / "a.json", task(address))
    assert label_studio.read(path, prefix="photos/", absent_means="unknown").names() == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"image": "a.jpg", "tag": "cat"}]', "task 0 has no 'data'; export the project as JSON, not as JSON-MIN"),
        ('[{"id": 7, "data": {"photo": "a.jpg"}}]', "task 7 has no 'image' but photo in its data"),
        ('[{"data": {"image": "../a.jpg"}}]', "not a path below the image root"),
        ('[{"data": {"image": "a.jpg"}}', "ends in the middle of its JSON"),
        ('[{"data": {"image": "a.jpg"}} 1]', "is not valid JSON after task 1"),
        ("{}", "holds no list of tasks"),
        ('[{"data": {"image": "a"}, "annotations": [{"created_at": "soon"}]}]', '"soon" is not a time'),
        (
            '[{"data": {"image": "a"}, "annotations": [{"result": [{"type": "choices", "value": {}}]}]}]',
            "has a result that cannot be read",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        label_studio.read(path)


def located(**columns):
    images = from_records([{"image": "a.jpg", "split": "val", "width": 40, "height": 30}], IMAGES_SCHEMA)
    row = {"image": "a.jpg", "label": "x", "present": True, **columns}
    return Dataset("test", images=images, root=None, classes=("x",), annotations=from_records([row]))


def test_what_the_format_cannot_express_is_refused(tmp_path):
    place = {"x": 0.5, "y": 0.5, "w": 0.5, "h": 0.5}
    with pytest.raises(DatasetError, match="cannot express that a region does not show a label"):
        label_studio.write(located(kind="box", present=False, **place), tmp_path / "a.json")
    mask = located(kind="mask", rle=b"22", rle_height=2, rle_width=2, **place)
    with pytest.raises(DatasetError, match="masks='box' writes boxes"):
        label_studio.write(mask, tmp_path / "a.json")
    label_studio.write(mask, tmp_path / "a.json", masks="box")
    assert rows(label_studio.read(tmp_path / "a.json", absent_means="unknown"), "kind") == [("box",)]


def test_predictions_and_set_up(tmp_path):
    data = dataset({"a b.jpg": {"<x>": True}}, ("<x>",), size=(40, 30))
    label_studio.write(data, tmp_path / "a.json", predictions=True)
    (written,) = json.loads((tmp_path / "a.json").read_text())
    assert written == {
        "data": {"image": "/data/local-files/?d=a%20b.jpg", "split": "train"},
        "predictions": [
            {
                "result": [
                    {
                        "id": "r0",
                        "to_name": "image",
                        "original_width": 40,
                        "original_height": 30,
                        "type": "choices",
                        "from_name": "present",
                        "value": {"choices": ["<x>"]},
                    }
                ],
                "model_version": "test",
            }
        ],
    }
    view = ElementTree.parse(tmp_path / "a.xml").getroot()
    controls = [control for control in view.iter() if control.get("toName") == "image"]
    assert [(control.tag, control.get("name")) for control in controls] == [
        ("Choices", "present"),
        ("Choices", "others"),
        ("Choices", "absent"),
        ("Choices", "cannot-tell"),
        ("RectangleLabels", "box"),
        ("KeyPointLabels", "point"),
    ]
    assert controls[0][0].get("value") == "<x>"


@given(data=label_states())
@quick
def test_round_trip_of_labels(tmp_path, data):
    label_studio.write(data, tmp_path / "a.json")
    back = label_studio.read(tmp_path / "a.json", classes=data.classes, absent_means="unknown")
    assert known_labels(back) == known_labels(data)
    assert splits(back) == splits(data)


SIDE = st.integers(0, 1024).map(lambda number: number / 1024)
TIMES = st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@given(
    places=st.lists(st.tuples(st.sampled_from(["box", "point"]), NAMES, SIDE, SIDE, SIDE, SIDE), max_size=4),
    time=TIMES,
    seconds=st.none() | st.floats(0, 100, width=16),
)
@quick
def test_round_trip_of_locations(tmp_path, places, time, seconds):
    found = [
        {"image": "a.jpg", "label": label, "present": True, "kind": kind, "x": x, "y": y, "time": time}
        | ({"w": w, "h": h} if kind == "box" else {})
        | {"source": "label-studio:7", "seconds": seconds}
        for kind, label, x, y, w, h in places
    ]
    images = from_records([{"image": "a.jpg", "split": "val", "width": 40, "height": 30}], IMAGES_SCHEMA)
    classes = tuple(sorted({label for _, label, *_ in places}))
    data = Dataset("test", tmp_path, classes, images, from_records(found))
    label_studio.write(data, tmp_path / "a.json")
    back = label_studio.read(tmp_path / "a.json", absent_means="unknown")
    columns = ("image", "label", "present", "kind", "x", "y", "w", "h", "source", "time")
    assert rows(back, *columns) == rows(data, *columns)
    assert [row[0] for row in rows(back, "seconds")] == pytest.approx([seconds] * len(places))
