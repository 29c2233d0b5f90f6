"""YOLO: a text file of boxes beside each image, and a `data.yaml` that names the classes.

    data.yaml                    names: [cat, dog], or {0: cat, 1: dog}; train: images/train; val: images/val
    images/train/1.jpg           labels/train/1.txt    with lines  class x y width height
    train/images/1.jpg           train/labels/1.txt    (the other common order)

x and y are the center; all four numbers are relative to the image. A text file means that the image was annotated: its
boxes are present and the other classes absent, so an empty file says that no class is present. An image without a text
file was not annotated. Where boxes were not drawn for every class, `absent_means="unknown"` leaves the classes without
a box unknown, except for empty files, which still say that no class is present.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo, model_validator

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, first_problem, one_of
from tagfill.formats import image_files, rasterize, text_files
from tagfill.formats.dataset_builder import DatasetBuilder, check_absent_means
from tagfill.formats.image_files import CopyMode
from tagfill.formats.writer import ImageRows, iter_images
from tagfill.io import atomic_write
from tagfill.progress import SILENT, Progress

TITLE = "YOLO: text files of boxes, images/ and labels/, data.yaml"

_ROUNDING = 1e-3  # boxes may reach this far over the edge


def read(
    source: str | os.PathLike[str],
    *,
    absent_means: str = "absent",
    polygons: str = "refuse",
    progress: Progress = SILENT,
) -> Dataset:
    """Read a YOLO dataset.

    Args:
        source: the folder that holds `data.yaml`, or that file under any name.
        absent_means: what a class without a box is in an annotated image, `absent` or `unknown`.
        polygons: `refuse` lines of a segmentation (class x y x y x y…), or turn them into a `mask` or its `box`.
        progress: told about each image.

    Raises:
        DatasetError: a file is missing, damaged, or contradicts another.
    """
    path = Path(source)
    path = path / "data.yaml" if path.is_dir() else path
    absent_means = check_absent_means(absent_means)
    one_of("polygons", polygons, ["refuse", "mask", "box"])
    config = _read_config(path)
    images = [
        (split, file)
        for split in ("train", "val", "valid", "test")
        for entry in getattr(config, split)
        for file in _find_images(path, config, entry)
    ]
    root = Path(os.path.commonpath([path.parent.absolute(), *(file.parent for _, file in images)]))
    builder = DatasetBuilder(path.parent.absolute().name, root, config.names, source="yolo")
    with progress.bar(f"Reading {path.parent.name}", len(images), "images") as bar:
        for split, file in images:
            image = file.relative_to(root).as_posix()
            labels = _label_file(file)
            rows = list(_read_labels(labels, file, path, config.names, polygons)) if labels.is_file() else []
            size = image_files.read_size(root, image) if any("rle" in columns for _, columns in rows) else (None, None)
            builder.add_image(image, image_files.split_for_folder(split), *size)
            for label, columns in rows:
                builder.add_row(image, label, True, **columns)
            if labels.is_file() and (absent_means == "absent" or not rows):
                builder.mark_rest_absent(image, [label for label, _ in rows])
            bar.advance()
    return builder.build()


def _list_names(names: Any) -> list[Any]:
    """Turn the names of a `data.yaml`, a list or a mapping from numbers, into a list."""
    if isinstance(names, dict):
        if sorted(names, key=str) != sorted(range(len(names)), key=str):
            raise ValueError("'names' must number the classes 0, 1, 2… without gaps")
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise ValueError("it has no 'names'; list the class names there")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"class name {ascii(name)[:60]} is not text; quote names that look like numbers or dates")
    return names


def _list_places(places: Any, info: ValidationInfo) -> list[Any]:
    """Turn the images of a split, a path or a list of paths, into a list."""
    given = places or []
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        found = f"'{info.field_name}' is {ascii(places)[:60]}"
        raise ValueError(f"{found}; a folder, a file or a list of them is expected")
    return entries


_Places = Annotated[list[str], BeforeValidator(_list_places)]


class _Config(BaseModel):
    """What a `data.yaml` says: class names, and folders or list files of images per split."""

    model_config = ConfigDict(strict=True)

    names: Annotated[list[str], BeforeValidator(_list_names)] = []
    nc: Any = None
    path: Any = None
    train: _Places = []
    val: _Places = []
    valid: _Places = []
    test: _Places = []

    @model_validator(mode="after")
    def _check_count(self) -> _Config:
        if "nc" in self.model_fields_set and self.nc != len(self.names):
            raise ValueError(
                f"'nc' is {ascii(self.nc)[:60]}, but {len(self.names)} classes are named; correct one of them"
            )
        return self


def _read_config(path: Path) -> _Config:
    try:
        content = yaml.safe_load(text_files.require_file(path, "the names of the classes").read_bytes())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not valid YAML: {' '.join(str(error).split())[:400]}.") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is not a description of a YOLO dataset; it needs 'names' and 'train'.")
    try:
        return _Config.model_validate({"names": None, **{str(key): value for key, value in content.items()}})
    except ValidationError as error:
        raise DatasetError(f"{path}: {first_problem(error)}.") from None


def _find_images(path: Path, config: _Config, entry: str) -> Iterator[Path]:
    """Iterate over the images of an entry of data.yaml: those of a folder, or those that a file lists."""
    place = _resolve(path, config, entry)
    if place.is_dir():
        yield from (place / name for name in image_files.list_images(place))
        return
    for number, line in text_files.read_lines(place):
        beside = place.parent / line
        image = beside if _exists(beside) else _resolve(path, config, line)
        if not image.is_file():
            raise text_files.line_error(place, number, f"'{line[:60]}'", "the path of an image is expected")
        yield image


def _resolve(path: Path, config: _Config, entry: str) -> Path:
    """Return where an entry leads: below `path`, beside data.yaml, or there without the leading `../`."""
    base = path.parent.absolute()
    for place in (base / str(config.path or "") / entry, base / entry, base / entry.removeprefix("../")):
        if _exists(place):
            return Path(os.path.normpath(place))
    raise DatasetError(f"{path} names '{entry[:200]}', but there is no such file or folder; correct the path.")


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # the name is too long
        return False


def _label_file(image: Path) -> Path:
    """Return the text file of an image: the last folder called images becomes labels."""
    parts = list(image.parent.parts)
    for at in reversed(range(len(parts))):
        if parts[at] == "images":
            parts[at] = "labels"
            break
    return Path(*parts, f"{image.stem}.txt")


def _read_labels(
    path: Path, image: Path, config_path: Path, classes: list[str], polygons: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the label and the location columns of each line of a text file."""
    for number, line in text_files.read_lines(path):
        words = line.split()
        try:
            code, *numbers = [float(word) for word in words]
        except ValueError:
            raise text_files.line_error(path, number, f"'{line[:60]}'", "numbers are expected") from None
        if code not in range(len(classes)):
            found = f"class {words[0]}, but {config_path.name} names {len(classes)}"
            raise text_files.line_error(path, number, found, "correct the line or add the class")
        if not all(-_ROUNDING <= value <= 1 + _ROUNDING for value in numbers):
            remedy = "divide pixels by the width and height of the image"
            raise text_files.line_error(path, number, f"'{line[:60]}', which is not within 0 and 1", remedy)
        if len(numbers) == 4:
            yield classes[int(code)], {"kind": "box", **dict(zip("xywh", numbers, strict=True))}
        elif len(numbers) >= 6 and len(numbers) % 2 == 0 and polygons != "refuse":
            yield classes[int(code)], _polygon_columns(numbers, image, polygons)
        else:
            remedy = "a box has four" + ("; polygons='mask' or 'box' reads polygons" if len(numbers) >= 6 else "")
            raise text_files.line_error(path, number, f"{len(numbers)} numbers after the class", remedy)


