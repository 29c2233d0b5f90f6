"""Photos whose annotations have known errors, and cross-fitted scores of them.

Complete labels: 5 % of the tags are wrong. Half of these moved to a class that the photo does not show, which makes two
annotations wrong; the other half were dropped, so that a class that is there is annotated as absent. One tag per
photo: 5 % of the tags moved to a class that the photo does not show; everything else is unknown. One class: a fifth of
the tags of one class belong to photos that do not show it; everything else is unknown and right.

There is no validation split: its photos are left out, as they are for a user who has only tags.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tagfill
from tagfill.curation.crossfit import cross_fit
from tagfill.dataset.tables import from_records
from tagfill.progress import SILENT

COMPLETE, ONE_TAG, ONE_CLASS = "complete labels", "one tag per photo", "one tag per photo, errors in one class"
SHARE, SHARE_OF_CLASS = 0.05, 0.2
EPOCHS, FOLDS = 10, 5


@dataclass(frozen=True)
class Photos:
    """Photos with complete labels.

    Attributes:
        title: name in the results.
        complete: dataset with complete labels.
        one_tag: the same photos with one tag each; None to draw the tags.
        features: cached features.
        method: to train.
    """

    title: str
    complete: tagfill.Dataset
    one_tag: tagfill.Dataset | None
    features: Path
    method: str


@dataclass(frozen=True)
class Case:
    """What is annotated, and how much of it is wrong.

    Attributes:
        photos: the photos.
        labels: one of `COMPLETE`, `ONE_TAG`, `ONE_CLASS`.
        wrong: whether there are errors.
        seed: of the errors and of training.
    """

    photos: Photos
    labels: str
    wrong: bool
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        kind = {COMPLETE: "complete", ONE_TAG: "one-tag", ONE_CLASS: "one-class"}[self.labels]
        return f"{self.photos.title}-{kind}-{'wrong' if self.wrong else 'correct'}-{self.seed}".lower().replace(" ", "")


@dataclass(frozen=True)
class Scored:
    """Cross-fitted scores of annotated photos, all N×L.

    Attributes:
        logits: each from a model that was not trained on the photo.
        labels: annotations with errors: 1 present, 0 absent, -1 unknown.
        wrong: annotations that are wrong.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int8]
    wrong: NDArray[np.bool_]


def scored(case: Case, folder: Path) -> Scored:
    """Train fold models and score the training photos; the scores are kept in the folder."""
    file = folder / f"{case.name}.npz"
    if not file.exists():
        _score(case, file)
    with np.load(file, allow_pickle=False) as stored:
        found = Scored(stored["logits"], stored["labels"], stored["wrong"])
    if not np.array_equal(found.labels, annotate(case)[0]):
        raise ValueError(f"{file} has scores of other annotations; delete it to compute them again.")
    return found


def annotate(case: Case) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Annotations of the training photos, and which of them are wrong."""
    rng = np.random.default_rng(case.seed)
    rows = case.photos.complete.split("train")
    truth = case.photos.complete.labels().rows(rows)
    if case.labels == COMPLETE:
        labels = truth.copy()
    elif case.photos.one_tag is not None:
        labels = case.photos.one_tag.labels().rows(rows)
    else:
        drawn = np.where(truth == 1, rng.random(truth.shape), 0.0)
        labels = np.where((drawn == drawn.max(1, keepdims=True)) & (truth == 1), 1, -1).astype(np.int8)
    if not case.wrong:
        return labels, np.zeros(labels.shape, bool)
    if case.labels == ONE_CLASS:
        return _errors_in_one_class(labels, truth, rng)
    return _with_errors(labels, truth, rng)


def _with_errors(
    labels: NDArray[np.int8], truth: NDArray[np.int8], rng: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    found, wrong, complete = labels.copy(), np.zeros(labels.shape, bool), (labels >= 0).all()
    image, tag = np.nonzero(labels == 1)
    for number, chosen in enumerate(rng.permutation(len(image))[: round(SHARE * len(image))]):
        row, old = image[chosen], tag[chosen]
        found[row, old] = 0 if complete else -1
        wrong[row, old] = complete
        if number % 2 == 0 or not complete:
            new = rng.choice(np.flatnonzero((truth[row] == 0) & (found[row] != 1)))
            found[row, new], wrong[row, new] = 1, True
    return found, wrong


def _errors_in_one_class(
    labels: NDArray[np.int8], truth: NDArray[np.int8], rng: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """The class is drawn among those with at least 100 tags."""
    found, wrong = labels.copy(), np.zeros(labels.shape, bool)
    tags = (labels == 1).sum(0)
    new = int(rng.choice(np.flatnonzero(tags >= 100)))
    free = np.flatnonzero(truth[:, new] == 0)
    number = round(tags[new] * SHARE_OF_CLASS / (1 - SHARE_OF_CLASS))
    for row in rng.permutation(free)[:number]:
        found[row] = -1
        found[row, new], wrong[row, new] = 1, True
    return found, wrong


def _score(case: Case, file: Path) -> None:
    place, photos = file.with_suffix(""), case.photos
    shutil.rmtree(place, ignore_errors=True)
    source = photos.complete
    rows = source.split("train")
    labels, wrong = annotate(case)
    data = _annotated(source, rows, labels).save(place / "data")
    run = tagfill.train(
        data, method=photos.method, features=photos.features, epochs=EPOCHS, seed=case.seed, out=place / "run"
    )
    logits, position = np.empty(labels.shape, np.float32), np.empty(len(source), np.int64)
    position[rows] = np.arange(len(rows))
    for images in cross_fit(
        run.folder, data, "train", folds=FOLDS, out=place / "folds", features=None, jobs=1, workers=0, progress=SILENT
    ):
        logits[position[images.rows]] = images.logits
    part = file.with_suffix(".part.npz")
    np.savez(part, logits=logits, labels=labels, wrong=wrong)
    part.replace(file)
    shutil.rmtree(place)


def _annotated(source: tagfill.Dataset, rows: NDArray[np.int64], labels: NDArray[np.int8]) -> tagfill.Dataset:
    """The dataset with these labels of its training photos, and no validation split."""
    image, label = np.nonzero(labels >= 0)
    names, splits = source.names(rows), source.split_of_images()
    splits[splits == "val"] = "unused"
    columns = {
        "image": pa.array([names[row] for row in image]),
        "label": pa.array(source.classes, pa.string()).take(pa.array(label)),
        "present": pa.array(labels[image, label] == 1),
    }
    annotations = from_records(pa.table(columns).to_pylist())
    return source.replace(annotations=annotations, folder=None).with_splits(splits).replace(folder=None)
