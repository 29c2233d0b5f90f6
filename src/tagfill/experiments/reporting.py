"""A report about runs that are there already, however they were made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError, TagfillError
from tagfill.experiments.completing import completed
from tagfill.experiments.entries import FULL
from tagfill.experiments.leaderboard import Score
from tagfill.experiments.outcomes import Outcome, score
from tagfill.experiments.report.contents import Entrant, Material, write_report
from tagfill.experiments.report.page import unique
from tagfill.experiments.report.section import Section
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, Run

_COMPLETE = ("bce", "bce-ls")  # methods that refuse labels with gaps


def report_runs(
    runs: Sequence[str | Path],
    *,
    out: str | Path = "report.html",
    dataset: str | Path | None = None,
    split: str = "test",
    title: str | None = None,
    analyses: Sequence[str | Path] = (),
    progress: Progress = SILENT,
) -> Path:
    """Write the report of some finished runs of one dataset.

    Args:
        runs: their folders. Runs that differ by their seed alone become one line of the leaderboard.
        out: the page; its Markdown twin and a folder with figures go beside it.
        dataset: the data, if they are no longer where the first run with gaps in its labels found them.
        split: that gives the scores.
        title: of the page.
        analyses: folders that `tagfill analyse` wrote; each becomes a section.
        progress: told about everything.

    Returns:
        The path of the page.

    Raises:
        TagfillError: for a run that is not finished or that is about other images.
    """
    opened = [Run.open(folder) for folder in runs]
    if not opened:
        raise TagfillError("There is nothing to report on; name at least one run folder.")
    data = Dataset.open(dataset or next((r for r in opened if not _complete(r.recipe)), opened[0]).recipe.dataset)
    for run in opened:
        if run.description()["identities"]["images"] != data.identities["images"]:
            raise TagfillError(
                f"{run.folder} was trained on other images than {data.name} has; a report is about runs of one dataset."
            )
        _ = run.best  # says so if it is not finished
    entrants = [_entrant(name, group, data, split) for name, group in _groups(opened).items()]
    material = Material.of(data, _truth(data, progress), split, entrants)
    more = [Section.open(Path(folder)) for folder in analyses]
    return write_report(material, Path(out), title=title, more=more, progress=progress)


def _groups(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ by their seed alone, under a name that says what they are."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = run.recipe.model_dump(mode="json", exclude={"seed"})
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    names = unique([_name(group[0].recipe) for group in groups.values()])
    return dict(zip(names, groups.values(), strict=True))


def _name(recipe: Recipe) -> str:
    """As it would be written in a comparison."""
    options = "".join(f":{name}={value}" for name, value in recipe.head_options.items())
    return f"{FULL if recipe.method == 'bce' else recipe.method}{options}"


def _entrant(name: str, runs: list[Run], data: Dataset, split: str) -> Entrant:
    outcomes = [_outcome(run, data, split) for run in runs]
    return Entrant(name, tuple(runs), Score.of(name, outcomes, ()), _complete(runs[0].recipe))


def _outcome(run: Run, data: Dataset, split: str) -> Outcome:
    """As the run's folder has it, or scored now."""
    known = Outcome.read(run.folder)
    return known if known is not None and known.split == split else score(run, data, split=split)


def _complete(recipe: Recipe) -> bool:
    return recipe.method.split("+")[0] in _COMPLETE


def _truth(data: Dataset, progress: Progress) -> Dataset | None:
    """The same images with all labels, where they were simulated from some that can still be read."""
    if data.truth is None:
        return None
    try:
        return completed(data)
    except DatasetError as error:
        progress.say(f"The report goes without the truth. {error}")
        return None
