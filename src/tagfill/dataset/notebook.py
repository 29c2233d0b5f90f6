"""A dataset in a notebook: its images one by one, with pictures, and as a data frame.

Photos are read when they are shown, so this module imports `tagfill.images` inside functions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagfill.errors import DatasetError, TagfillError
from tagfill.labels import NEGATIVE, POSITIVE, LabelMatrix

if TYPE_CHECKING:
    import pandas
    import polars
    from PIL import Image

    from tagfill.dataset.dataset import Dataset
    from tagfill.images.notebook import Tile

_MANY_ROWS = 5_000_000  # annotations that a display does not count by itself
_MANY_BYTES = 100 * 2**20
_SHOWN_CLASSES = 20
_RECORD_SIDE = 256  # of the photo of one image, in CSS pixels


@dataclass(frozen=True)
class ImageRecord:
    """An image of a dataset and what is known about it.

    Attributes:
        image: path below the image root, the image's identity.
        split: it belongs to.
        root: the image root.
        tags: classes that are known to be present.
        absent: classes that are known to be absent; all others are unknown.
        width: in pixels, if the dataset states it.
        height: in pixels, if the dataset states it.

    >>> record = ImageRecord("a.jpg", "train", Path("photos"), ("cat",), ("dog",))
    >>> record.labels, record.path.as_posix()
    ({'cat': True, 'dog': False}, 'photos/a.jpg')
    """

    image: str
    split: str
    root: Path | str
    tags: tuple[str, ...]
    absent: tuple[str, ...]
    width: int | None = None
    height: int | None = None

    @property
    def path(self) -> Path | str:
        """Where the image is: its path, or its URL as text; in an archive, its name after the path of the archive."""
        return f"{self.root.rstrip('/')}/{self.image}" if isinstance(self.root, str) else self.root / self.image

    @property
    def labels(self) -> dict[str, bool]:
        """The known labels: whether each is present."""
        return {**dict.fromkeys(self.tags, True), **dict.fromkeys(self.absent, False)}

    def open(self) -> Image.Image:
        """Read the image: upright, RGB.

        Raises:
            ImageError: if it is missing or damaged.
        """
        from tagfill.images import decode, open_root

        return decode(open_root(self.root), self.image)

    def show(self, *, side: int = 480) -> Image.Image | None:
        """Show the image with its tags in a notebook; in a script, return that picture.

        Args:
            side: of the square for the image, in pixels.
        """
        from tagfill.images.notebook import contact_sheet, display

        return display(contact_sheet(self.root, [self.tile()], side=side))

    def tile(self) -> Tile:
        """The image for displays, with its tags; what is absent is shown only if nothing is present."""
        from tagfill.images.notebook import Tag, Tile

        tags = [Tag(name) for name in self.tags] or [Tag(name, "absent") for name in self.absent]
        return Tile(self.image, tags, self.split)

    def __repr__(self) -> str:
        known = f"tags: {', '.join(self.tags) or 'none'}"
        absent = f", {len(self.absent)} absent" if self.absent else ""
        return f"<{self.image} ({self.split}), {known}{absent}>"

    def _repr_html_(self) -> str:
        from tagfill.images.notebook import Tag, never_raises, panel, photo_grid, tags_html

        @never_raises
        def show(record: ImageRecord) -> str:
            size = f", {record.width} × {record.height} pixels" if record.width and record.height else ""
            absent = tags_html([Tag(name, "absent") for name in record.absent], limit=_SHOWN_CLASSES)
            photo = photo_grid(record.root, [record.tile()], side=_RECORD_SIDE)
            hint = "`.open()` reads the image, `.show()` shows it larger, `.labels` are the known labels."
            return panel(f"{record.image} ({record.split}{size})", photo, absent if record.tags else "", hint=hint)

        return show(self)


def records(dataset: Dataset, rows: Sequence[int] | NDArray[np.integer]) -> list[ImageRecord]:
    """The images at these rows of the image table."""
    index = np.asarray(rows, dtype=np.int64)
    described = dataset.images.take(index).to_pylist()
    labels = dataset.labels().take(index)
    found = []
    for at, image in enumerate(described):
        known = slice(labels.starts[at], labels.starts[at + 1])
        present, absent = (
            tuple(dataset.classes[label] for label in labels.classes[known][labels.values[known] == state])
            for state in (POSITIVE, NEGATIVE)
        )
        size = image.get("width"), image.get("height")
        found.append(ImageRecord(image["image"], image["split"], dataset.root, present, absent, *size))
    return found


# Displays


def dataset_text(dataset: Dataset) -> str:
    """One line about a dataset; annotations are not read."""
    splits = ", ".join(f"{name} {len(rows):,}" for name, rows in dataset.splits.items())
    return (
        f"<Dataset {dataset.name}: {len(dataset):,} images ({splits or 'none'}), {len(dataset.classes):,} classes, "
        f"images in {dataset.root}>"
    )


def dataset_html(dataset: Dataset) -> str:
    """Counts of each split, the classes, and some photos with their tags."""
    from tagfill.dataset.overview import overview
    from tagfill.images.notebook import MAX_PHOTOS, Tag, counts_table, panel, photo_grid, tags_html

    title = f"Dataset {dataset.name}: {len(dataset):,} images, {len(dataset.classes):,} classes"
    hint = "`dataset[0]` is an image, `dataset.show()` shows more of them, `dataset.to_pandas()` is a table."
    classes = tags_html([Tag(name) for name in dataset.classes], limit=_SHOWN_CLASSES)
    if _is_large(dataset):
        sizes = counts_table(["split", "images"], [[name, len(rows)] for name, rows in dataset.splits.items()])
        return panel(title, sizes, classes, hint="`dataset.labels()` reads the annotations, which are many.")
    counts = [
        [name, part.images, part.annotated, part.positives, part.negatives, f"{part.share:.1%}"]
        for name, part in overview(dataset).splits.items()
    ]
    table = counts_table(["split", "images", "annotated", "present", "absent", "labels known"], counts)
    tiles = [record.tile() for record in records(dataset, choose_examples(dataset, MAX_PHOTOS))]
    return panel(title, table, classes, photo_grid(dataset.root, tiles, total=len(dataset)), hint=hint)


def _is_large(dataset: Dataset) -> bool:
    """Whether counting labels would make a display slow: the annotations are many, and not read yet."""
    if dataset._labels:
        return False
    if isinstance(dataset.annotations, Path):
        return dataset.annotations.stat().st_size > _MANY_BYTES
    return bool(dataset.annotations.num_rows > _MANY_ROWS)


def dataset_sheet(dataset: Dataset, split: str | None, count: int, columns: int) -> Image.Image | None:
    """Show some images as one picture."""
    from tagfill.images.notebook import contact_sheet, display

    if count < 1 or columns < 1:
        raise TagfillError(f"There is no picture of {count} images in {columns} columns; give numbers above 0.")
    chosen = records(dataset, choose_examples(dataset, count, split))
    return display(contact_sheet(dataset.root, [record.tile() for record in chosen], columns=columns))


def choose_examples(dataset: Dataset, count: int, split: str | None = None) -> NDArray[np.int64]:
    """Rows of images spread over a split or the whole dataset; images with tags, if there are any."""
    rows = np.arange(len(dataset)) if split is None else dataset.split(split)
    tagged = rows[dataset.labels().take(rows).positives_per_image() > 0]
    rows = tagged if len(tagged) else rows
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(np.int64))]


# Data frames


def to_data_frame(dataset: Dataset, split: str | None, per_class: bool) -> pandas.DataFrame:
    """The images and their labels as a data frame; see `Dataset.to_pandas`."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise TagfillError("to_pandas needs pandas; install it with: pip install 'tagfill[pandas]'.") from None
    columns, states = _columns(dataset, split, per_class)
    integers = {name: pandas.array(column, dtype="Int8") for name, column in states.items()}
    for name, column in states.items():
        integers[name][column < 0] = pandas.NA
    return pandas.DataFrame({**columns, **integers})


