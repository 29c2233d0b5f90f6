"""Tags that images have already, and what they say about their other labels.

A tag that was given is present, and a label that is known to be absent is absent. Every other label of a tagged image
is less probable than in an image about which nothing is known: see `tagfill.inference.missing_tags`. How much less
depends on the share of the true tags that were given, which is measured on a sample of the images, with the calibrated
probabilities of the model.

Images of a split with complete labels are predicted like new ones, so that predictions can be compared with labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tagfill.inference.images import ImageList
from tagfill.inference.missing_tags import LabelEstimates, measure_labels, uncorrected
from tagfill.labels import POSITIVE, UNKNOWN, LabelMatrix
from tagfill.probabilities import Calibration, probabilities
from tagfill.rng import generator

SAMPLE = 1000  # images on which the share of given tags is measured


class TagUse(BaseModel):
    """How tags were used, for users and for the manifest of a file.

    Attributes:
        photos: number of images whose tags were used.
        identity: hash of the tags.
        given: share of the true tags that were given; None if the scores of the model are not calibrated.
    """

    model_config = ConfigDict(frozen=True)

    photos: int
    identity: str
    given: float | None

    def __str__(self) -> str:
        photos = f"{self.photos:,} {'photo has' if self.photos == 1 else 'photos have'} tags, which are kept as given"
        if self.given is None:
            return f"{photos}; other labels are predicted as without tags, because the model has no calibration."
        return f"{photos}; other labels get the probability that they were missed ({self.given:.0%} were given)."


@dataclass(frozen=True)
class GivenTags:
    """Known labels of a list of images.

    Attributes:
        labels: of all images, in the classes of the model.
        used: N, which images belong to a split of a dataset with incomplete labels.
        estimates: how many labels are missing; None until it was measured.
    """

    labels: LabelMatrix
    used: NDArray[np.bool_]
    estimates: LabelEstimates | None = None

    @classmethod
    def read(cls, images: ImageList, classes: Sequence[str]) -> GivenTags | None:
        """The known labels of images of datasets; None if there are none to use."""
        labels, used = images.labels(classes)
        known = np.zeros(len(labels), dtype=bool)
        known[labels.images()[labels.values != UNKNOWN]] = True
        return cls(labels, used) if (known & used).any() else None

    def sample(self) -> NDArray[np.int64]:
        """Images on which to measure how many tags were given, ascending."""
        candidates = np.flatnonzero(self.used)
        order = generator(0, "given tags").permutation(len(candidates))[:SAMPLE]
        return np.sort(candidates[order])

    def measured(
        self, numbers: NDArray[np.integer], logits: NDArray[np.floating], calibration: Calibration | None
    ) -> GivenTags:
        """These tags with the share that was given, measured on some images.

        Args:
            numbers: of these images.
            logits: n×L.
            calibration: of the model; without one nothing can be measured, and other labels keep their scores.
        """
        known = self.labels.rows(numbers)
        if calibration is None or not len(known):
            identity = Calibration.identity(self.labels.width) if calibration is None else calibration
            return replace(self, estimates=uncorrected(identity, known))
        return replace(self, estimates=measure_labels(calibration, logits, known))

    def probabilities(
        self, logits: NDArray[np.floating], numbers: NDArray[np.integer], calibration: Calibration | None
    ) -> NDArray[np.float32]:
        """Probabilities of images, given their tags: n×L.

        Args:
            logits: n×L.
            numbers: of the images in the list.
            calibration: of the model, for images without tags.
        """
        assert self.estimates is not None
        found, used = probabilities(logits, calibration), self.used[numbers]
        if used.any():
            found[used] = self.estimates(logits[used], self.labels.rows(numbers[used]))
        return found

    def of(self, number: int) -> list[int]:
        """The classes that are known to be present in an image whose tags are used."""
        if not self.used[number]:
            return []
        entries = slice(*self.labels.starts[number : number + 2])
        present: list[int] = self.labels.classes[entries][self.labels.values[entries] == POSITIVE].tolist()
        return present

    def subset(self, numbers: range) -> GivenTags:
        """The tags of consecutive images, numbered from 0."""
        index = np.arange(numbers.start, numbers.stop)
        return replace(self, labels=self.labels.take(index), used=self.used[index])

    def summary(self) -> TagUse:
        """How the tags were used."""
        digest = hashlib.sha256()
        for part in (self.labels.starts, self.labels.classes, self.labels.values, self.used):
            digest.update(np.ascontiguousarray(part).tobytes())
        calibrated = self.estimates is not None and self.estimates.calibration.fitted
        return TagUse(
            photos=int(((np.diff(self.labels.starts) > 0) & self.used).sum()),
            identity=digest.hexdigest(),
            given=self.estimates.given_share if self.estimates is not None and calibrated else None,
        )
