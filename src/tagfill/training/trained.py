"""A trained model, together with the data that it is asked about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.annotations import Dataset
from tagfill.contract import Batch, Prediction
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.loading import FeatureCache, FeatureSource, PixelSource, Source
from tagfill.models import Classifier
from tagfill.training.folder import Run
from tagfill.training.passes import predict


@dataclass(frozen=True)
class Trained:
    """A model and a source of the images, or of their features, that it can look at."""

    model: Classifier
    dataset: Dataset
    source: Source

    @classmethod
    def open(
        cls,
        run: Run | str | Path,
        dataset: Dataset,
        *,
        features: str | os.PathLike[str] | None = None,
        workers: int = 0,
        maps: bool = False,
        boost: float | None = None,
        boost_from: float | None = None,
    ) -> Trained:
        """Load a model and check that it belongs to the data.

        Args:
            run: a run or its folder, or a model folder.
            dataset: with the classes that the model was trained on.
            features: a cache of the dataset's features, or its folder, to use instead of its images.
            workers: processes that decode images.
            maps: class maps will be asked for.
            boost: α of BoostLU in place of what the model was trained with; 1 is none.
            boost_from: β likewise.
        """
        folder = run.folder if isinstance(run, Run) else Path(run)
        model = Classifier.load(folder / "best" if (folder / "best").is_dir() else folder)
        if model.classes != dataset.classes:
            raise TagfillError(f"The model in {folder} was trained on other classes than dataset {dataset.name} has.")
        if boost is not None or boost_from is not None:
            model = _boosted(model, boost, boost_from)
        assert model.backbone is not None
        if features is None:
            pixels = PixelSource(dataset, model.backbone.preprocessing.size, EVAL, seed=0, workers=workers)
            return cls(model, dataset, pixels)
        cache = FeatureCache.open(features, dataset)
        if cache.manifest.fingerprint != model.backbone.fingerprint():
            raise TagfillError(f"The feature cache {features} was made by another backbone than the model in {folder}.")
        source = FeatureSource(dataset, cache, maps=model.spatial or maps, tokens=model.token, seed=0)
        return cls(model, dataset, source)

    def predict(
        self, split: str, index: NDArray[np.int64] | None = None, *, maps: bool = False, attention: bool = False
    ) -> Iterator[tuple[Batch, Prediction]]:
        """Look at these positions of a split, or at all of it."""
        positions = np.arange(len(self.dataset.split(split))) if index is None else index
        return predict(self.model, self.source, split, positions, maps=maps, attention=attention)


def _boosted(model: Classifier, boost: float | None, boost_from: float | None) -> Classifier:
    """A model that boosts in evaluation as asked for, whatever it was trained with."""
    given = {name: value for name, value in {"boost": boost, "boost_from": boost_from}.items() if value is not None}
    kept = {name: value for name, value in model.head.options.items() if name in ("boost", "boost_from")}
    return model.convert_head("cam", **{**kept, **given, "boost_train": False})
