"""Photos without any tag: names of classes are enough for first guesses, and for questions that are worth asking.

A dataset without labels is made of the photos, the ImageNet prior scores it (`tagfill.evidence.models`), and debiased
scores become probabilities that sum to the expected number of labels per photo. Nothing was measured or learned, so
the probabilities are only as good as the prior. A review of `to-review.csv` gives the first tags, and `fill` on `known`
then learns from these tags and from the evidence.

    filled.csv      each photo with what was added, and the probability of each added tag
    to-review.csv   what is uncertain, for `tagfill review`
    known/          the dataset, with its evidence
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tagfill.curation.estimates import choose_additions
from tagfill.curation.suggest import Pairs, entropy, pair_table, rarity
from tagfill.curation.suggestions import MISSING, Suggestions
from tagfill.dataset import Dataset
from tagfill.dataset.dataset import image_root
from tagfill.errors import TagfillError
from tagfill.evidence import debias, list_evidence, open_evidence
from tagfill.evidence.models import score_with_prior
from tagfill.filling.summary import FILLED, KNOWN, TO_REVIEW, Keep
from tagfill.formats.photo_lookup import list_photos
from tagfill.io import atomic_write, new_folder
from tagfill.progress import NOTEBOOK, Progress

_LEAST, _QUESTIONS = 0.1, 10_000  # probability and number of pairs to review


@dataclass(frozen=True)
class FirstGuesses:
    """What was guessed about photos without tags.

    Attributes:
        folder: of the result.
        photos: their number.
        added: number of tags that were added.
        expected_precision: share of them that is expected to be right; NaN if none was added.
        expected_labels: labels per photo that the probabilities sum to.
        questions: pairs to review.
    """

    folder: Path
    photos: int
    added: int
    expected_precision: float
    expected_labels: float
    questions: int

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        precision = None if np.isnan(self.expected_precision) else self.expected_precision
        return {**self.__dict__, "folder": str(self.folder), "expected_precision": precision}


def fill_unlabeled(
    photos: str | os.PathLike[str],
    classes: Sequence[str],
    *,
    out: str | os.PathLike[str] = "filled",
    keep: str = "precision=0.9",
    expected: float | None = None,
    features: str | os.PathLike[str] | None = None,
    progress: Progress = NOTEBOOK,
) -> FirstGuesses:
    """Guess the tags of photos from the names of the classes alone.

    Args:
        photos: where the photos are.
        classes: names of the classes, at least two.
        out: folder of the result, which must be unused.
        keep: which tags to add, `precision=0.9` or `probability=0.8`.
        expected: labels per photo that you expect; by default 1.5.
        features: a cache of the bundled backbone's features of these photos.
        progress: receives the number of photos done.

    Raises:
        TagfillError: if a class is named twice, or the sentence encoder is not installed.
    """
    names = [name.strip() for name in classes if name.strip()]
    if len(names) < 2 or len(set(names)) < len(names):
        raise TagfillError(f"Give the names of two or more different classes; these are {', '.join(names) or 'none'}.")
    rule, folder = Keep.parse(keep), Path(out)
    with new_folder(folder, "is filling in tags", force=False, task=f"fill {photos} {names}"):
        images = [{"image": name, "split": "train"} for name in list_photos(photos, progress=progress)]
        root = image_root(photos)
        data = Dataset.from_records(
            Path(photos).name or "photos", root.absolute() if isinstance(root, Path) else root, names, images, []
        ).save(folder / KNOWN)
        if not list_evidence(data):
            score_with_prior(data, features=features, progress=progress)
        found = debias([open_evidence(data, name) for name in list_evidence(data)], data.labels(), expected=expected)
        labels = data.labels().dense()
        probability = np.nan_to_num(found.probabilities(np.arange(len(data)), labels))
        added = probability >= rule.value
        if rule.by == "precision":
            added = choose_additions(probability, labels, precision=rule.value).mask
        with atomic_write(folder / FILLED) as file:
            file.write(_table(data, probability, added).encode())
        value = entropy(probability) * rarity(probability.mean(0))
        open_pairs = ~added & (probability >= _LEAST)
        pairs = Pairs.where(open_pairs, np.arange(len(data)), probability, value, labels)
        pairs = pairs.take(np.argsort(-pairs.probability, kind="stable")[:_QUESTIONS])
        Suggestions(pair_table(data, MISSING, pairs)).save(folder / TO_REVIEW)
    right = float(probability[added].mean()) if added.any() else float("nan")
    per_photo = float(probability.sum() / max(len(data), 1))
    return FirstGuesses(folder, len(data), int(added.sum()), right, per_photo, len(pairs))


def _table(data: Dataset, probability: np.ndarray[Any, Any], added: np.ndarray[Any, Any]) -> str:
    """Each photo with what was added, most probable first."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["image", "tags", "added", "probability"])
    for row, name in enumerate(data.names()):
        chosen = np.flatnonzero(added[row])
        chosen = chosen[np.argsort(-probability[row, chosen], kind="stable")]
        shown = [f"{probability[row, label]:.3f}" for label in chosen]
        lines.writerow([name, "", "; ".join(data.classes[label] for label in chosen), "; ".join(shown)])
    return text.getvalue()
