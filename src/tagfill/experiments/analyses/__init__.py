"""Analyses: the figures of the papers for any runs. Each analysis returns a section for a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tagfill.deprecation import renamed
from tagfill.errors import unknown_name
from tagfill.experiments.analyses.class_maps import analyze_attention, analyze_cam_agreement
from tagfill.experiments.analyses.curves import analyze_convergence, analyze_fractions
from tagfill.experiments.analyses.groups import analyze_groups
from tagfill.experiments.analyses.heatmap_progress import analyze_heatmap_progress
from tagfill.experiments.analyses.inputs import AnalysisInput, open_runs
from tagfill.experiments.analyses.method_decisions import analyze_decisions
from tagfill.experiments.analyses.scores import analyze_scores
from tagfill.experiments.analyses.sweep import analyze_sweep
from tagfill.experiments.report import Section
from tagfill.progress import NOTEBOOK, Progress

ANALYSES: dict[str, Callable[..., Section]] = {
    "cam-agreement": analyze_cam_agreement,
    "decisions": analyze_decisions,
    "scores": analyze_scores,
    "sweep": analyze_sweep,
    "heatmap-progress": analyze_heatmap_progress,
    "groups": analyze_groups,
    "fractions": analyze_fractions,
    "convergence": analyze_convergence,
    "attention": analyze_attention,
}


def analyze(
    name: str,
    runs: Sequence[str | Path],
    *,
    out: str | Path,
    settings: Sequence[str] = (),
    progress: Progress = NOTEBOOK,
    **options: Any,
) -> Section:
    """Analyze finished runs, and save pictures and numbers.

    Args:
        name: of the analysis, see `ANALYSES`.
        runs: run folders. `NAME=FOLDER` sets the name of a run in figures; runs of the same name are seeds.
        out: folder for pictures, numbers and the section, which a report can include.
        settings: values that `sweep` tries.
        progress: receives progress and messages.
        **options: of the analysis.

    Example:
        >>> analyze("convergence", ["runs/an", "runs/role"], out="curves").title  # doctest: +SKIP
        'Convergence'
    """
    if name not in ANALYSES:
        raise unknown_name("analysis", name, ANALYSES)
    section = ANALYSES[name](AnalysisInput(open_runs(runs), Path(out), tuple(settings), progress), **options)
    section.save(Path(out))
    return section


__all__ = ["ANALYSES", "AnalysisInput", "analyze"]

__getattr__ = renamed(__name__, {"analyse": "analyze", "Question": "AnalysisInput"})
