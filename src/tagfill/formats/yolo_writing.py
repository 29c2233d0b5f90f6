"""Writing YOLO datasets."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import yaml

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError, one_of
from tagfill.files import replacing
from tagfill.formats import image_files, unsaid
from tagfill.formats.grouping import ImageRows, by_image
from tagfill.formats.image_files import Carry
from tagfill.progress import SILENT, Progress


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: Carry = "copy",
    absent_means: str | None = None,
    without_box: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `data.yaml`, `labels/<split>/…` and `images/<split>/…`; masks become their boxes, flags are not written.

    Args:
        dataset: what to write.
        target: the folder.
        images: `copy` them, `link` to them, or `none`.
        absent_means: how it will be read, if some images have both absent and unknown labels.
        without_box: present labels without a box or mask are refused, become a box around the `whole` image, or are
            left out with `drop`; an image of which nothing remains is written as not labelled.
        progress: told about each image.
    """
    folder = Path(target)
    carrier = image_files.Carrier(dataset.root, images)
    one_of("without_box", without_box, ["refuse", "whole", "drop"])
    _check_states(dataset, absent_means)
    places: dict[str, str] = {}
    for entry in by_image(dataset):
        place = _place(entry)
        stem = PurePosixPath(place).with_suffix("").as_posix()
        if stem in places:
            raise DatasetError(f"Images {places[stem]} and {entry.image} would share {_text_name(place)}; rename one.")
        places[stem] = entry.image
        _lines(entry, dataset.classes, without_box)
    description = {
        "path": ".",
        **{part: f"images/{part}" for part in dataset.splits},
        "names": dict(enumerate(dataset.classes)),
    }
    with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
        for entry in by_image(dataset):
            place = _place(entry)
            carrier.put(entry.image, folder / place)
            lines = _lines(entry, dataset.classes, without_box)
            if lines or _is_empty(entry, len(dataset.classes), absent_means):
                with replacing(folder / _text_name(place), sync=False) as file:
                    file.write("".join(lines).encode())
            bar.advance()
    with replacing(folder / "data.yaml") as file:
        file.write(yaml.safe_dump(description, sort_keys=False, allow_unicode=True).encode())


def _place(entry: ImageRows) -> str:
    """Where an image goes below the target: where it is if that is right, else below the folder of its split."""
    here = PurePosixPath("images", entry.split)
    return entry.image if PurePosixPath(entry.image).is_relative_to(here) else (here / entry.image).as_posix()


def _text_name(place: str) -> str:
    return PurePosixPath("labels", *PurePosixPath(place).parts[1:]).with_suffix(".txt").as_posix()


def _is_empty(entry: ImageRows, classes: int, absent_means: str | None) -> bool:
    """Whether every class is known to be absent, or counts as such."""
    absent = sum(state is False for state in entry.states.values())
    return absent == classes or (absent_means == "absent" and absent > 0 and not entry.present)


def _check_states(dataset: Dataset, absent_means: str | None) -> None:
    """Each image is written as looked at or not; refuse what is neither, unless it was said how to read it."""
    if absent_means is not None:
        unsaid.checked(absent_means)
        return
    classes = len(dataset.classes)
    complete, partial, neither = 0, 0, 0
    for entry in by_image(dataset, with_rows=False):
        absent = sum(state is False for state in entry.states.values())
        complete += bool(entry.present) and len(entry.present) + absent == classes and absent > 0
        partial += bool(entry.present) and absent == 0 and len(entry.present) < classes
        neither += 0 < absent < classes - len(entry.present)
    if neither or (complete and partial):
        raise DatasetError(
            f"YOLO cannot tell absent from unknown, but {complete + neither:,} images have absent labels beside others "
            f"and {partial + neither:,} have unknown ones; absent_means='absent' writes the unknown labels of images "
            "with boxes as absent, absent_means='unknown' forgets their absent ones."
        )


def _lines(entry: ImageRows, classes: tuple[str, ...], without_box: str) -> list[str]:
    rows = entry.locations("box", "mask")
    missing = [label for label in entry.present if label not in {row["label"] for row in rows}]
    if missing and without_box == "refuse":
        raise DatasetError(
            f"YOLO needs a box for what is present, but '{missing[0]}' of {entry.image} has none; without_box='whole' "
            "draws one around the image, without_box='drop' leaves such labels out."
        )
    if without_box == "whole":
        rows += [{"label": label, "x": 0.5, "y": 0.5, "w": 1.0, "h": 1.0} for label in missing]
    places = [(classes.index(row["label"]), *(f"{row[side]:.9g}" for side in "xywh")) for row in rows]
    return [" ".join(map(str, place)) + "\n" for place in places]
