"""The elements of an XML file of CVAT: images with their shapes, one at a time, whatever the size of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tagfill.errors import DatasetError
from tagfill.formats import image_files, text_files
from tagfill.progress import Progress

_CHUNK = 1 << 18
_LONGEST_SIDE = 2**31 - 1
_SHAPES = ("tag", "box", "points", "polygon", "mask")
_LEFT_OUT = ("polyline", "cuboid", "ellipse", "skeleton")


@dataclass
class Shape:
    """An annotation: the kind and attributes of its element, and the attributes that its label has in CVAT."""

    kind: str
    attributes: dict[str, str]
    more: dict[str, str] = field(default_factory=dict)


@dataclass
class Image:
    """An image and everything drawn in it."""

    name: str
    subset: str | None
    width: int
    height: int
    shapes: list[Shape] = field(default_factory=list)


class Target:
    """Receives the elements of the file from the parser; finished images wait in `images`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images: list[Image] = []
        self.labels: list[str] = []
        self.left_out: Counter[str] = Counter()
        self._open: list[str] = []
        self._image: Image | None = None
        self._shape: Shape | None = None
        self._attribute = ""
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        if not self._open and tag != "annotations":
            raise DatasetError(f"{self.path} begins with <{tag}>, not with <annotations>; it is no file of CVAT.")
        if tag == "track":
            raise DatasetError(f"{self.path} is of a video; export the task as 'CVAT for images 1.1'.")
        if tag == "image":
            self._image = self._read_image(attributes)
        elif self._image is not None and tag in _SHAPES and self._shape is None:
            if "label" not in attributes:
                raise DatasetError(f"{self.path}, image {self._image.name}: a {tag} has no label; mend it.")
            self._shape = Shape(tag, attributes)
        elif self._image is not None and tag in _LEFT_OUT:
            self.left_out[tag] += 1
        elif tag == "attribute":
            self._attribute = attributes.get("name", "")
        self._open.append(tag)
        self._text = []

    def end(self, tag: str) -> None:
        """An element ends."""
        text = "".join(self._text).strip()
        self._open.pop()
        if tag == "image" and self._image is not None:
            self.images.append(self._image)
            self._image = None
        elif self._shape is not None and tag == "attribute":
            self._shape.more[self._attribute] = text
        elif self._shape is not None and self._image is not None and tag == self._shape.kind:
            self._image.shapes.append(self._shape)
            self._shape = None
        elif tag == "name" and self._open[-1:] == ["label"]:
            self.labels.append(text)
        self._text = []

    def data(self, text: str) -> None:
        """Text within an element, perhaps not all of it."""
        self._text.append(text)

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Refused: a document type can define entities that grow without bounds."""
        raise DatasetError(f"{self.path} declares a document type, which files of CVAT never do; it is not read.")

    def close(self) -> None:
        """Nothing is left to do."""

    def _read_image(self, attributes: dict[str, str]) -> Image:
        name = attributes.get("name", "")
        image_files.check_name(name, str(self.path))
        try:
            width, height = int(attributes["width"]), int(attributes["height"])
        except (KeyError, ValueError):
            width = height = 0
        if not (0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE):
            raise DatasetError(f"{self.path}, image {name}: its width and height are not whole numbers above 0.")
        return Image(name, attributes.get("subset"), width, height)


def images(path: Path, progress: Progress, target: Target | None = None) -> Iterator[Image]:
    """The images of a file, one at a time."""
    target = target or Target(path)
    parser = ElementTree.XMLParser(target=target)
    size = text_files.needed(path, "annotations of CVAT").stat().st_size
    try:
        with path.open("rb") as file, progress.bar(f"Reading {path.name}", size, "B") as bar:
            while chunk := file.read(_CHUNK):
                parser.feed(chunk)
                yield from target.images
                target.images.clear()
                bar.advance(len(chunk))
            parser.close()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two for encodings
        raise DatasetError(f"{path} is not valid XML ({error}); export it anew.") from None