def _polygon_columns(corners: list[float], image: Path, polygons: str) -> dict[str, Any]:
    xs, ys = corners[::2], corners[1::2]
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    box = {"x": (left + right) / 2, "y": (top + bottom) / 2, "w": right - left, "h": bottom - top}
    if polygons == "mask":
        width, height = image_files.read_size(image.parent, image.name)
        pixels = [value * (height if at % 2 else width) for at, value in enumerate(corners)]
        mask = rasterize.from_segmentation([pixels], height, width)
        if mask is not None:
            return {**box, **mask.columns()}
    return {"kind": "box", **box}


def write(
    dataset: Dataset,
    target: str | os.PathLike[str],
    *,
    images: CopyMode = "copy",
    absent_means: str | None = None,
    without_box: str = "refuse",
    progress: Progress = SILENT,
) -> None:
    """Write `data.yaml`, `labels/<split>/…` and `images/<split>/…`; masks become their boxes, flags are not written.

    Args:
        dataset: to be written.
        target: the folder.
        images: `copy` them, `link` to them, or `none`.
        absent_means: how it will be read, if some images have both absent and unknown labels.
        without_box: `refuse` present labels without a box or mask, write a box around the `whole` image, or `drop`
            them; an image that loses all its labels is written as not annotated.
        progress: told about each image.

    Raises:
        DatasetError: the format cannot express what the dataset holds; nothing is written.
    """
    folder = Path(target)
    copier = image_files.ImageCopier(dataset.root, images)
    one_of("without_box", without_box, ["refuse", "whole", "drop"])
    _check_states(dataset, absent_means)
    taken: dict[str, str] = {}
    for entry in iter_images(dataset):
        path = _image_path(entry)
        stem = PurePosixPath(path).with_suffix("").as_posix()
        if stem in taken:
            raise DatasetError(f"Images {taken[stem]} and {entry.image} would share {_label_path(path)}; rename one.")
        taken[stem] = entry.image
        _label_lines(entry, dataset.classes, without_box)
    config = {
        "path": ".",
        **{part: f"images/{part}" for part in dataset.splits},
        "names": dict(enumerate(dataset.classes)),
    }
    with progress.bar(f"Writing {folder.name}", len(dataset), "images") as bar:
        for entry in iter_images(dataset):
            path = _image_path(entry)
            copier.copy(entry.image, folder / path)
            lines = _label_lines(entry, dataset.classes, without_box)
            if lines or _is_all_absent(entry, len(dataset.classes), absent_means):
                with atomic_write(folder / _label_path(path), sync=False) as file:
                    file.write("".join(lines).encode())
            bar.advance()
    with atomic_write(folder / "data.yaml") as file:
        file.write(yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())


