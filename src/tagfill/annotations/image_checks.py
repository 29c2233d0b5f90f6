"""What can be wrong with the table of images."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tagfill.annotations.problems import Problems

_OUTSIDE = r"(^[/\\])|(^[A-Za-z]:[/\\])|((^|[/\\])\.\.([/\\]|$))"  # an absolute path, or one that climbs


def check(images: pa.Table, file: str, problems: Problems) -> None:
    """Add the problems of an image table."""
    if not images.num_rows:
        problems.add("no-image", file, [None], "the table has no image", "add some")
        return
    _names(images, file, problems)
    _repeated(images, file, problems)
    blank = _rows(pc.equal(pc.utf8_trim_whitespace(pc.fill_null(images["split"], "")), ""))
    problems.add("blank-split", file, blank, "the split has no name", "name it, such as train, val or test")
    for side in ("width", "height"):
        _sizes(images[side], side, file, problems)


def _sizes(column: pa.ChunkedArray, side: str, file: str, problems: Problems) -> None:
    wrong = _rows(pc.fill_null(pc.less_equal(column, 0), False))
    remedy = "give it in pixels, or leave it empty"
    problems.add("image-size", file, wrong, lambda at: f"{side} is {column[int(wrong[at])]}", remedy)


def _names(images: pa.Table, file: str, problems: Problems) -> None:
    names = images["image"]
    empty = _rows(pc.equal(pc.fill_null(names, ""), ""))
    problems.add("blank-image", file, empty, "the image has no name", "give its path below the image root")
    climbing = _rows(pc.fill_null(pc.match_substring_regex(names, _OUTSIDE), False))
    problems.add(
        "image-outside-root",
        file,
        climbing,
        lambda at: f"image '{names[int(climbing[at])].as_py()}' is not below the image root",
        "give a relative path without '..'",
    )


def _repeated(images: pa.Table, file: str, problems: Problems) -> None:
    """Images that are listed again, in the same split or in another one."""
    coded = images["image"].combine_chunks().dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if len(coded.dictionary) == len(codes):
        return
    order = np.argsort(codes, kind="stable")
    again = np.zeros(len(codes), dtype=bool)
    again[1:] = (codes[order][1:] == codes[order][:-1]) & (codes[order][1:] >= 0)
    began = np.maximum.accumulate(np.where(again, 0, np.arange(len(codes))))
    later = np.sort(order[again])
    first = np.empty(len(codes), dtype=np.int64)
    first[order] = order[began]
    split = images["split"].combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    crossing = split[later] != split[first[later]]

    def named(rows: NDArray[np.int64], at: int) -> str:
        row = int(rows[at])
        name, here, there = images["image"][row], images["split"][row], images["split"][int(first[row])]
        if split[row] != split[first[row]]:
            return f"image '{name}' is in split '{here}' here and in split '{there}' in row {first[row]}"
        return f"image '{name}' is listed before, in row {first[row]}"

    two, same = later[crossing], later[~crossing]
    problems.add("image-in-two-splits", file, two, lambda at: named(two, at), "keep it in one of them")
    problems.add("repeated-image", file, same, lambda at: named(same, at), "drop one of the rows")


def _rows(mask: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy())
