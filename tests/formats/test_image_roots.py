"""Image roots that are URLs: kept by readers, and refused by writers that need the files."""

from __future__ import annotations

import pytest

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records
from tagfill.errors import DatasetError
from tagfill.formats import coco, csv, cvat, folder, wide_csv, yolo
from tagfill.io import write_json

URL = "https://host/photos/"


def remote() -> Dataset:
    images = from_records([{"image": "a.jpg", "split": "train"}], IMAGES_SCHEMA)
    rows = [{"image": "a.jpg", "label": "cat", "present": True}, {"image": "a.jpg", "label": "pet", "present": True}]
    return Dataset("pets", URL, ("cat", "pet"), images, from_records(rows), hierarchy=(("cat", "pet"),))


@pytest.mark.parametrize("module", [csv, wide_csv])
def test_tables_keep_the_url_of_their_images(tmp_path, module):
    module.write(remote(), tmp_path / "table.csv")

    assert module.read(tmp_path / "table.csv", root=URL, absent_means="unknown").root == URL


def test_coco_keeps_the_url_of_its_images(tmp_path):
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5]}
    image = {"id": 1, "file_name": "a.jpg", "width": 10, "height": 10}
    content = {"images": [image], "annotations": [box], "categories": [{"id": 1, "name": "cat"}]}
    write_json(tmp_path / "annotations" / "instances_train.json", content)

    data = coco.read(tmp_path, root=URL)

    assert (data.root, data.names()) == (URL, ["a.jpg"])


@pytest.mark.parametrize(
    ("module", "options", "purpose"),
    [
        (folder, {"several": "repeat"}, "images='copy'"),
        (folder, {"several": "repeat", "images": "link"}, "images='link'"),
        (yolo, {"without_box": "whole"}, "images='copy'"),
        (cvat, {}, r"The size of a\.jpg"),
    ],
)
def test_a_writer_that_needs_the_files_says_so_and_writes_nothing(tmp_path, module, options, purpose):
    target = tmp_path / "out" / "annotations.xml" if module is cvat else tmp_path / "out"

    with pytest.raises(DatasetError, match=f"{purpose}.* needs image files on this machine, .* is {URL}; download"):
        module.write(remote(), target, **options)

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_labels_alone_need_no_files(tmp_path):
    yolo.write(remote(), tmp_path, images="none", without_box="whole")

    assert (tmp_path / "labels" / "train" / "a.txt").read_text().splitlines() == ["0 0.5 0.5 1 1", "1 0.5 0.5 1 1"]
