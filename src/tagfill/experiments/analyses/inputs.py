"""What an analysis works on: runs under the names that figures give them, each with its dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Ranks
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.metrics import GatheredPredictions
from tagfill.progress import SILENT, Progress
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel, gather_predictions
from tagfill.training.stage import true_labels

_NOT_IN_TITLES = {"dataset", "features", "seed", "record", "threads"}


@dataclass(frozen=True)
class AnalyzedRun:
    """A run under the name that figures give it; runs of the same name are seeds of the same thing.

    Attributes:
        title: the method and the settings that distinguish it, or the name that the user gave.
        run: the run folder.
        dataset: that it was trained on.
        label: the title, with the dataset if runs of this title were trained on several.
    """

    title: str
    run: Run
    dataset: Dataset
    label: str = ""

    def load_model(self, *, maps: bool = False, boost: float | None = None) -> LoadedModel:
        """Load the model of the best epoch, on the features that it was last trained on, or on images.

        Args:
            maps: whether class maps will be predicted.
            boost: α of BoostLU, instead of the value that the model was trained with.
        """
        features = self.run.recipe.final_features
        model = LoadedModel.open(self.run, self.dataset, features=features, maps=maps, boost=boost)
        model.model.check_use(maps=maps)
        return model

    def predictions(self, split: str) -> GatheredPredictions:
        """Logits and known labels of a split."""
        return gather_predictions(self.load_model().predict(split), Ranks(), len(self.dataset.classes))

    def truth(self) -> LabelMatrix:
        """The complete labels of the training images.

        Raises:
            TagfillError: if the dataset was not simulated.
        """
        if self.dataset.truth is None:
            raise TagfillError(
                f"This analysis needs complete labels, but the dataset {self.dataset.name} of {self.run.folder} names "
                "no truth; use a dataset made by 'tagfill simulate'."
            )
        return true_labels(self.dataset, "train")


@dataclass(frozen=True)
class AnalysisInput:
    """The input of an analysis.

    Attributes:
        runs: in the order in which they were given.
        folder: for the files of an analysis that trains.
        settings: values to try, such as `options.en.expected=1.5,2.5`.
        progress: receives progress and messages.
    """

    runs: tuple[AnalyzedRun, ...]
    folder: Path = Path("analysis")
    settings: tuple[str, ...] = ()
    progress: Progress = SILENT

    @property
    def labels(self) -> list[str]:
        """The different labels, in the order of the runs."""
        return list(dict.fromkeys(run.label for run in self.runs))

    def seeds_of(self, label: str) -> list[AnalyzedRun]:
        """The runs of one label."""
        return [run for run in self.runs if run.label == label]

    def predictions(self, split: str) -> dict[str, list[GatheredPredictions]]:
        """Predictions of all runs for a split, by label."""
        found: dict[str, list[GatheredPredictions]] = {}
        with self.progress.bar(f"predicting {split}", len(self.runs), "runs") as bar:
            for run in self.runs:
                found.setdefault(run.label, []).append(run.predictions(split))
                bar.advance()
        return found


def open_runs(texts: Sequence[str | Path]) -> tuple[AnalyzedRun, ...]:
    """Open runs from their folders; `NAME=FOLDER` gives a run a name.

    Raises:
        TagfillError: if there is no run, or if two runs have different classes.
    """
    if not texts:
        raise TagfillError("An analysis needs at least one run; give run folders after its name.")
    pairs = [_split_name(str(text)) for text in texts]
    opened = [Run.open(folder) for _, folder in pairs]
    titles = [name or title for (name, _), title in zip(pairs, _default_titles(opened), strict=True)]
    datasets: dict[Path, Dataset] = {}
    runs = []
    for title, run in zip(titles, opened, strict=True):
        folder = (run.folder / run.recipe.dataset).resolve()
        datasets[folder] = datasets[folder] if folder in datasets else Dataset.open(folder)
        runs.append(AnalyzedRun(title, run, datasets[folder]))
    other = next((run for run in runs if run.dataset.classes != runs[0].dataset.classes), None)
    if other is not None:
        raise TagfillError(
            f"{runs[0].run.folder} and {other.run.folder} have different classes; give runs with the same classes."
        )
    return tuple(_add_labels(runs))


def _split_name(text: str) -> tuple[str, str]:
    """Name and folder; a text that is an existing folder has no name, even if it contains an equals sign."""
    name, equals, folder = text.partition("=")
    return ("", text) if not equals or Path(text).is_dir() else (name, folder)


def _default_titles(runs: Sequence[Run]) -> list[str]:
    """The method of each run, with the settings in which runs of this method differ."""
    settings = [_flatten(run.recipe.model_dump(mode="json", exclude=_NOT_IN_TITLES)) for run in runs]
    titles = []
    for run, own in zip(runs, settings, strict=True):
        title = "full labels" if run.recipe.method == "bce" else run.recipe.method
        boost = "head_options.boost"
        if own.get(boost, 1.0) != 1.0:
            title += f" + boost {own[boost]:g}"
        alike = [other for other in settings if other["method"] == own["method"]]
        differing = [key for key, value in own.items() if any(other.get(key) != value for other in alike)]
        shown = [f"{key.rpartition('.')[2]} {own[key]}" for key in differing if not key.startswith(boost)]
        titles.append(", ".join([title, *shown]))
    return titles


def _flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their paths."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = {str(at): part for at, part in enumerate(content)}
    if not isinstance(content, dict) or not content:
        return {prefix.removesuffix("."): content} if not isinstance(content, dict) else {}
    return {key: value for name, part in content.items() for key, value in _flatten(part, f"{prefix}{name}.").items()}


def _add_labels(runs: list[AnalyzedRun]) -> list[AnalyzedRun]:
    """Set labels: the title, with the dataset's folder if runs of this title have several datasets."""
    folders: dict[str, set[Path]] = {}
    for run in runs:
        assert run.dataset.folder is not None
        folders.setdefault(run.title, set()).add(run.dataset.folder)
    labeled = []
    for run in runs:
        own, all_folders = run.dataset.folder, folders[run.title]
        assert own is not None
        label = run.title
        if len(all_folders) > 1:
            same_name = sum(folder.name == own.name for folder in all_folders)
            label += f" on {own.name if same_name == 1 else own}"
        labeled.append(replace(run, label=label))
    return labeled


def file_name(label: str) -> str:
    """A label as part of a file name.

    >>> file_name("en+scl on a/b")
    'en-scl-on-a-b'
    """
    return "".join(letter if letter.isalnum() else "-" for letter in label)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation without NaN; the deviation of a single value is 0.

    >>> mean_and_deviation([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951)
    """
    known: NDArray[np.float64] = np.asarray([value for value in values if not np.isnan(value)], dtype=np.float64)
    if not len(known):
        return float("nan"), 0.0
    return float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else 0.0
