"""What to fill in: any table of tags, dataset or format, with all photos, as one dataset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagfill import formats
from tagfill.dataset import Dataset
from tagfill.dataset.description import FILE as DATASET_FILE
from tagfill.dataset.tables import IMAGES_SCHEMA, from_records
from tagfill.errors import TagfillError
from tagfill.filling.result import SOURCE, Settings
from tagfill.images import open_root
from tagfill.options import option_parameters
from tagfill.progress import Progress

TRAIN = "train"
LEAST_TAGS = 20  # too few to learn or to estimate anything


def read_source(source: Any, settings: Settings, progress: Progress) -> Dataset:
    """The dataset that a source describes, with all photos."""
    photos = settings.photos
    if isinstance(source, Dataset) or (
        isinstance(source, str | os.PathLike) and (Path(source) / DATASET_FILE).is_file()
    ):
        base = source if isinstance(source, Dataset) else Dataset.open(source)
        if photos is not None:
            base = _with_photos(base, photos, progress)
    elif settings.source_format not in (None, "tags"):
        assert settings.source_format is not None
        read = formats.get(settings.source_format).read
        given = dict(settings.options)
        if photos is not None and "root" in option_parameters(read):
            given["root"] = photos
        base = read(source, progress=progress, **given)
        if photos is not None:
            base = _with_photos(base, photos, progress)
    else:
        if isinstance(source, str | os.PathLike) and Path(source).is_dir():
            raise TagfillError(
                f"{source} is a folder, but no dataset; give a table of tags, or its format with --from."
            )
        table = formats.get("tags").parse(source, progress=progress, **settings.options)
        table = table.with_photos(table.root if photos is None else photos, progress=progress)
        progress.say(str(table))
        for sentence in table.warnings:
            progress.say(f"Warning: {sentence}")
        base = table.to_dataset()
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
    return base.replace(folder=None)


def _with_photos(base: Dataset, photos: str, progress: Progress) -> Dataset:
    """The dataset with all photos of a folder that it does not have, without labels."""
    if Path(base.root).resolve() != Path(photos).resolve():
        return base
    known = set(base.names())
    more = [{"image": name, "split": TRAIN} for name in open_root(photos, progress=progress).names()]
    more = [record for record in more if record["image"] not in known]
    return base.replace(images=pa.concat_tables([base.images, from_records(more, IMAGES_SCHEMA)])) if more else base
