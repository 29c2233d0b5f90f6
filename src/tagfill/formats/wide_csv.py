"""A wide table: one row per image, one column per class.

    image,split,cup,spoon
    007.jpg,train,1,
    008.jpg,train,0,1

1 (or true) is present, 0 (or false) absent, and a blank cell or NaN unknown. A table of 0 and 1 without any blank does
not say whether 0 is absent or unknown, and -1 is ambiguous: the reader asks for `absent_means` or `coding`, and prints
the counts for each choice. The codings in use are

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
from tagfill.formats import image_files, text_files, writer
from tagfill.formats.dataset_builder import DatasetBuilder, resolve_absent_means
from tagfill.io import atomic_write, spreadsheet_cell
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN
from tagfill.progress import SILENT, Progress

TITLE = "Wide table (CSV, TSV): one row per image, one column per class"

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
        root: where the images are, a folder or a URL; by default the folder of the file.
        absent_means: what 0 means, `unknown` or `absent`; required if no cell is blank.
        coding: how the states are written, in place of `absent_means`: `blank`, `canonical`, `observed` or `true`.
        image_column: the column with the path of an image below the root; by default `image`, else the first one.
        split_column: the column with the split of an image, if there is one.
        ignore: columns that are not classes.
        split: of all images if there is no split column.
        delimiter: between cells; by default a comma, or a tab in `.tsv` files.
        progress: told about each megabyte.

    Raises:
        DatasetError: the meaning of 0 or -1 is missing, or the file is damaged.
    """
    path = Path(source)
    if coding is not None and absent_means is not None:
        raise DatasetError(f"coding='{coding}' already says what is absent; leave absent_means out.")
    if coding is not None and coding not in CODINGS:
        raise unknown_name("coding", coding, CODINGS)
    table = _Table(path, image_column, split_column, ignore, delimiter)
    states = CODINGS[coding] if coding else _infer_coding(table, absent_means, progress)
    builder = DatasetBuilder(
        path.stem, path.parent if root is None else image_root(root), table.classes, source="wide-csv"
    )
    seen: dict[str, int] = {}
    for number, image, part, cells in table.rows(progress):
        image_files.check_image_path(image, f"{path}, line {number}")
        if image in seen:
            found = f"image '{image}', which line {seen[image]} has already"
            raise text_files.line_error(path, number, found, "an image has one row")
        seen[image] = number
        builder.add_image(image, part or split)
        for label, cell in zip(table.classes, cells, strict=True):
            if cell not in states:
                expected = "'true' knows 1 and 0 only" if coding == "true" else f"coding='{coding}' has no such value"
                raise text_files.line_error(path, number, f"'{cell}' in column '{label}'", expected)
            if states[cell] != UNKNOWN:
                builder.add_row(image, label, states[cell] == POSITIVE)
    return builder.build()


class _Table:
    """The rows of a file: line number, image, split if there is a column for it, and the normalized cells."""

    def __init__(
        self, path: Path, image_column: str | None, split_column: str, ignore: Collection[str], delimiter: str | None
    ) -> None:
        self.path, self.delimiter = path, delimiter
        header = [name.strip() for name in next(text_files.read_table(path, delimiter))[1]]
        text_files.require_distinct_columns(path, header)
        if image_column is None:
            image_column = "image" if "image" in header else header[0]
        for name in (image_column, *ignore):
            if name not in header:
                raise DatasetError(f"{path} has no column '{name}'; its columns are {', '.join(header)}.")
        self.image = header.index(image_column)
        self.split = header.index(split_column) if split_column in header else None
        others = {self.image, self.split, *(header.index(name) for name in ignore)}
        self.positions = [at for at in range(len(header)) if at not in others]
        self.classes = [header[at] for at in self.positions]
        if not self.classes:
            raise DatasetError(f"{path} has no column for a class; its columns are {', '.join(header)}.")

    def rows(self, progress: Progress) -> Iterator[tuple[int, str, str | None, list[str]]]:
        """Iterate over all rows except the header."""
        rows = text_files.read_table(self.path, self.delimiter, progress)
        next(rows)
        for number, row in rows:
            cells = [_SPELLINGS.get(row[at].strip().lower()) for at in self.positions]
            if None in cells:
                wrong = self.positions[cells.index(None)]
                name = self.classes[cells.index(None)]
                remedy = f"1, 0 or blank is expected; if the column is not a class, name it in ignore=['{name}']"
                raise text_files.line_error(self.path, number, f"'{row[wrong][:40]}' in column '{name}'", remedy)
            part = None if self.split is None else row[self.split]
            yield number, row[self.image], part, [cell for cell in cells if cell is not None]


