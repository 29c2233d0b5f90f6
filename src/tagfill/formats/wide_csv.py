"""A wide table: one row for each image, one column for each class.

    image,split,cup,spoon
    007.jpg,train,1,
    008.jpg,train,0,1

1 (or true) is present, 0 (or false) absent, and a blank cell or NaN unknown. A table of 0 and 1 without any blank does
not say whether 0 is absent or unknown, and one with -1 could mean three things: the reader asks, and prints what each
reading would give. The codings in use are

| coding | present | absent | unknown |
|---|---|---|---|
| `blank` | 1 | 0 | blank |
| `canonical` | 1 | 0 | -1 |
| `observed` | 1 | -1 | 0 |
| `true` | 1 | 0 | (none) |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import DatasetError, unknown_name
from tagfill.formats import image_files, reader, text_files
from tagfill.formats.reader import Collector
from tagfill.io import atomic_write
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.progress import SILENT, Progress

TITLE = "Wide table (CSV, TSV): one row an image, one column a class"

CODINGS: dict[str, dict[str, int]] = {
    "blank": {"1": POSITIVE, "0": NEGATIVE, "": UNKNOWN},
    "canonical": {"1": POSITIVE, "0": NEGATIVE, "-1": UNKNOWN, "": UNKNOWN},
    "observed": {"1": POSITIVE, "-1": NEGATIVE, "0": UNKNOWN, "": UNKNOWN},
    "true": {"1": POSITIVE, "0": NEGATIVE},
}
_SPELLINGS = {
    **dict.fromkeys(["1", "1.0", "true"], "1"),
    **dict.fromkeys(["0", "0.0", "-0.0", "false"], "0"),
    **dict.fromkeys(["-1", "-1.0"], "-1"),
    **dict.fromkeys(["", "nan", "none", "null"], ""),
}


def read(
    source: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    absent_means: str | None = None,
    coding: str | None = None,
    image_column: str | None = None,
    split_column: str = "split",
    ignore: Collection[str] = (),
    split: str = "train",
    delimiter: str | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Read a wide table.

    Args:
        source: the file.
        root: where the images are, a folder or a URL; the folder of the file unless given.
        absent_means: what 0 means, `unknown` or `absent`; has to be said if no cell is blank.
        coding: how the states are written, if otherwise: `blank`, `canonical`, `observed` or `true`.
        image_column: the column with an image's path below the root; `image` or else the first one unless given.
        split_column: the column with the image's split, if there is one.
        ignore: columns that are no classes.
        split: of all images if there is no split column.
        delimiter: between cells; a comma, or a tab in `.tsv` files, unless given.
        progress: told about each megabyte.
    """
    path = Path(source)
    if coding is not None and absent_means is not None:
        raise DatasetError(f"coding='{coding}' already says what is absent; leave absent_means out.")
    if coding is not None and coding not in CODINGS:
        raise unknown_name("coding", coding, CODINGS)
    table = _Table(path, image_column, split_column, ignore, delimiter)
    states = CODINGS[coding] if coding else _choose(table, absent_means, progress)
    collector = Collector(
        path.stem, path.parent if root is None else image_root(root), table.classes, source="wide-csv"
    )
    seen: dict[str, int] = {}
    for number, image, part, cells in table.rows(progress):
        image_files.check_name(image, f"{path}, line {number}")
        if image in seen:
            found = f"image '{image}', which line {seen[image]} has already"
            raise text_files.bad_line(path, number, found, "an image has one row")
        seen[image] = number
        collector.add_image(image, part or split)
        for label, cell in zip(table.classes, cells, strict=True):
            if cell not in states:
                expected = "'true' knows 1 and 0 only" if coding == "true" else f"coding='{coding}' has no such value"
                raise text_files.bad_line(path, number, f"'{cell}' in column '{label}'", expected)
            if states[cell] != UNKNOWN:
                collector.add(image, label, states[cell] == POSITIVE)
    return collector.dataset()


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    coding: str = "blank",
    undecided: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write a wide table; locations become labels of their image.

    Args:
        dataset: what to write.
        target: the file; a name in `.tsv` makes it tab-separated.
        coding: how to write the states; `true` cannot say unknown and refuses it.
        undecided: "cannot tell" is refused, or written as unknown with `drop`.
        progress: told about each image.
    """
    path = Path(target)
    if coding not in CODINGS:
        raise unknown_name("coding", coding, CODINGS)
    if clash := {"image", "split"} & set(dataset.classes):
        raise DatasetError(f"A wide table has a column '{min(clash)}' of its own, but a class is called so; rename it.")
    labels = dataset.labels()
    reader.decided(labels, undecided, "A wide table")
    if coding == "true":
        reader.complete(labels, "refuse", "A wide table with coding='true'")
    words = {state: text for text, state in reversed(CODINGS[coding].items())}
    delimiter = text_files.delimiter_of(path)
    images = dataset.images.select(["image", "split"]).to_pylist()
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(images), "images") as bar:
        file.write(text_files.row(["image", "split", *dataset.classes], delimiter))
        for part, dense in labels.blocks():
            for record, states in zip(images[part], dense.tolist(), strict=True):
                cells = [words[state] for state in states]
                file.write(text_files.row([record["image"], record["split"], *cells], delimiter))
                bar.advance()


class _Table:
    """The rows of a file: line number, image, split if there is a column for it, and the cells in one spelling."""

    def __init__(
        self, path: Path, image_column: str | None, split_column: str, ignore: Collection[str], delimiter: str | None
    ) -> None:
        self.path, self.delimiter = path, delimiter
        header = [name.strip() for name in next(text_files.cells(path, delimiter))[1]]
        text_files.require_distinct(path, header)
        if image_column is None:
            image_column = "image" if "image" in header else header[0]
        for name in (image_column, *ignore):
            if name not in header:
                raise DatasetError(f"{path} has no column '{name}'; its columns are {', '.join(header)}.")
        self.image = header.index(image_column)
        self.split = header.index(split_column) if split_column in header else None
        others = {self.image, self.split, *(header.index(name) for name in ignore)}
        self.places = [place for place in range(len(header)) if place not in others]
        self.classes = [header[place] for place in self.places]
        if not self.classes:
            raise DatasetError(f"{path} has no column for a class; its columns are {', '.join(header)}.")

    def rows(self, progress: Progress) -> Iterator[tuple[int, str, str | None, list[str]]]:
        """Every row but the header."""
        rows = text_files.cells(self.path, self.delimiter, progress)
        next(rows)
        for number, row in rows:
            cells = [_SPELLINGS.get(row[place].strip().lower()) for place in self.places]
            if None in cells:
                wrong = self.places[cells.index(None)]
                name = self.classes[cells.index(None)]
                remedy = f"1, 0 or blank is expected; if the column is no class, name it in ignore=['{name}']"
                raise text_files.bad_line(self.path, number, f"'{row[wrong][:40]}' in column '{name}'", remedy)
            part = None if self.split is None else row[self.split]
            yield number, row[self.image], part, [cell for cell in cells if cell is not None]


def _choose(table: _Table, absent_means: str | None, progress: Progress) -> dict[str, int]:
    """What the cells mean if no coding was named."""
    counts: Counter[str] = Counter()
    images = 0
    for _, _, _, cells in table.rows(progress):
        counts.update(cells)
        images += 1
    if counts["-1"]:
        readings = [f"{name}: {_count(states, counts)}" for name, states in CODINGS.items() if "-1" in states]
        raise DatasetError(
            f"{table.path} holds -1, which is unknown in some codings and absent in others; say which with coding= "
            f"({'; '.join(readings)})."
        )
    if absent_means is not None or not counts[""]:
        meaning = reader.reading(
            absent_means, table.path, images=images, classes=len(table.classes), present=counts["1"]
        )
        return {"1": POSITIVE, "0": NEGATIVE if meaning == "absent" else UNKNOWN, "": UNKNOWN}
    return CODINGS["blank"]


def _count(states: dict[str, int], counts: Counter[str]) -> str:
    sums = Counter(dict.fromkeys((POSITIVE, NEGATIVE, UNKNOWN), 0))
    for cell, state in states.items():
        sums[state] += counts[cell]
    return f"{sums[POSITIVE]:,} present, {sums[NEGATIVE]:,} absent, {sums[UNKNOWN]:,} unknown"
