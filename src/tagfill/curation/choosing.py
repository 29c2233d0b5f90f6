"""Tags, points or boxes: what a budget study says about so many hours.

A study's curves give the score of each kind against the share of all pairs that its hours would pay for as tags. They
are interpolated over the logarithm of that share, and not beyond its ends. The gain of a plan is the difference between
the curve after it and the curve at what is annotated already.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tagfill.errors import TagfillError, one_of
from tagfill.experiments.budgets.study import RESULTS

GOALS = {"tags": ("mAP_cls",), "places": ("mAP_loc",), "both": ("mAP_cls", "mAP_loc")}


@dataclass(frozen=True)
class Forecast:
    """What a kind of annotation is expected to give.

    Attributes:
        kind: I, SP, SB, AP or AB.
        before: score at what is annotated already, in percent.
        after: score when the hours are spent.
        within: whether the study's budgets reach that far; beyond them, `after` is that of its largest.
    """

    kind: str
    before: float
    after: float
    within: bool

    @property
    def gain(self) -> float:
        """Points."""
        return self.after - self.before


def forecasts(study: Path, goal: str, spent: float, planned: float) -> list[Forecast]:
    """What each kind of a study is expected to give, best first.

    Args:
        study: the folder that `tagfill budget` wrote, or its `budget.json`.
        goal: `tags`, `places` or `both`, whose scores count the same.
        spent: percent of all pairs that are annotated already.
        planned: percent of all pairs that the hours pay for as tags.
    """
    one_of("goal", goal, GOALS)
    path = study / RESULTS if study.is_dir() else study
    try:
        findings: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["findings"]
    except (OSError, ValueError, KeyError):
        raise TagfillError(f"{path} is no result of a budget study; make one with 'tagfill budget'.") from None
    curves: dict[str, list[tuple[float, float]]] = {}
    for finding in findings:
        scores = [np.mean(finding[name]) for name in GOALS[goal] if finding.get(name)]
        if len(scores) == len(GOALS[goal]):
            curves.setdefault(finding["kind"], []).append((finding["percent"], float(np.mean(scores))))
    if not curves:
        raise TagfillError(f"{path} has no scores for the goal '{goal}'; choose another --goal.")
    found = []
    for kind, points in curves.items():
        percents, values = zip(*sorted(points), strict=True)
        before, after = (
            float(np.interp(np.log(max(at, 1e-9)), np.log(percents), values)) for at in (spent, spent + planned)
        )
        found.append(Forecast(kind, before, after, percents[0] <= spent + planned <= percents[-1]))
    return sorted(found, key=lambda forecast: -forecast.after)
