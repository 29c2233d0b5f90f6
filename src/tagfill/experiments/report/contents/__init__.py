"""What the report of trained models says, from the leaderboard to the settings.

The parts are made here; `tagfill.experiments.report.page` lays them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tagfill.errors import TagfillError
from tagfill.experiments.report.contents import measured, overview, shown
from tagfill.experiments.report.contents.looking import Look, Part, look
from tagfill.experiments.report.contents.material import Entrant, Material
from tagfill.experiments.report.contents.settings import settings
from tagfill.experiments.report.page import write
from tagfill.experiments.report.section import Section
from tagfill.progress import SILENT, Progress

__all__ = ["Entrant", "Material", "sections", "write_report"]


def write_report(
    material: Material,
    path: Path,
    *,
    title: str | None = None,
    summary: str = "",
    more: Sequence[Section] = (),
    progress: Progress = SILENT,
) -> Path:
    """Write the page and its Markdown twin, `more` sections before its settings; gives the path of the page."""
    *own, last = sections(material, progress)
    return write(
        [*own, *more, last],
        path,
        title=title or f"Methods on {material.data.name}",
        summary=summary,
        facts=overview.facts(material) if material.entrants else {},
    )


def sections(material: Material, progress: Progress = SILENT) -> list[Section]:
    """All parts that there is something to say in; without a single score, why."""
    if not material.entrants:
        return [overview.data(material), overview.leaderboard(material)]
    train = Part.of(material.data, material.truth, "train")
    scored = Part.of(material.data, material.truth, material.split)
    looks = look(material, train, scored, progress)
    drawn = [
        overview.leaderboard(material),
        overview.data(material),
        measured.curves(material),
        measured.classes(material, looks),
        measured.distributions(material, looks, train),
        measured.recovery(material, looks, train),
        *_pictured(material, looks, progress),
        settings(material),
    ]
    return [section for section in drawn if section is not None]


def _pictured(material: Material, looks: dict[str, Look], progress: Progress) -> list[Section | None]:
    """Sections with photographs; runs on cached features may have lost their images, which costs them these alone."""
    try:
        return [shown.heatmaps(material), shown.suspects(material, looks)]
    except TagfillError as error:
        progress.say(f"The report shows no images. {error}")
        return []
