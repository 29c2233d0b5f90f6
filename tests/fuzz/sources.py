"""Formats under test: of each reader one small valid source or several, and which of its files are of which kind."""

from __future__ import annotations

import csv
import functools
import io
import json
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from formats.layouts import (
    cifar100,
    coco,
    coco_panoptic,
    cub,
    cvat,
    fiftyone,
    imagenet,
    label_studio,
    lvis,
    nus_wide,
    objects365,
    openimages,
    voc,
    yolo,
)
from formats.layouts.pictures import write_picture
from fuzz.mutations import File
from fuzz.trees import Tree, read_tree
from tagfill import formats
from tagfill.dataset import Dataset
from tagfill.errors import TagfillWarning


@dataclass(frozen=True)
class Source:
    """A valid source of a format.

    Attributes:
        format: its name.
        write: puts the files into a folder.
        files: those whose content is changed.
        given: what to read below the folder; the folder itself unless given.
        options: of the reader.
        output: the option that names a folder for what the reader writes, if it writes something.
    """

    format: str
    write: Callable[[Path], Any]
    files: tuple[File, ...] = ()
    given: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    output: str | None = None

    @functools.cached_property
    def tree(self) -> Tree:
        """The files of the source."""
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder))
            return read_tree(Path(folder))

    def read(self, folder: Path, output: Path) -> Dataset:
        """Read what is in a folder."""
        options = self.options | ({self.output: output} if self.output else {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TagfillWarning)
            dataset: Dataset = formats.get(self.format).read(folder / self.given, **options)
        return dataset


def _cifar100_binary(folder: Path) -> None:
    cifar100.write_binary(folder)


def _coco(folder: Path) -> None:
    annotations = [
        coco.polygons(7, 9, 13, coco.TRIANGLE),
        coco.crowd(8, 9, 1),
        coco.polygons(10, 25, 1, coco.SQUARE, coco.TRIANGLE),
    ]
    coco.write(folder, [coco.image(9), coco.image(25), coco.image(30)], annotations)


def _panoptic(folder: Path) -> None:
    segments = [coco_panoptic.segment(5, 17, [1, 2, 30, 40]), coco_panoptic.segment(6, 200, [0, 0, 100, 80], 1)]
    annotations = [coco_panoptic.annotation(9, *segments), coco_panoptic.annotation(25)]
    coco_panoptic.write(folder, "val", [coco_panoptic.image(9), coco_panoptic.image(25)], annotations)


def _csv(folder: Path) -> None:
    rows = ['"a, b.jpg","say ""hi""",1,val', "007.jpg,cat,0,train", "007.jpg,012,1,train", "008.jpg,cat,,train"]
    lines = ["image,label,value,split", *rows, "009.jpg,,,test"]
    (folder / "labels.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _parquet(folder: Path) -> None:
    _csv(folder)
    text = (folder / "labels.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    pq.write_table(pa.table(dict(zip(header, zip(*rows, strict=True), strict=True))), folder / "labels.parquet")
    (folder / "labels.csv").unlink()


def _cvat(folder: Path) -> None:
    shapes = (
        '<tag label="cat" source="manual"><attribute name="present">true</attribute></tag>'
        '<tag label="dog" source="manual"><attribute name="present">false</attribute></tag>\n'
        '<box label="cat" occluded="1" xtl="10.5" ytl="20" xbr="30" ybr="40" z_order="0">'
        '<attribute name="truncated">true</attribute></box>\n',
        '<polygon label="cat" occluded="0" points="10,10;50,10;10,40" z_order="0"></polygon>\n'
        '<points label="bird" occluded="0" points="3.5,4;5,6" z_order="0"></points>\n'
        '<mask label="cat" occluded="0" rle="1,2,1" left="3" top="4" width="2" height="2" z_order="0"></mask>\n',
        "",
    )
    images = {f"{number}.jpg": text for number, text in enumerate(shapes)}
    cvat.write_cvat(folder / "annotations.xml", ["cat", "dog"], images)


def _fiftyone(folder: Path) -> None:
    states = [fiftyone.label("cat", state="present"), fiftyone.label("dog", state="absent", confidence=1.0)]
    box = fiftyone.label("cat", kind="Detection", bounding_box=[0.1, 0.2, 0.5, 0.5], confidence=0.5)
    fiftyone.write_export(
        folder,
        fiftyone.sample("data/1.jpg", "train", ground_truth=fiftyone.classifications(*states), number=1),
        fiftyone.sample("data/2.jpg", "val", ground_truth=None, boxes=fiftyone.detections(box), number=2),
        fiftyone.sample("data/3.jpg", split="rest", ground_truth=fiftyone.label("bird", state="unknown"), number=3),
        classes={"ground_truth": ["cat", "dog", "bird"]},
    )


def _folder(folder: Path) -> None:
    for name in ("train/cat/1.jpg", "train/cat/old/2.png", "train/dog/1.jpg", "val/dog/3.JPG"):
        write_picture(folder / name)
    (folder / "train" / "none").mkdir()


def _imagenet(folder: Path) -> None:
    imagenet.write_imagenet(folder, [[0], [0, 2], [], [1]])


def _label_studio(folder: Path) -> None:
    choices = label_studio.result("choices", {"choices": ["cat", "dog"]})
    absent = label_studio.result("choices", {"choices": ["bird"]}, control="absent", identity="b")
    box = {"x": 10, "y": 20.5, "width": 30, "height": 40, "rotation": 0, "rectanglelabels": ["cat"]}
    turned = {"x": 40, "y": 20, "width": 10, "height": 20, "rotation": 30, "rectanglelabels": ["dog"]}
    point = {"x": 10, "y": 20, "width": 0.5, "keypointlabels": ["bird"]}
    polygon = {"points": [[10, 10], [50, 10], [10, 40]], "polygonlabels": ["cat"]}
    regions = [
        label_studio.result(next(key for key in value if key.endswith("labels")), value, identity=f"r{number}")
        for number, value in enumerate((box, turned, point, polygon))
    ]
    label_studio.write_export(
        folder / "export.json",
        label_studio.task("/data/upload/1.jpg", label_studio.annotation(choices, absent)),
        label_studio.task("s3://photos/2.jpg", label_studio.annotation(*regions), number=2),
        label_studio.task("3.jpg", label_studio.annotation(choices, was_cancelled=True), number=3),
    )


def _lvis(folder: Path) -> None:
    images = [lvis.image(9, absent=(2, 5), partly=(1,)), lvis.image(25), lvis.image(30, absent=(9,))]
    lvis.write(folder, "lvis_v1_train", images, [lvis.polygon(1, 9, 1), lvis.polygon(2, 25, 9)])


def _nus_wide_images() -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    return {"actor/0001_2124494179.jpg": (1, 0, 1), "actor/0002_17.jpg": (0, 0, 0)}, {"zebra/0003_1.jpg": (0, 1, 0)}


def _nus_wide_official(folder: Path) -> None:
    train, test = _nus_wide_images()
    nus_wide.write_official(folder, {"Train": train, "Test": test})
    (folder / "Concepts81.txt").write_text("".join(f"{name}\n" for name in nus_wide.CONCEPTS))


def _nus_wide_arrays(folder: Path) -> None:
    train, val = _nus_wide_images()
    nus_wide.write_arrays(folder, {"train": train, "val": val})


def _nus_wide_list(folder: Path) -> None:
    (folder / "Concepts81.txt").write_text("".join(f"{name}\n" for name in nus_wide.CONCEPTS))
    (folder / "list.txt").write_text("actor/1.jpg 0 2\nactor/2.jpg\nzebra/3.jpg 1\n")


def _objects365(folder: Path) -> None:
    boxes = [objects365.box(1, 4, 1, [10.5, 20, 300, 400]), objects365.box(2, 8, 3, [0, 0, 9, 9], isfake=1)]
    objects365.write(folder, "val", [objects365.image(4), objects365.image(8), objects365.image(15)], boxes)


def _tags(folder: Path) -> None:
    lines = [
        "file;keywords;split;complete",
        "007.jpg;cat, dog;train;",
        '"8;b.jpg";dog;val;1',
        "009.jpg;cat;train;0",
        "10.jpg;;train;",
    ]
    (folder / "tags.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _tags_per_row(folder: Path) -> None:
    lines = ["image,tag,value", "007.jpg,cat,1", "007.jpg,dog,0", '"8, b.jpg",dog,1', "009.jpg,cat,"]
    (folder / "rows.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _hf(folder: Path) -> None:
    named = {"_type": "ClassLabel", "names": ["cat", "dog"]}
    features = {"image": {"_type": "Image"}, "labels": {"feature": named, "_type": "List"}}
    for split, numbers in {"train": (7, 8), "validation": (9,)}.items():
        with tempfile.TemporaryDirectory() as photos:
            paths = [Path(photos, f"{number}.png") for number in numbers]
            for path in paths:
                write_picture(path)
            images = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
        table = pa.table({"image": images, "labels": [[number % 2] for number in numbers]})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        (folder / "data").mkdir(exist_ok=True)
        pq.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")


def _tags_parquet(folder: Path) -> None:
    columns = {"photo": ["007.jpg", "8.jpg", "9.jpg"], "labels": [["cat", "dog"], [], None]}
    pq.write_table(pa.table(columns), folder / "tags.parquet")


def _voc_archive(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(folder / "voc.tar", "w") as archive:
        voc.write(Path(unpacked))
        archive.add(Path(unpacked) / "VOCdevkit", "VOCdevkit")


def _voc_without_lists(folder: Path) -> None:
    voc.write(folder)
    main = folder / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    for path in main.glob("*_*.txt"):
        path.unlink()


def _wide_csv(folder: Path) -> None:
    lines = ["image,split,cup,spoon", "007.jpg,train,1,", "008.jpg,train,0,1", '"9, b.jpg",val,,0']
    (folder / "wide.csv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _yolo(folder: Path) -> None:
    labels = {
        "train/1": "0 0.5 0.5 0.25 0.5\n1 0.1 0.2 0.1 0.1\n",
        "train/2": "",
        "val/3": "1 0.25 0.25 0.75 0.25 0.75 0.5\n",
        "val/4": None,
    }
    yolo.write_yolo(folder, labels)


_V5 = "train-annotations-human-imagelabels-boxable.csv"
_VOC = "VOCdevkit/VOC2012"
_XML = tuple(File(f"{_VOC}/Annotations/{name}.xml", "xml") for name in ("2008_000008", "2007_000027"))
_JSON_ABSENT = {"absent_means": "absent"}

_ALL = (
    Source(
        "cifar100",
        _cifar100_binary,
        (File("train.bin", "records"), File("fine_label_names.txt", "lines"), File("coarse_label_names.txt", "lines")),
        output="images_to",
    ),
    Source("coco", _coco, (File("annotations/instances_train2014.json", "json"),), options={"images": "all"}),
    Source(
        "coco-panoptic",
        _panoptic,
        (File("annotations/panoptic_val2017.json", "json"),),
        options={"images": "all"},
    ),
    Source("csv", _csv, (File("labels.csv", "csv"),), "labels.csv"),
    Source("csv", _parquet, (File("labels.parquet", "binary"),), "labels.parquet"),
    Source(
        "cub",
        lambda folder: cub.write_cub(folder / "CUB_200_2011"),
        (
            File("attributes.txt", "lines", unordered=True),
            File("CUB_200_2011/images.txt", "lines", unordered=True),
            File("CUB_200_2011/train_test_split.txt", "lines", unordered=True, counted=True),
            File("CUB_200_2011/attributes/image_attribute_labels.txt", "lines", unordered=True, counted=True),
        ),
    ),
    Source("cvat", _cvat, (File("annotations.xml", "xml"),)),
    Source("fiftyone", _fiftyone, (File("samples.json", "json"), File("metadata.json", "json"))),
    Source("folder", _folder, options=_JSON_ABSENT),
    Source(
        "hf",
        _hf,
        (File("data/train-00000-of-00001.parquet", "binary"), File("data/validation-00000-of-00001.parquet", "binary")),
        options=_JSON_ABSENT,
        output="images_to",
    ),
    Source("imagenet", _imagenet, (File("real.json", "json"),), options={"absent_means": "unknown"}),
    Source("label-studio", _label_studio, (File("export.json", "json"),), "export.json"),
    Source("lvis", _lvis, (File("lvis_v1_train.json", "json"),)),
    Source(
        "nus-wide",
        _nus_wide_official,
        (
            File("ImageList/TrainImagelist.txt", "lines"),
            File("Groundtruth/TrainTestLabels/Labels_beach_Train.txt", "lines", counted=True),
            File("Concepts81.txt", "lines", counted=True),
        ),
    ),
    Source(
        "nus-wide",
        _nus_wide_arrays,
        (
            File("formatted_train_images.npy", "binary"),
            File("formatted_train_labels.npy", "binary"),
            File("Concepts81.txt", "lines"),
        ),
    ),
    Source("nus-wide", _nus_wide_list, (File("list.txt", "lines", unordered=True),), "list.txt", _JSON_ABSENT),
    Source("objects365", _objects365, (File("zhiyuan_objv2_val.json", "json"),), options={"images": "all"}),
    Source(
        "openimages",
        openimages.v3,
        (
            File("2017_11/train/annotations-human.csv", "csv"),
            File("2017_11/classes-trainable.txt", "lines"),
            File("2017_11/class-descriptions.csv", "lines"),
        ),
    ),
    Source(
        "openimages",
        openimages.v5,
        (
            File(_V5, "csv"),
            File("train-annotations-bbox.csv", "csv"),
            File("class-descriptions-boxable.csv", "lines"),
            File("bbox_labels_600_hierarchy.json", "json"),
        ),
    ),
    Source("tags", _tags, given="tags.csv"),
    Source("tags", _tags_per_row, (File("rows.csv", "csv"),), "rows.csv"),
    Source("tags", _tags_parquet, (File("tags.parquet", "binary"),), "tags.parquet"),
    Source(
        "voc",
        voc.write,
        (
            File(f"{_VOC}/ImageSets/Main/train.txt", "lines", unordered=True, counted=True),
            File(f"{_VOC}/ImageSets/Main/cat_train.txt", "lines", unordered=True, counted=True),
            *_XML,
        ),
    ),
    Source("voc", _voc_without_lists, (File(f"{_VOC}/ImageSets/Main/train.txt", "lines", unordered=True), *_XML)),
    Source("voc", _voc_archive, (File("voc.tar", "archive"),), "voc.tar", output="extract_to"),
    Source("wide-csv", _wide_csv, (File("wide.csv", "csv"),), "wide.csv"),
    Source(
        "yolo",
        _yolo,
        (
            File("data.yaml", "yaml", unordered=True),
            File("labels/train/1.txt", "lines", unordered=True),
            File("labels/val/3.txt", "lines", unordered=True),
        ),
        options={"polygons": "mask"},
    ),
)
SOURCES = {name: [source for source in _ALL if source.format == name] for name in formats.FORMATS}
