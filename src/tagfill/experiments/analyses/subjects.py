"""What the figures of analyses share: lines with a band over seeds, axes, a legend above them.

What an analysis looks at: runs by their names in a figure, each with its data.
"""

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
from tagfill.experiments import figures
from tagfill.labels import LabelMatrix
from tagfill.metrics import GatheredPredictions
from tagfill.progress import SILENT, Progress
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel, gather
from tagfill.training.stage import true_labels

MARKERS = "osD^vPX*<>"
_DASHES = ("-", "--", ":")


def line(panel: Any, x: Sequence[Any], points: Sequence[tuple[float, float]], position: int, label: str) -> None:
    """A line of means in the colour of its position, with a band of one deviation on either side.

    Args:
        panel: to draw on.
        x: where each point stands.
        points: mean and deviation of each.
        position: of the line among others, which decides colour and marker.
        label: for the legend.
    """
    mean, deviation = np.array(points, dtype=np.float64).reshape(-1, 2).T
    style = {"color": figures.color(position), "linestyle": _DASHES[position // len(figures.COLOURS) % len(_DASHES)]}
    marker = MARKERS[position % len(MARKERS)]
    panel.plot(x, mean, marker=marker, markersize=4.5, linewidth=1.7, label=label, **style)
    if np.nan_to_num(deviation).any():
        panel.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=0.18, linewidth=0)


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers, as epochs and counts are."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def dress(panel: Any, title: str, x: str, y: str) -> None:
    """Title, axes and a quiet grid."""
    panel.set_title(title, fontsize=11, color=figures.TEXT)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_axisbelow(True)
    panel.grid(visible=True)


def legend(figure: Any, panel: Any, *, columns: int = 4) -> None:
    """All lines of a panel, above the figure."""
    handles, labels = panel.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(columns, len(labels)), frameon=False)


_NO_NAME = {"dataset", "features", "seed", "record", "threads"}  # settings that name nothing in a figure


@dataclass(frozen=True)
class Subject:
    """A run under the name that figures give it; runs of one name are seeds of the same thing.

    Attributes:
        title: the method and what sets it apart, or what the user said.
        run: its folder.
        dataset: that it was trained on.
        label: the title, with the dataset where runs of one title were trained on several.
    """

    title: str
    run: Run
    dataset: Dataset
    label: str = ""

    def trained(self, *, maps: bool = False, boost: float | None = None) -> LoadedModel:
        """The model of the best epoch, on images or on cached features as it ended.

        Args:
            maps: class maps will be asked for.
            boost: α of BoostLU in place of what the model was trained with.
        """
        features = self.run.recipe.final_features
        trained = LoadedModel.open(self.run, self.dataset, features=features, maps=maps, boost=boost)
        trained.model.check_use(maps=maps)
        return trained

    def predictions(self, split: str) -> GatheredPredictions:
        """Logits and known labels of a split."""
        return gather(self.trained().predict(split), Ranks(), len(self.dataset.classes))

    def truth(self) -> LabelMatrix:
        """The complete labels of its training images."""
        if self.dataset.truth is None:
            raise TagfillError(
                f"This analysis compares with complete labels, but the dataset {self.dataset.name} of "
                f"{self.run.folder} names no truth; use a dataset that 'tagfill simulate' made."
            )
        return true_labels(self.dataset, "train")


@dataclass(frozen=True)
class Question:
    """All that an analysis is told.

    Attributes:
        subjects: the runs, in the order that they were named in.
        folder: where files go, for an analysis that trains.
        settings: values to try, as in `options.en.expected=1.5,2.5`.
        progress: told about what takes long.
    """

    subjects: tuple[Subject, ...]
    folder: Path = Path("analysis")
    settings: tuple[str, ...] = ()
    progress: Progress = SILENT

    @property
    def labels(self) -> list[str]:
        """Different names, in the order of the runs."""
        return list(dict.fromkeys(subject.label for subject in self.subjects))

    def seeds_of(self, label: str) -> list[Subject]:
        """The runs of one name."""
        return [subject for subject in self.subjects if subject.label == label]

    def predictions(self, split: str) -> dict[str, list[GatheredPredictions]]:
        """Logits and labels of a split by all runs, one name after the other."""
        with self.progress.bar(f"predicting {split}", len(self.subjects), "runs") as bar:
            found: dict[str, list[GatheredPredictions]] = {}
            for subject in self.subjects:
                found.setdefault(subject.label, []).append(subject.predictions(split))
                bar.advance()
        return found


def open_subjects(runs: Sequence[str | Path]) -> tuple[Subject, ...]:
    """Runs from their folders; `NAME=FOLDER` gives one a name of its own."""
    if not runs:
        raise TagfillError("An analysis needs at least one run; name run folders after its name.")
    parts = [_parted(str(run)) for run in runs]
    opened = [Run.open(folder) for _, folder in parts]
    titles = [name or title for (name, _), title in zip(parts, _titles(opened), strict=True)]
    data: dict[Path, Dataset] = {}
    subjects = []
    for title, run in zip(titles, opened, strict=True):
        place = (run.folder / run.recipe.dataset).resolve()
        data[place] = data[place] if place in data else Dataset.open(place)
        subjects.append(Subject(title, run, data[place]))
    other = next((s for s in subjects if s.dataset.classes != subjects[0].dataset.classes), None)
    if other is not None:
        raise TagfillError(
            f"{subjects[0].run.folder} and {other.run.folder} have other classes; name runs on the same ones."
        )
    return tuple(_labelled(subjects))


def _parted(text: str) -> tuple[str, str]:
    """Name and folder; folders may have an equals sign in them, so one that exists is a folder."""
    name, equals, folder = text.partition("=")
    return ("", text) if not equals or Path(text).is_dir() else (name, folder)


def _titles(runs: Sequence[Run]) -> list[str]:
    """The method of each run, and those settings in which runs of the same method differ."""
    settings = [_flat(run.recipe.model_dump(mode="json", exclude=_NO_NAME)) for run in runs]
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


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their paths."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = {str(at): part for at, part in enumerate(content)}
    if not isinstance(content, dict) or not content:
        return {prefix.removesuffix("."): content} if not isinstance(content, dict) else {}
    return {key: value for name, part in content.items() for key, value in _flat(part, f"{prefix}{name}.").items()}


def _labelled(subjects: list[Subject]) -> list[Subject]:
    """Titles, with the folder of the dataset where runs of one title have several; simulated ones share a name."""
    places: dict[str, set[Path]] = {}
    for subject in subjects:
        places.setdefault(subject.title, set()).add(_folder(subject))
    return [replace(each, label=_label(each, places[each.title])) for each in subjects]


def _label(subject: Subject, places: set[Path]) -> str:
    if len(places) == 1:
        return subject.title
    own = _folder(subject)
    alike = sum(place.name == own.name for place in places)
    return f"{subject.title} on {own.name if alike == 1 else own}"


def _folder(subject: Subject) -> Path:
    assert subject.dataset.folder is not None
    return subject.dataset.folder


def file_name(label: str) -> str:
    """The name of a run as a part of the name of a file.

    >>> file_name("en+scl on a/b")
    'en-scl-on-a-b'
    """
    return "".join(letter if letter.isalnum() else "-" for letter in label)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Over seeds; the deviation of a single one is 0, and what is not a number is left out.

    >>> mean_and_deviation([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951)
    """
    known: NDArray[np.float64] = np.asarray([value for value in values if not np.isnan(value)], dtype=np.float64)
    if not len(known):
        return float("nan"), 0.0
    return float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else 0.0
