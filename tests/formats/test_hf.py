from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from formats.datasets import dataset, known_labels, splits
from images.pictures import encode, noise
from tagfill.errors import DatasetError
from tagfill.formats import hf

CLASSES = ("cup", "spoon", "fork")
LABELS = {
    "a.png": {"cup": True, "spoon": False},
    "deep/b.png": {"fork": None},
    "c.png": {},
    "d.png": {"cup": False, "spoon": True, "fork": True},
}
SPLITS = {"c.png": "val", "d.png": "test"}
CODED = {"_type": "ClassLabel", "names": list(CLASSES)}


@pytest.fixture
def data(tmp_path):
    for number, image in enumerate(LABELS):
        path = tmp_path / "photos" / image
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(Image.fromarray(noise(4, 5, seed=number))))
    return dataset(LABELS, CLASSES, root=tmp_path / "photos", splits=SPLITS)


def picture(seed: int, kind: str = "PNG") -> bytes:
    return encode(Image.fromarray(noise(4, 5, seed=seed)), kind)


def write_parquet(path: Path, columns: dict[str, list], features: dict | None) -> Path:
    """A file as the hub's tools write it, with or without the description of its columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)
    return path


def write_labels(path: Path, feature: object, values: list, features: dict | None = None) -> Path:
    images = [{"bytes": picture(number), "path": f"{number}.png"} for number in range(len(values))]
    described = features if features is not None else {"image": {"_type": "Image"}, "labels": feature}
    return write_parquet(path, {"image": images, "labels": values}, described)


def test_three_states_splits_and_photos_survive(data, tmp_path):
    hf.write(data, tmp_path / "hub")
    again = hf.read(tmp_path / "hub", images_to=tmp_path / "again")

    assert again.classes == data.classes
    assert known_labels(again) == LABELS
    assert splits(again) == splits(data)
    for image in LABELS:
        assert (tmp_path / "again" / image).read_bytes() == (tmp_path / "photos" / image).read_bytes()


def test_the_folder_has_the_layout_of_the_hub(data, tmp_path):
    hf.write(data, tmp_path / "hub", shard_bytes=1)

    assert sorted(path.relative_to(tmp_path / "hub").as_posix() for path in (tmp_path / "hub").rglob("*.*")) == [
        "README.md",
        "data/test-00000-of-00001.parquet",
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/validation-00000-of-00001.parquet",
    ]
    assert "  - split: validation\n    path: data/validation-*.parquet\n" in (tmp_path / "hub/README.md").read_text()


def test_a_photo_that_is_missing_leaves_no_files(data, tmp_path):
    (tmp_path / "photos" / "d.png").unlink()
    with pytest.raises(Exception, match=r"d\.png"):
        hf.write(data, tmp_path / "hub", shard_bytes=1)
    assert not [path for path in (tmp_path / "hub").rglob("*") if path.is_file()]


def test_an_existing_dataset_is_not_mixed_with_another(data, tmp_path):
    hf.write(data, tmp_path / "hub")
    with pytest.raises(DatasetError, match="already holds Parquet files; write to another folder"):
        hf.write(data, tmp_path / "hub")


@pytest.mark.parametrize(
    "feature",
    [
        {"_type": "Sequence", "feature": CODED},
        {"_type": "List", "feature": CODED},
        {"_type": "LargeList", "feature": CODED},
        [CODED],
    ],
)
def test_lists_of_every_version(feature, tmp_path):
    write_labels(tmp_path / "hub/train.parquet", feature, [[0, 2], [], [-1]])
    read = hf.read(tmp_path / "hub", images_to=tmp_path / "photos", absent_means="unknown")
    assert known_labels(read) == {"0.png": {"cup": True, "fork": True}, "1.png": {}, "2.png": {}}


def test_one_class_per_photo_and_what_is_not_listed_is_absent(tmp_path):
    write_labels(tmp_path / "hub/train.parquet", CODED, [1, None])
    read = hf.read(tmp_path / "hub", images_to=tmp_path / "photos", absent_means="absent")
    assert known_labels(read)["0.png"] == {"cup": False, "spoon": True, "fork": False}


def test_names_without_a_description(tmp_path):
    columns = {"photo": [picture(0), picture(1, "JPEG")], "tags": [["cat", "dog"], None]}
    file = write_parquet(tmp_path / "photos.parquet", columns, None)
    read = hf.read(file, images_to=tmp_path / "photos", absent_means="unknown")
    assert known_labels(read) == {"train/00000000.png": {"cat": True, "dog": True}, "train/00000001.jpg": {}}


def test_arrow_files_that_save_to_disk_writes(tmp_path):
    table = pq.read_table(write_labels(tmp_path / "all.parquet", {"_type": "List", "feature": CODED}, [[0], [1]]))
    folder = tmp_path / "saved" / "validation"
    folder.mkdir(parents=True)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    read = hf.read(tmp_path / "saved", images_to=tmp_path / "photos", absent_means="unknown")
    assert set(splits(read).values()) == {"val"}
    assert known_labels(read)["1.png"] == {"spoon": True}


def test_photos_of_the_same_name_and_unsafe_names_get_names_of_their_own(tmp_path):
    images = [
        {"bytes": picture(seed), "path": path} for seed, path in enumerate(["a.png", "a.png", "a.png", "../b.png"])
    ]
    write_parquet(tmp_path / "hub/train.parquet", {"image": images, "labels": [["x"]] * 4}, None)
    read = hf.read(tmp_path / "hub", images_to=tmp_path / "photos", absent_means="unknown")
    assert read.names() == ["a.png", "train/a.png", "train/00000002.png", "train/00000003.png"]
    assert (tmp_path / "photos" / "train/a.png").read_bytes() == picture(1)
    assert not (tmp_path / "b.png").exists()


def test_absent_or_unknown_must_be_chosen(tmp_path):
    write_labels(tmp_path / "hub/train.parquet", {"_type": "List", "feature": CODED}, [[0]])
    with pytest.raises(
        DatasetError, match=r"'labels' does not list is absent or unknown; choose absent_means='absent'"
    ):
        hf.read(tmp_path / "hub", images_to=tmp_path / "photos")
    assert not (tmp_path / "photos").exists()


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ({"text": ["a"]}, {}, r"has no column of photos; name it with image_column="),
        ({"image": [b"x"], "number": [1.5]}, {}, r"has no column of labels; name it with label_column="),
        ({"image": [b"x"], "a": ["u"], "b": ["v"]}, {}, r"several columns that could hold labels: a, b; choose with"),
        ({"image": [b"x"], "a": ["u"]}, {"label_column": "c"}, r"has no column 'c'; it has image, a\."),
        ({"image": [b"x"], "a": ["u"]}, {"image_column": "a"}, r"column 'a' does not hold photos"),
        ({"image": [b"x"], "a": ["u"]}, {}, r"photo 0 of train is not a JPEG, PNG or WebP file"),
        (
            {"image": [{"bytes": None, "path": "x.jpg"}], "a": ["u"]},
            {},
            r"the file x\.jpg, which does not exist",
        ),
        ({"image": [{"bytes": None, "path": None}], "a": ["u"]}, {}, r"photo 0 of train has neither bytes nor a file"),
    ],
)
def test_what_cannot_be_read_is_named(columns, options, sentence, tmp_path):
    write_parquet(tmp_path / "hub/train.parquet", columns, None)
    with pytest.raises(DatasetError, match=sentence):
        hf.read(tmp_path / "hub", images_to=tmp_path / "photos", absent_means="unknown", **options)


def test_a_class_without_a_name_is_named(tmp_path):
    write_labels(tmp_path / "hub/train.parquet", {"_type": "List", "feature": CODED}, [[7]])
    with pytest.raises(DatasetError, match=r"'labels' has the class 7, but only 0 to 2 have names"):
        hf.read(tmp_path / "hub", images_to=tmp_path / "photos", absent_means="unknown")


def test_a_damaged_file_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(DatasetError, match="has no Parquet or Arrow files"):
        hf.read(tmp_path, images_to=tmp_path / "photos")
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DatasetError, match=r"train\.parquet cannot be read"):
        hf.read(tmp_path, images_to=tmp_path / "photos")