def _check_states(dataset: Dataset, absent_means: str | None) -> None:
    """Raise if an image has both absent and unknown labels, or if complete and partly labeled images mix.

    An image of a YOLO dataset is annotated or not; `absent_means` says how to write images that are neither.
    """
    if absent_means is not None:
        check_absent_means(absent_means)
        return
    classes = len(dataset.classes)
    complete, partial, neither = 0, 0, 0
    for entry in iter_images(dataset, with_rows=False):
        absent = sum(state is False for state in entry.states.values())
        complete += bool(entry.present) and len(entry.present) + absent == classes and absent > 0
        partial += bool(entry.present) and absent == 0 and len(entry.present) < classes
        neither += 0 < absent < classes - len(entry.present)
    if neither or (complete and partial):
        raise DatasetError(
            f"YOLO cannot distinguish absent from unknown, but {complete + neither:,} images have absent labels and "
            f"{partial + neither:,} have unknown ones; absent_means='absent' writes the unknown labels of images "
            "with boxes as absent, absent_means='unknown' drops their absent ones."
        )


def _image_path(entry: ImageRows) -> str:
    """Return the path of an image below the target: its own if that is right, else below the folder of its split."""
    folder = PurePosixPath("images", entry.split)
    return entry.image if PurePosixPath(entry.image).is_relative_to(folder) else (folder / entry.image).as_posix()


def _label_path(image_path: str) -> str:
    return PurePosixPath("labels", *PurePosixPath(image_path).parts[1:]).with_suffix(".txt").as_posix()


def _label_lines(entry: ImageRows, classes: tuple[str, ...], without_box: str) -> list[str]:
    rows = entry.locations("box", "mask")
    missing = [label for label in entry.present if label not in {row["label"] for row in rows}]
    if missing and without_box == "refuse":
        raise DatasetError(
            f"YOLO needs a box for every present label, but '{missing[0]}' of {entry.image} has none; "
            "without_box='whole' draws one around the image, without_box='drop' leaves such labels out."
        )
    if without_box == "whole":
        rows += [{"label": label, "x": 0.5, "y": 0.5, "w": 1.0, "h": 1.0} for label in missing]
    lines = [(classes.index(row["label"]), *(f"{row[side]:.9g}" for side in "xywh")) for row in rows]
    return [" ".join(map(str, line)) + "\n" for line in lines]


def _is_all_absent(entry: ImageRows, classes: int, absent_means: str | None) -> bool:
    """Whether every class is known to be absent, or is to be written so."""
    absent = sum(state is False for state in entry.states.values())
    return absent == classes or (absent_means == "absent" and absent > 0 and not entry.present)
