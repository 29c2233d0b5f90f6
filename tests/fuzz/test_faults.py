"""Faults that `make fuzz` found, one case each: a file with one place changed, and what must be made of it."""

from __future__ import annotations

import json
import tarfile

import pytest

from fuzz.promises import meaning
from fuzz.sources import SOURCES, Source
from fuzz.test_readers import assert_clear, outcome
from fuzz.trees import Tree
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

MARK = b"\xef\xbb\xbf"
DEEP = b"[" * 3000 + b"]" * 3000
COCO, LVIS, STUDIO = "annotations/instances_train2014.json", "lvis_v1_train.json", "export.json"
LABELS = "CUB_200_2011/attributes/image_attribute_labels.txt"
MAIN, XML = "VOCdevkit/VOC2012/ImageSets/Main", "VOCdevkit/VOC2012/Annotations/2008_000008.xml"
CLASSES, NAMES = "2017_11/classes-trainable.txt", "2017_11/class-descriptions.csv"


def with_change(source: Source, path: str, old: bytes, new: bytes) -> Tree:
    content = source.tree[path]
    assert isinstance(content, bytes)
    assert old in content
    return {**source.tree, path: content.replace(old, new, 1)}


@pytest.mark.parametrize(
    ("format_name", "path", "old", "new"),
    [
        ("coco", COCO, b"{", MARK + b"{"),
        ("csv", "labels.csv", b"train\n", b"train\r"),
        ("cub", LABELS, b"1 1 0 3", b"1\t1  0 3"),
        ("cub", "CUB_200_2011/images.txt", b"1 ", b"1  "),
        ("cvat", "annotations.xml", b"<name>cat<", b"<name> cat\n<"),
        ("openimages", CLASSES, b"/m", MARK + b"/m"),
        ("openimages", CLASSES, b"/m/01yrx\n", b"/m/01yrx\n/m/01yrx\n"),
        ("openimages", NAMES, b"/m", MARK + b"/m"),
        ("openimages", NAMES, b"Cat", b"Cat "),
        ("voc", f"{MAIN}/train.txt", b"2008", MARK + b"2008"),
        ("voc", f"{MAIN}/train.txt", b"\n", b"\r"),
        ("voc", XML, b".jpg<", b".jpg\n<"),
        ("wide-csv", "wide.csv", b"train,1,\n", b"train,1,\r"),
    ],
)
def test_changes_without_meaning_change_nothing(format_name, path, old, new):
    source = SOURCES[format_name][0]
    clean, found = outcome(source, source.tree), outcome(source, with_change(source, path, old, new))
    assert isinstance(clean, Dataset)
    assert isinstance(found, Dataset), found
    assert meaning(found) == meaning(clean)


