"""What more labels are worth: mAP and mF1 against the share of labels that is known, a line a method.

Each run counts with the dataset that it was trained on. mF1 chooses a threshold for each class on validation and
applies it to the split (Sharma et al., Fig. 3).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tagfill.errors import TagfillError
from tagfill.experiments import drawing
from tagfill.experiments.analyses import charts
from tagfill.experiments.analyses.charts import plain
from tagfill.experiments.analyses.subjects import Question, Subject, mean_and_deviation
from tagfill.experiments.report import Section, Table
from tagfill.metrics import Gathered, best_thresholds, count, mean_average_precision

_NAMES = {"entries": "known labels of training, percent", "positives": "positives of training that are known, percent"}


def fractions(question: Question, *, split: str = "test", of: Literal["entries", "positives"] = "entries") -> Section:
    """Scores against the share of labels that training knew: mAP and mF1.

    Args:
        question: runs of some methods on datasets with different shares of labels.
        split: to score.
        of: the share of all pairs of image and class that are known, or of the positives, which needs the truth.
    """
    shares = {subject.dataset.folder: known_share(subject, of) for subject in question.subjects}
    if len(set(shares.values())) < 2:
        raise TagfillError("All runs were trained on the same share of labels; name runs on several.")
    found: dict[str, dict[float, list[tuple[float, float]]]] = {}
    with question.progress.bar("predicting", len(question.subjects), "runs") as bar:
        for subject in question.subjects:
            scored = subject.predictions(split)
            chosen_on = subject.predictions("val") if "val" in subject.dataset.splits else scored
            pair = 100 * mean_average_precision(scored.scores, scored.labels), 100 * mean_f1(scored, chosen_on)
            found.setdefault(subject.title, {}).setdefault(shares[subject.dataset.folder], []).append(pair)
            bar.advance()
    figure, panels = drawing.new_panels(9.2, 3.8, columns=2)
    rows: list[tuple[Any, ...]] = []
    for measure, (panel, name) in enumerate(zip(panels, ("mAP", "mF1"), strict=True)):
        for position, (title, points) in enumerate(found.items()):
            places = sorted(points)
            pairs = [mean_and_deviation([each[measure] for each in points[share]]) for share in places]
            x = [100 * share for share in places]
            charts.line(panel, x, pairs, position, title)
            rows += [
                (title, name, round(100 * share, 4), plain(m), plain(d), len(points[share]))
                for share, (m, d) in zip(places, pairs, strict=True)
            ]
        charts.dress(panel, "", _NAMES[of], f"{split} {name}, percent")
    charts.legend(figure, panels[0])
    drawn = drawing.finished(
        figure,
        "fractions",
        f"Scores on {split} against what training knew; a band is one deviation over runs.",
        f"Lines of {len(found)} methods over {len(set(shares.values()))} shares of labels.",
        Table("fractions", "Scores by share.", ("run", "measure", "known percent", "score", "deviation", "runs"), rows),
    )
    facts: dict[str, Any] = {}
    for title, name, share, score, *_ in rows:
        facts.setdefault(title, {}).setdefault(name, {})[f"{share:g}"] = score
    text = f"{len(question.subjects)} runs on {len(set(shares.values()))} different shares of the labels."
    return Section("fractions", "Shares of known labels", (text,), (drawn,), facts=facts)


def known_share(subject: Subject, of: str) -> float:
    """How much of the labels of its training images a run knew, in 0…1."""
    known = subject.dataset.labels("train")
    if of == "entries":
        return round(int(known.known.sum()) / (len(known) * known.width), 6)
    if known.complete():
        return 1.0
    return round(int(known.positives.sum()) / int(subject.truth().positives.sum()), 6)


def mean_f1(scored: Gathered, chosen_on: Gathered) -> float:
    """Mean F1 over classes, with thresholds that are best on other predictions of the same model."""
    thresholds = best_thresholds(chosen_on.scores, chosen_on.labels, default=0.0)
    return float(np.float64(count(scored.scores, scored.labels, thresholds).mean_f1))
