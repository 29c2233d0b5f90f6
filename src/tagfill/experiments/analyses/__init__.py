"""The figures of the papers, for anybody's runs: each analysis gives a section of a report, and knows no pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tagfill.errors import unknown_name
from tagfill.experiments.analyses.class_maps import attention, cam_agreement
from tagfill.experiments.analyses.curves import convergence, fractions
from tagfill.experiments.analyses.decisions import decisions
from tagfill.experiments.analyses.groups import groups
from tagfill.experiments.analyses.heatmap_progress import heatmap_progress
from tagfill.experiments.analyses.scores import scores
from tagfill.experiments.analyses.subjects import Question, open_subjects
from tagfill.experiments.analyses.sweep import sweep
from tagfill.experiments.report import Section
from tagfill.progress import SILENT, Progress

ANALYSES: dict[str, Callable[..., Section]] = {
    "cam-agreement": cam_agreement,
    "decisions": decisions,
    "scores": scores,
    "sweep": sweep,
    "heatmap-progress": heatmap_progress,
    "groups": groups,
    "fractions": fractions,
    "convergence": convergence,
    "attention": attention,
}


def analyse(
    name: str,
    runs: Sequence[str | Path],
    *,
    out: str | Path,
    settings: Sequence[str] = (),
    progress: Progress = SILENT,
    **options: Any,
) -> Section:
    """Look at runs in one of the ways that papers do, and save pictures and numbers.

    Args:
        name: of the analysis, see `ANALYSES`.
        runs: folders; `NAME=FOLDER` gives a run its name in figures, and several of one name are seeds.
        out: folder for pictures, numbers and the section, which a report can take in.
        settings: values that `sweep` tries.
        progress: told about what takes long.
        **options: of the analysis.

    Example:
        >>> analyse("convergence", ["runs/an", "runs/role"], out="curves").title  # doctest: +SKIP
        'Convergence'
    """
    if name not in ANALYSES:
        raise unknown_name("analysis", name, ANALYSES)
    question = Question(open_subjects(runs), Path(out), tuple(settings), progress)
    section = ANALYSES[name](question, **options)
    section.save(Path(out))
    return section


__all__ = ["ANALYSES", "Question", "analyse"]
