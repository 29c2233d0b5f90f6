"""PASCAL VOC as it is published: 1-based boxes, marks with two columns, parts of people, palette masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("aeroplane", "cat", "person")
OBJECT = """
	<object>
		<name>{label}</name>
		<pose>Unspecified</pose>
		<truncated>{truncated}</truncated>
		<occluded>{occluded}</occluded>
		<bndbox>
			<xmin>{box[0]}</xmin>
			<ymin>{box[1]}</ymin>
			<xmax>{box[2]}</xmax>
			<ymax>{box[3]}</ymax>
		</bndbox>
		<difficult>{difficult}</difficult>
		<part>
			<name>head</name>
			<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>
		</part>
	</object>"""
PHOTO = """<annotation>
	<folder>VOC2012</folder>
	<filename>{identity}.jpg</filename>
	<source><database>The VOC2008 Database</database></source>
	<size><width>{width}</width><height>{height}</height><depth>3</depth></size>
	<segmented>0</segmented>{objects}
</annotation>
"""


def thing(label: str, box: tuple[float, ...], *, difficult: int = 0, truncated: int = 0, occluded: int = 0) -> str:
    """An object of an XML file."""
    return OBJECT.format(label=label, box=box, difficult=difficult, truncated=truncated, occluded=occluded)


def photo(folder: Path, identity: str, *things: str, width: int = 200, height: int = 100) -> Path:
    """An XML file."""
    path = folder / "Annotations" / f"{identity}.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = PHOTO.format(identity=identity, width=width, height=height, objects="".join(things))
    path.write_text(text, encoding="utf-8")
    return path


def marks(folder: Path, split: str, table: dict[str, tuple[int, ...]]) -> None:
    """The lists of a split; `table` has the mark of each class for each image."""
    image_list(folder, split, *table)
    for number, label in enumerate(CLASSES):
        lines = [f"{identity} {values[number]:2d}\n" for identity, values in table.items()]
        (folder / "ImageSets" / "Main" / f"{label}_{split}.txt").write_text("".join(lines), encoding="utf-8")


def image_list(folder: Path, split: str, *identities: str) -> None:
    main = folder / "ImageSets" / "Main"
    main.mkdir(parents=True, exist_ok=True)
    (main / f"{split}.txt").write_text("".join(f"{identity}\n" for identity in identities), encoding="utf-8")


def mask(folder: Path, kind: str, identity: str, pixels: np.ndarray) -> None:
    """A palette image in SegmentationClass or SegmentationObject."""
    path = folder / kind / f"{identity}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels.astype(np.uint8))
    image.putpalette([value for number in range(256) for value in (number, 0, 255 - number)])
    image.save(path)


def write(base: Path) -> Path:
    """Three images: one plain, one with a difficult-only class, one for val; returns VOC2012."""
    folder = base / "VOCdevkit" / "VOC2012"
    photo(folder, "2008_000008", thing("person", (101, 51, 200, 100), truncated=1), thing("cat", (1, 1, 50, 25)))
    photo(
        folder,
        "2007_000027",
        thing("cat", (1, 1, 100, 100), difficult=1),
        thing("aeroplane", (21, 11, 40, 20)),
        thing("aeroplane", (51, 11, 70, 20), difficult=1, occluded=1),
    )
    photo(folder, "2011_003271", thing("person", (1, 1, 200, 100)))
    marks(folder, "train", {"2008_000008": (-1, 1, 1), "2007_000027": (1, 0, -1)})
    marks(folder, "val", {"2011_003271": (-1, -1, 1)})
    return folder
