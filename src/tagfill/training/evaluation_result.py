"""The scores of a model on a split, as numbers, as rows of a table and as plain values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagfill.deprecation import warn_renamed
from tagfill.images.notebook import Tag, Tile, counts_table, never_raises, panel, photo_grid
from tagfill.io import nan_to_none, spreadsheet_cell
from tagfill.metrics import (
    Confusion,
    Counts,
    Definition,
    Empty,
    Interval,
    LocalizationScores,
    PrecisionRecall,
    Reliability,
)
from tagfill.training import evaluation_plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_CLASSES = 5  # best and worst classes of a display


@dataclass(frozen=True)
class Mistake:
    """A label that the model is confident about, and that is wrong according to the annotations.

    Attributes:
        image: path below the image root.
        label: class.
        probability: of the class, as predicted.
        present: whether it is annotated as present.
    """

    image: str
    label: str
    probability: float
    present: bool


@dataclass(frozen=True)
class Evaluation:
    """How well a model ranks and labels the images of a split.

    Entries whose truth is unknown are left out of everything, class by class.

    Attributes:
        split: that was scored.
        classes: names.
        average_precision: of each class in 0…1; NaN without a known positive, and with `skip` also without a known
            negative.
        images: number of images scored.
        known: number of known labels of each class.
        positives: number of images known to show each class.
        thresholds: of each class, the probability from which it is predicted as present.
        thresholds_from: where they come from.
        counts: true and false positives and negatives at the thresholds.
        at_k: precision and recall of the best k classes of an image, by k.
        top_1: share of images whose best class is present.
        calibration_error: expected calibration error of the probabilities.
        calibration_from: `measured` on complete labels or `estimated` from tags; None if the model is not calibrated.
        raw_calibration_error: the same error without calibration.
        by_label_count: mAP over images with 1, 2, 3, 4 or more present labels, and the number of these images.
        definition: of average precision.
        empty: how a class without a known positive or negative counts in the mean, see `tagfill.evaluate`.
        confusions: classes that are predicted where another is present, strongest first.
        interval: bootstrap interval of mAP over images, if requested.
        ceiling: average precision of the model to compare with, if there is one.
        groups: mean average precision of groups of classes, rarest in training first, if requested.
        localized: how well class maps locate the classes, if requested.
        precision_at_recall: of each class, the best precision at a recall of 0, 0.01, …, 1 or higher; L×101.
        reliability: predicted probabilities and observed frequencies.
        mistakes: the most confident ones, at most one per image.
        root: where the images are.
    """

    split: str
    classes: tuple[str, ...]
    average_precision: NDArray[np.float64]
    images: int
    known: NDArray[np.int64]
    positives: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    thresholds_from: str
    counts: Counts
    at_k: dict[int, PrecisionRecall]
    top_1: float
    calibration_error: float
    by_label_count: dict[str, tuple[float, int]]
    definition: Definition = "step"
    empty: Empty = "skip"
    calibration_from: str | None = None
    raw_calibration_error: float = float("nan")
    confusions: list[Confusion] = field(default_factory=list)
    interval: Interval | None = None
    ceiling: NDArray[np.float64] | None = None
    groups: NDArray[np.float64] | None = None
    localized: LocalizationScores | None = None
    precision_at_recall: NDArray[np.float64] | None = None
    reliability: Reliability | None = None
    mistakes: Sequence[Mistake] = ()
    root: Path | str | None = None

    @property
    def localised(self) -> LocalizationScores | None:
        """The old name of `localized`."""
        warn_renamed("Evaluation.localised", "Evaluation.localized")
        return self.localized

    @property
    def mean(self) -> float:
        """Mean average precision in 0…1; NaN if no class counts."""
        return self._mean(self.average_precision)

    @property
    def ceiling_mean(self) -> float:
        """Mean average precision of the ceiling; NaN without one."""
        return float("nan") if self.ceiling is None else self._mean(self.ceiling)

    @property
    def unknown(self) -> int:
        """Number of (image, class) entries that were left out because their truth is unknown."""
        return self.images * len(self.classes) - int(self.known.sum())

    @property
    def loss(self) -> NDArray[np.float64] | None:
        """What each class loses against the ceiling, in 0…1."""
        return None if self.ceiling is None else self.ceiling - self.average_precision

    def _mean(self, values: NDArray[np.float64]) -> float:
        if self.empty == "zero":
            values = np.where(np.isnan(values) & (self.known > 0), 0.0, values)
        counted = values[~np.isnan(values)]
        return float(counted.mean()) if len(counted) else float("nan")

    def order(self) -> NDArray[np.intp]:
        """Classes, worst first: by what they lose against the ceiling, or without one by their average precision."""
        badness = -self.average_precision if self.loss is None else self.loss
        return np.argsort(-badness, kind="stable")  # NaN comes last

    def plot(self) -> Figure:
        """Plot the classes, precision against recall, and calibration side by side.

        Returns:
            A matplotlib figure. As the last line of a notebook cell it is shown; `savefig` writes it to a file.
        """
        return evaluation_plots.draw(
            self,
            evaluation_plots.plot_classes,
            evaluation_plots.precision_recall_plot(None),
            evaluation_plots.plot_calibration,
        )

    def plot_classes(self) -> Figure:
        """Plot the average precision of each class; of many classes, the best and the worst."""
        return evaluation_plots.draw(self, evaluation_plots.plot_classes)

    def plot_precision_recall(self, classes: Sequence[str] | None = None) -> Figure:
        """Plot precision against recall.

        Args:
            classes: to plot; by default the mean over classes, and some classes from the best to the worst.
        """
        return evaluation_plots.draw(self, evaluation_plots.precision_recall_plot(classes))

    def plot_calibration(self) -> Figure:
        """Plot how often labels are present that are predicted with some probability; the diagonal is ideal."""
        return evaluation_plots.draw(self, evaluation_plots.plot_calibration)

    def __repr__(self) -> str:
        return (
            f"<Evaluation of {self.split}: mAP {100 * self.mean:.2f} over {len(self.classes):,} classes, "
            f"{self.images:,} images, mF1 {100 * self.counts.mean_f1:.2f}, ECE {100 * self.calibration_error:.2f}>"
        )

    @never_raises
    def _repr_html_(self) -> str:
        known = f"{self.images:,} images of {self.split}, {len(self.classes):,} classes"
        numbers = {
            "mAP": 100 * self.mean,
            "mF1": 100 * self.counts.mean_f1,
            "top 1": 100 * self.top_1,
            "calibration error": 100 * self.calibration_error,
        }
        if self.ceiling is not None:
            numbers["mAP of the ceiling"] = 100 * self.ceiling_mean
        at = self.columns().index("threshold")
        rows = [[*row[:at], f"{row[at]:.2f}", *row[at + 1 :]] for row in self.rows() if row[1] is not None]
        few = len(rows) <= 2 * _SHOWN_CLASSES
        shown = rows if few else [*rows[:_SHOWN_CLASSES], *rows[-_SHOWN_CLASSES:]]
        which = "Classes, worst first" if few else f"The {_SHOWN_CLASSES} worst and the {_SHOWN_CLASSES} best classes"
        tiles = [
            Tile(one.image, [Tag(one.label, "doubted" if one.present else "added", one.probability)])
            for one in self.mistakes
        ]
        photos = "" if self.root is None else photo_grid(self.root, tiles)
        legend = "Most confident mistakes: + predicted but annotated as absent, ? annotated but hardly predicted."
        return panel(
            f"Evaluation of {known}",
            counts_table(list(numbers), [list(numbers.values())]),
            f"{which}; scores in percent:" + counts_table(self.columns(), shown, limit=2 * _SHOWN_CLASSES),
            legend if photos else "",
            photos,
            hint="`.plot()` shows all classes, precision and recall, and calibration; `.rows()` are the numbers.",
        )

    def columns(self) -> list[str]:
        """Names of the columns of `rows`."""
        against = [] if self.ceiling is None else ["ceiling AP", "loss"]
        placed = [] if self.localized is None else ["AP-loc"]
        return ["class", "AP", *against, *placed, "F1", "precision", "recall", "threshold", "positives", "known"]

    def rows(self) -> list[list[Any]]:
        """One row per class, worst first, with the `columns`: percent except thresholds; None if there is no value."""
        values: dict[str, NDArray[Any]] = {
            "AP": 100 * self.average_precision,
            "F1": 100 * self.counts.f1,
            "precision": 100 * self.counts.precision,
            "recall": 100 * self.counts.recall,
            "threshold": self.thresholds,
            "positives": self.positives,
            "known": self.known,
        }
        if self.ceiling is not None and self.loss is not None:
            values |= {"ceiling AP": 100 * self.ceiling, "loss": 100 * self.loss}
        if self.localized is not None:
            values["AP-loc"] = 100 * self.localized.average_precision.mean(1)
        names = self.columns()[1:]
        return [[self.classes[c], *(nan_to_none(values[name][c].item()) for name in names)] for c in self.order()]

    def to_csv(self, *, spreadsheet: bool = False) -> str:
        """The table of classes as CSV with a header.

        Args:
            spreadsheet: write an apostrophe before names that a spreadsheet would run as formulas.
        """
        protect = spreadsheet_cell if spreadsheet else str
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns())
        writer.writerows([protect(str(name)), *numbers] for name, *numbers in self.rows())
        return text.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON: shares in percent, None if there is no value, classes in the order of `rows`."""
        names = [_JSON_NAMES.get(name, name) for name in self.columns()]
        found: dict[str, Any] = {
            "split": self.split,
            "images": self.images,
            "unknown": self.unknown,
            "mAP": _percent(self.mean),
            "definition": self.definition,
            "empty": self.empty,
            "classes_without_positives": int((self.positives == 0).sum()),
            "thresholds_from": self.thresholds_from,
            "mF1": _percent(self.counts.mean_f1),
            "CF1": _percent(self.counts.class_f1),
            "OF1": _percent(self.counts.overall_f1),
            "precision_at": {str(k): _percent(best.precision) for k, best in self.at_k.items()},
            "recall_at": {str(k): _percent(best.recall) for k, best in self.at_k.items()},
            "top_1": _percent(self.top_1),
            "ECE": _percent(self.calibration_error),
            "calibration_from": self.calibration_from,
            "raw_ECE": _percent(self.raw_calibration_error),
            "mAP_by_label_count": {
                name: {"images": images, "mAP": _percent(value)}
                for name, (value, images) in self.by_label_count.items()
            },
            "classes": [dict(zip(names, row, strict=True)) for row in self.rows()],
            "confusions": [
                {
                    "predicted": self.classes[one.predicted],
                    "shown": self.classes[one.shown],
                    "images": one.together,
                    "expected": one.expected,
                    "rate": 100 * one.rate,
                }
                for one in self.confusions
            ],
        }
        if self.interval is not None:
            found["mAP_interval"] = {
                "low": _percent(self.interval.low),
                "high": _percent(self.interval.high),
                "level": self.interval.level,
                "resamples": self.interval.resamples,
            }
        if self.ceiling is not None:
            found["ceiling_mAP"] = _percent(self.ceiling_mean)
        if self.groups is not None:
            found["mAP_by_group"] = [_percent(value) for value in self.groups.tolist()]
        if self.localized is not None:
            found["mAP_loc"] = _percent(self.localized.mean)
            found["mAP_loc_at"] = {str(at): _percent(value) for at, value in self.localized.means().items()}
        return found


_JSON_NAMES = {"ceiling AP": "ceiling_AP", "AP-loc": "AP_loc"}


def _percent(value: float) -> float | None:
    return nan_to_none(100 * value)