def to_polars(dataset: Dataset, split: str | None, per_class: bool) -> polars.DataFrame:
    """The images and their labels as a Polars data frame; see `Dataset.to_polars`."""
    try:
        import polars
    except ModuleNotFoundError:
        raise TagfillError("to_polars needs Polars; install it with: pip install 'tagfill[polars]'.") from None
    columns, states = _columns(dataset, split, per_class)
    nullable = {name: polars.Series(pa.array(column, mask=column < 0)) for name, column in states.items()}
    return polars.DataFrame({**columns, **nullable})


def _columns(
    dataset: Dataset, split: str | None, per_class: bool
) -> tuple[dict[str, Any], dict[str, NDArray[np.int8]]]:
    """Columns of a data frame, and with `per_class` those of the classes: 1 present, 0 absent, -1 unknown."""
    rows = np.arange(len(dataset)) if split is None else dataset.split(split)
    labels = dataset.labels().take(rows)
    columns: dict[str, Any] = {"image": dataset.names(rows), "split": dataset.split_of_images()[rows].tolist()}
    if not per_class:
        columns["tags"], columns["complete"] = _tags(labels, dataset.classes)
        return columns, {}
    if clash := next((name for name in dataset.classes if name in columns), None):
        raise DatasetError(f"Class '{clash}' has the name of another column; leave out per_class=True.")
    dense = labels.dense()
    return columns, {name: dense[:, at] for at, name in enumerate(dataset.classes)}


def _tags(labels: LabelMatrix, classes: tuple[str, ...]) -> tuple[list[list[str]], list[bool]]:
    """The present classes of each image, and whether all of its labels are known."""
    tags, complete = [], []
    for begin, end in zip(labels.starts[:-1], labels.starts[1:], strict=True):
        values = labels.values[begin:end]
        tags.append([classes[label] for label in labels.classes[begin:end][values == POSITIVE]])
        complete.append(int((values >= 0).sum()) == len(classes))
    return tags, complete