@pytest.mark.parametrize(
    ("format_name", "path", "old", "new", "message"),
    [
        ("coco", COCO, b'"licenses": [', b'"images": [], "licenses": [', 'has "images" twice'),
        ("coco", COCO, b"}]}", b"}]} {}", "not valid JSON between its lists"),
        ("coco", COCO, b'"iscrowd": 0', b'"iscrowd": "0"', 'its iscrowd is "0", which is neither 0 nor 1'),
        ("coco", COCO, b'"bbox": [10.0,', b'"bbox": [1e308,', "its bbox is not a list of left, top"),
        ("coco", COCO, b'"width": 100', b'"width": true', "a width of true"),
        ("coco", COCO, b'"width": 100', b'"width": 100.5', "a whole number of pixels"),
        ("coco", COCO, b'"width": 100', b'"width": 4294967296', "a width of 4294967296"),
        ("coco", COCO, b'"version": "1.0"', b'"version": ' + DEEP, "lists inside lists"),
        ("coco", COCO, b'"name": "person"', b'"name": ""', "a class is called ''"),
        ("coco", COCO, b'"size": [80, 100]', b'"size": [1099511627776, 1099511627776]', "is too large"),
        ("lvis", LVIS, b'"coco_url": "http', b'"coco_url": 5, "x": "http', "a coco_url of 5, which is not text"),
        ("csv", "labels.csv", b"008.jpg,cat", b'008.jpg,"cat', "an unreadable row"),
        ("csv", "labels.csv", b"label,value", b"label,label", "two columns 'label'"),
        ("cub", LABELS, b"2 2 0 1 5.9600\n", b"", "has no line for attribute 2 of image 2"),
        ("cub", LABELS, b"2 2 0", b"9" * 5000 + b" 2 0", "a whole number is expected"),
        ("cvat", "annotations.xml", b'xtl="10.5"', b'xtl="nan"', "'nan' is not a length"),
        ("cvat", "annotations.xml", b'occluded="1"', b'occluded="yes"', "0 or 1 is expected"),
        ("cvat", "annotations.xml", b'encoding="utf-8"', b'encoding="no-such"', "is not valid XML"),
        ("imagenet", "real.json", b"[[", DEEP * 40 + b"[[", "not valid JSON"),
        ("label-studio", STUDIO, b'"choices": ["cat", "dog"]', b'"choices": "cat"', "not a list of names"),
        ("label-studio", STUDIO, b'"was_cancelled": true', b'"was_cancelled": "true"', "true or false is expected"),
        ("label-studio", STUDIO, b'"lead_time": 4.5', b'"lead_time": "4.5"', "a number of seconds is expected"),
        ("label-studio", STUDIO, b'"result": [{', b'"result": [5, {', "a list of objects is expected"),
        ("label-studio", STUDIO, b'"original_width": 200', b'"original_width": 0', "whose original size is [0, 100]"),
        ("label-studio", STUDIO, b"s3://photos", b"http://[", "is not the URL of an image"),
        ("label-studio", STUDIO, b'"2021-03-09T22:16:08.728378Z"', b'"0001-01-01T00:00+14:00"', "is not a time"),
        ("label-studio", STUDIO, b'"image": "3.jpg"', b'"image": "3.jpg", "split": 5', "a split of 5"),
        ("label-studio", STUDIO, b"[50, 10]", b"[50, 50, 10]", "cannot be read"),
        ("label-studio", STUDIO, b'"points": [[10, 10], [50, 10], [10, 40]]', b'"points": [[]]', "cannot be read"),
        ("nus-wide", "Concepts81.txt", b"beach\n", b"", "has labels of beach, which Concepts81.txt does not list"),
        (
            "nus-wide",
            "Concepts81.txt",
            b"beach\n",
            b"beach\n" + b"9" * 5000 + b"\n",
            "cannot be read (File name too long)",
        ),
        ("openimages", CLASSES, b"/m/01yrx", b"/m/01yr\xff", "bytes that are not UTF-8"),
        ("openimages", NAMES, b"/m/0bt9lr,Dog", b"/m/01yrx,Dog", "another name of class /m/01yrx"),
        ("voc", f"{MAIN}/cat_train.txt", b"1\n", b"1\n2008_000008 -1\n", "image 2008_000008 again"),
        ("voc", XML, b"<difficult>0", b"<difficult>yes", "which is neither 0 nor 1"),
        ("voc", XML, b"<width>200", b"<width>99999999999", "a whole number of pixels"),
        ("voc", f"{MAIN}/train.txt", b"2008_000008", b"9" * 5000, "cannot be read (File name too long)"),
        ("wide-csv", "wide.csv", b"split", b"9" * 5000, "found 'train' in column '999"),
        ("yolo", "labels/train/1.txt", b"1 0.1", b"9" * 5000 + b" 0.1", ", but data.yaml names 2"),
        ("yolo", "data.yaml", b"train: images/train", b"train: images/train\n\n 2", "but there is no such file"),
        ("yolo", "data.yaml", b"nc: 2", b"nc: 2001-99-99", "is not valid YAML"),
        ("yolo", "data.yaml", b"train: images/train", b"train: 5", "a folder, a file or a list of them is expected"),
        ("yolo", "data.yaml", b"train: images/train", b"train: labels/train/1.txt", "correct the path"),
    ],
)
def test_what_cannot_be_read_is_refused(format_name, path, old, new, message):
    source = SOURCES[format_name][0]
    found = outcome(source, with_change(source, path, old, new))
    assert isinstance(found, TagfillError)
    assert message in str(found)
    assert_clear(str(found))


def test_a_tagged_hierarchy_is_read_with_a_mark():
    source = SOURCES["openimages"][1]
    path = "bbox_labels_600_hierarchy.json"
    marked = outcome(source, with_change(source, path, b"{", MARK + b"{"))
    assert isinstance(marked, Dataset)
    assert marked.hierarchy
    deep = outcome(source, {**source.tree, path: DEEP * 40})
    assert "is not valid JSON" in str(deep)


def test_files_of_the_finder_are_no_class():
    source = SOURCES["voc"][0]
    found = outcome(source, {**source.tree, f"{MAIN}/._cat_train.txt": b"\0\x05\xff"})
    assert isinstance(found, Dataset)
    assert found.classes == ("aeroplane", "cat", "person")


def test_an_archive_cut_between_two_files_is_refused(tmp_path):
    source = SOURCES["voc"][2]
    content = source.tree["voc.tar"]
    assert isinstance(content, bytes)
    (tmp_path / "voc.tar").write_bytes(content)
    with tarfile.open(tmp_path / "voc.tar") as archive:
        last = archive.getmembers()[-1]
    cut = outcome(source, {"voc.tar": content[: last.offset]})
    damaged = outcome(source, {"voc.tar": content[: last.offset] + b"x" * 512 + content[last.offset + 512 :]})
    assert "cut off or damaged" in str(cut)
    assert "cut off or damaged" in str(damaged)


def test_damaged_arrays_are_refused():
    source, path = SOURCES["nus-wide"][1], "formatted_train_images.npy"
    header = outcome(source, with_change(source, path, b"{'descr'", b"{'descr\n"))
    name = outcome(source, with_change(source, path, "actor".encode("utf-32-le"), b"\xff" * 20))
    assert "cannot be read as an array" in str(header)
    assert "is not text" in str(name)


def test_a_damaged_parquet_file_is_refused():
    source, path = SOURCES["csv"][1], "labels.parquet"
    content = source.tree[path]
    assert isinstance(content, bytes)
    assert "cannot be read as Parquet" in str(outcome(source, {path: content[:8] + b"\xff" * 40 + content[48:]}))


def test_one_image_of_two_tasks_belongs_to_one_split():
    source = SOURCES["label-studio"][0]
    content = source.tree[STUDIO]
    assert isinstance(content, bytes)
    tasks = json.loads(content)
    tasks[0]["data"]["split"] = "val"
    tasks.append({**tasks[0], "data": {**tasks[0]["data"], "split": "test"}})
    found = outcome(source, {STUDIO: json.dumps(tasks).encode()})
    assert "an image belongs to one split" in str(found)
