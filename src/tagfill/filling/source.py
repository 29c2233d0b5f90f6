"""What to fill in: any table of tags, dataset or format, with all photos, as one dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagfill import formats
from tagfill.curation.submissions import apply_submissions
from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.dataset.description import FILE as DATASET_FILE
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records
from tagfill.errors import TagfillError
from tagfill.filling.summary import SOURCE, Settings, absolute_path
from tagfill.filling.table import TableLayout
from tagfill.formats.photo_lookup import list_photos
from tagfill.options import option_parameters
from tagfill.progress import Progress

TRAIN = "train"
LEAST_TAGS = 20  # too few to learn or to estimate anything


def absolute_options(source_format: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a format whose paths do not depend on the working directory.

    >>> absolute_options("csv", {"root": "/photos", "separator": ";"})
    {'root': '/photos', 'separator': ';'}
    """
    parameters = option_parameters(formats.get(source_format or "tags").read)
    return {
        name: absolute_path(value)
        if isinstance(value, str | os.PathLike) and "PathLike" in str(getattr(parameters.get(name), "annotation", ""))
        else value
        for name, value in options.items()
    }


def read_source(source: Any, settings: Settings, progress: Progress) -> tuple[Dataset, TableLayout]:
    """The dataset that a source describes, with all photos, and the layout of the table that it is."""
    options = None
    if isinstance(source, Dataset) or (
        isinstance(source, str | os.PathLike) and (Path(source) / DATASET_FILE).is_file()
    ):
        if not isinstance(source, Dataset):
            apply_submissions(Path(source), progress=progress)
        base = source if isinstance(source, Dataset) else Dataset.open(source)
        base = _with_photos(base, settings.photos, progress)
    elif settings.source_format not in (None, "tags"):
        base = _read_format(source, settings, progress)
    else:
        base, options = _read_table(source, settings, progress)
    guessed = pc.fill_null(pc.equal(base.rows()["source"], SOURCE), False)
    if pc.any(guessed).as_py():
        base = base.replace(annotations=base.rows().filter(pc.invert(guessed)))
    labels = base.labels(TRAIN) if TRAIN in base.splits else None
    if labels is None:
        raise TagfillError(f"{base.name} has no photos in the split '{TRAIN}', so there is nothing to learn from.")
    tags = int(labels.positives.sum())
    if tags < LEAST_TAGS:
        raise TagfillError(
            f"{base.name} has only {tags} tags to learn from; tag at least {LEAST_TAGS} photos, better 10 per class."
        )
    if base.labels().complete():
        raise TagfillError(f"All tags of {base.name} are known, so there is nothing to fill in; train a model instead.")
    layout = TableLayout.choose(base.classes, options)
    return base.replace(folder=None), layout.model_copy(update={"spreadsheet": settings.spreadsheet})


def _read_table(source: Any, settings: Settings, progress: Progress) -> tuple[Dataset, dict[str, Any]]:
    """The dataset of a table of tags, and what was found in the table."""
    if isinstance(source, str | os.PathLike) and Path(source).is_dir():
        raise TagfillError(
            f"{source} is a folder, but no dataset; give a table of tags, such as tags.csv, or its format with --from."
        )
    table = formats.get("tags").parse(source, progress=progress, **settings.options)
    table = table.with_photos(settings.photos or table.root, progress=progress)
    progress.say(str(table))
    for sentence in table.warnings:
        progress.say(f"Warning: {sentence}")
    return table.to_dataset(), table.options


def _read_format(source: Any, settings: Settings, progress: Progress) -> Dataset:
    """The dataset of a file or folder in another format."""
    assert settings.source_format is not None
    read = formats.get(settings.source_format).read
    options = dict(settings.options)
    if settings.photos is not None and "root" in option_parameters(read):
        options["root"] = settings.photos
    return _with_photos(read(source, progress=progress, **options), settings.photos, progress)


def _with_photos(base: Dataset, photos: str | None, progress: Progress) -> Dataset:
    """The dataset with its photos in this place, and with those there that it does not have, without labels."""
    if photos is None:
        return base
    known, available = set(base.names()), list_photos(photos, progress=progress)
    if known and known.isdisjoint(available):
        raise TagfillError(
            f"None of the {len(base):,} photos of {base.name}, such as '{base.names()[0][:200]}', is below {photos}; "
            f"leave out --photos to look for them below {base.root}."
        )
    more = [{"image": name, "split": TRAIN} for name in available if name not in known]
    images = pa.concat_tables([base.images, from_records(more, IMAGES_SCHEMA)]) if more else base.images
    return base.replace(root=image_root(photos), images=images)
