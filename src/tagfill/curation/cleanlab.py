"""Cleanlab: labels and cross-fitted probabilities as the arrays that it takes, and its issues as suggestions.

    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    from tagfill.curation.cleanlab import arrays, issues_as_suggestions

    given = arrays("photos", "runs/photos-en")
    issues = find_multilabel_issues_per_class(given.labels, given.pred_probs)
    issues_as_suggestions("photos", given, issues).save(Path("suggestions.parquet"))   # for `tagfill review`

Cleanlab knows present and absent labels only: a class that an image does not list is absent to it. An unknown label has
to be left out of its answers, therefore, which `issues_as_suggestions` does. Images without any label are left out from
the start. Cleanlab is not needed to make the arrays.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.curation.crossfit import TRAIN, cross_fit
from tagfill.curation.suggest import Pairs, entropy, pair_table, rarity
from tagfill.curation.suggestions import WRONG, Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.labels import POSITIVE, UNKNOWN
from tagfill.progress import NOTEBOOK, Progress

Issues = NDArray[np.bool_] | Sequence[NDArray[np.integer]]
"""A mask over images and classes, or for each class the positions of images."""

_MOST_SCORES = 200_000_000  # of the array of probabilities: 800 MB


@dataclass(frozen=True)
class CleanlabArrays:
    """What `cleanlab.multilabel_classification` takes, and which images it is about.

    Attributes:
        labels: for each image, the indices of the classes that are annotated as present.
        pred_probs: N×L, probability of each class by a model that has not seen the image.
        rows: N, rows of the dataset's table of images.
        states: N×L, 1 present, 0 absent, -1 unknown.
    """

    labels: list[list[int]]
    pred_probs: NDArray[np.float32]
    rows: NDArray[np.int64]
    states: NDArray[np.int8]


def arrays(
    dataset: Dataset | str | os.PathLike[str],
    run: str | os.PathLike[str],
    *,
    split: str = TRAIN,
    folds: int | None = None,
    features: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    device: str = "auto",
    progress: Progress = NOTEBOOK,
) -> CleanlabArrays:
    """Score the labeled images of a split by models that were not trained on them.

    Args:
        dataset: the dataset or its folder.
        run: a run or its folder.
        split: of the images.
        folds: models to train for the training split, 5 by default; other splits are scored by the run itself.
        features: a feature cache, or its folder; by default that of the run.
        jobs: processes that train; one per core by default.
        device: of the networks.
        progress: shows the runs.

    Raises:
        TagfillError: if no image has a label, or the probabilities would take more than 800 MB.
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    count = len(data.split(split)) * len(data.classes)
    if count > _MOST_SCORES:
        raise TagfillError(
            f"Cleanlab takes one array of all scores, and {len(data.split(split)):,} images × {len(data.classes):,} "
            f"classes are more than {_MOST_SCORES:,}; 'tagfill suggest' works in parts."
        )
    matrix = data.labels()
    rows, probabilities = [], []
    with tempfile.TemporaryDirectory() as temporary:
        scored = cross_fit(
            Path(run), data, split, folds=(5 if split == TRAIN else 0) if folds is None else folds, out=Path(temporary),
            features=None if features is None else Path(features), jobs=jobs, workers=0, device=device,
            progress=progress,
        )  # fmt: skip
        for images in scored:
            labeled = images.take(np.flatnonzero(matrix.is_annotated(images.rows).any(1)))
            rows.append(labeled.rows)
            probabilities.append(labeled.calibration(labeled.logits).astype(np.float32))
    found = np.concatenate(rows) if rows else np.empty(0, np.int64)
    if not len(found):
        raise TagfillError(f"No image of the split '{split}' of {data.name} has a label.")
    states = matrix.rows(found)
    return CleanlabArrays(
        [np.flatnonzero(row == POSITIVE).tolist() for row in states], np.concatenate(probabilities), found, states
    )


def issues_as_suggestions(
    dataset: Dataset | str | os.PathLike[str], given: CleanlabArrays, issues: Issues
) -> Suggestions:
    """Turn cleanlab's issues into suggestions of the kind `wrong`, the least probable annotation first.

    Args:
        dataset: the one that the arrays were made of, or its folder.
        given: the arrays that cleanlab was given.
        issues: N×L bool, as `find_multilabel_issues_per_class` returns by default; or, of its ranked form, for each
            class the positions of images.

    >>> states = np.array([[1, 0], [0, -1]], np.int8)
    >>> given = CleanlabArrays([[0], []], np.array([[0.1, 0.2], [0.6, 0.9]], np.float32), np.arange(2), states)
    >>> data = Dataset.from_records("two", ".", ["cup", "dog"], [{"image": f"{i}.jpg", "split": "train"} for i in "ab"],
    ...                             [])
    >>> found = issues_as_suggestions(data, given, np.eye(2, dtype=bool))  # the last label is unknown
    >>> found.table.select(["image", "label", "kind", "annotated"]).to_pylist()
    [{'image': 'a.jpg', 'label': 'cup', 'kind': 'wrong', 'annotated': True}]
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    wrong = _as_mask(issues, given.states.shape) & (given.states != UNKNOWN)
    probability = given.pred_probs.astype(np.float64)
    pairs = Pairs.where(
        wrong, given.rows, probability, entropy(probability) * rarity(probability.mean(0)), given.states
    )
    doubt = np.where(pairs.annotated == POSITIVE, 1 - pairs.probability, pairs.probability)
    table = pair_table(data, WRONG, pairs.take(np.argsort(-doubt, kind="stable")))
    return Suggestions(table, {"dataset": data.name, "identities": data.identities})


def _as_mask(issues: Issues, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Issues as N×L bool, whichever form they have."""
    if not isinstance(issues, np.ndarray) and len(issues) == shape[1]:
        mask = np.zeros(shape, bool)
        for label, positions in enumerate(issues):
            mask[np.asarray(positions, np.int64), label] = True
        return mask
    given = np.asarray(issues)
    if given.shape != shape or given.dtype != bool:
        raise TagfillError(
            f"Issues are {given.dtype} of the shape {given.shape}; give the mask of find_multilabel_issues_per_class, "
            f"bool of the shape {shape}, or for each class the positions of images."
        )
    return given.astype(bool, copy=False)