def _infer_coding(table: _Table, absent_means: str | None, progress: Progress) -> dict[str, int]:
    """Return what the cells mean if no coding was given."""
    counts: Counter[str] = Counter()
    images = 0
    for _, _, _, cells in table.rows(progress):
        counts.update(cells)
        images += 1
    if counts["-1"]:
        choices = [f"{name}: {_count_states(states, counts)}" for name, states in CODINGS.items() if "-1" in states]
        raise DatasetError(
            f"{table.path} holds -1, which is unknown in some codings and absent in others; choose one with coding= "
            f"({'; '.join(choices)})."
        )
    if absent_means is not None or not counts[""]:
        absent_means = resolve_absent_means(
            absent_means, table.path, images=images, classes=len(table.classes), present=counts["1"]
        )
        return {"1": POSITIVE, "0": NEGATIVE if absent_means == "absent" else UNKNOWN, "": UNKNOWN}
    return CODINGS["blank"]


def _count_states(states: dict[str, int], counts: Counter[str]) -> str:
    sums = Counter(dict.fromkeys((POSITIVE, NEGATIVE, UNKNOWN), 0))
    for cell, state in states.items():
        sums[state] += counts[cell]
    return f"{sums[POSITIVE]:,} present, {sums[NEGATIVE]:,} absent, {sums[UNKNOWN]:,} unknown"


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    coding: str = "blank",
    undecided: str = "refuse",
    spreadsheet: bool = False,
    progress: Progress = SILENT,
) -> None:
    """Write a wide table; locations become labels of their image.

    Args:
        dataset: to be written.
        target: the file; it is tab-separated if its name ends in `.tsv`.
        coding: how to write the states; `true` has no unknown state and refuses it.
        undecided: `refuse` labels that are "cannot tell", or `drop` to write them as unknown.
        spreadsheet: write an apostrophe before names that begin with `=` `+` `-` or `@`, which a spreadsheet would run
            as formulas; it stays there when the table is read again.
        progress: told about each image.
    """
    path = Path(target)
    if coding not in CODINGS:
        raise unknown_name("coding", coding, CODINGS)
    if clash := {"image", "split"} & set(dataset.classes):
        raise DatasetError(
            f"A wide table has a column '{min(clash)}' of its own, but a class has that name; rename the class."
        )
    labels = dataset.labels()
    writer.require_decided(labels, undecided, "A wide table")
    if coding == "true":
        writer.require_complete(labels, "refuse", "A wide table with coding='true'")
    words = {state: text for text, state in reversed(CODINGS[coding].items())}
    delimiter = text_files.delimiter_for(path)
    images = dataset.images.select(["image", "split"]).to_pylist()
    with atomic_write(path) as file, progress.bar(f"Writing {path.name}", len(images), "images") as bar:
        protect = spreadsheet_cell if spreadsheet else str
        file.write(text_files.csv_line(["image", "split", *map(protect, dataset.classes)], delimiter))
        for part, dense in labels.blocks():
            for record, states in zip(images[part], dense.tolist(), strict=True):
                cells = [words[state] for state in states]
                names = [protect(record["image"]), protect(record["split"])]
                file.write(text_files.csv_line([*names, *cells], delimiter))
                bar.advance()
