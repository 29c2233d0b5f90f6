"""What was trained on what, and the leaderboard.

What it takes to make the runs again.

What the report of trained models says, from the leaderboard to the settings.

The parts are made here; `tagfill.experiments.report.page` lays them out.

A report about runs that are there already, however they were made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, TagfillError
from tagfill.experiments.leaderboard import Score
from tagfill.experiments.report import sections
from tagfill.experiments.report.material import Entrant, Material
from tagfill.experiments.report.model_scores import Look, Part, look
from tagfill.experiments.report.page import unique, write
from tagfill.experiments.report.section import Listing, Section, Table
from tagfill.experiments.runs import FULL, Outcome, completed, score_run
from tagfill.labels import LabelMatrix
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, Run


def data(material: Material) -> Section:
    """Images, splits, classes, and which labels the methods were given."""
    part = material.data
    labels = part.labels("train")
    pairs = len(labels) * labels.width
    positives, negatives = int(labels.positives.sum()), int(labels.negatives.sum())
    words = [
        f"{part.name}: {len(part):,} images in {len(part.classes):,} classes. Of the {pairs:,} labels of the "
        f"{len(labels):,} training images, {positives:,} are known to be present and {negatives:,} to be absent; about "
        f"the other {pairs - positives - negatives:,} nobody said anything."
    ]
    if material.truth is not None:
        missed = int(material.truth.labels("train").positives.sum()) - positives
        words.append(f"The truth is known, because the gaps were simulated: {missed:,} present labels are missing.")
    if part.protocol is not None:
        given = ", ".join(f"{name}={value}" for name, value in dict(part.protocol.get("parameters", {})).items())
        words.append(
            f"Protocol `{part.protocol['name']}`, seed {part.protocol['seed']}{', ' + given if given else ''}."
        )
    rows = []
    for name, members in part.splits.items():
        known = part.labels(name)
        rows.append((name, len(members), int(known.positives.sum()), int(known.negatives.sum()), _share(known)))
    columns = ("split", "images", "present", "absent", "known")
    splits = Table("splits", "Labels of each split.", columns, rows, formats={"known": ".1%"})
    return Section("data", "Data", tuple(words), tables=(splits,))


def leaderboard(material: Material) -> Section:
    """All scores, best first."""
    board, seeds = material.board, max(len(score.values) for score in material.board.scores)
    words = f"Mean average precision on the split `{board.split}`, of the epoch that was best on validation. " + (
        "One seed: small differences mean nothing." if seeds == 1 else f"Mean and deviation over {seeds} seeds."
    )
    gap = any(not math.isnan(score.gap_closed) for score in board.scores)
    notes = []
    if gap:
        notes.append(
            "The gap is that between `an`, which reads unknown as absent, and the same model with complete labels, "
            "`full`: 0 % is no gain, 100 % is as good as knowing everything."
        )
    costs = any(score.annotation is not None for score in board.scores)
    if costs:
        notes.append(
            "Annotation is the time that the labels of the training images cost, at 1 s for a label and 1.4 s for a "
            "point on top of it. Methods with other times were given other labels, and are not compared at equal cost."
        )
    rows = []
    for score in board.scores:
        row: list[object] = [score.name, None if score.error else score.mean]
        row += [None if score.error else score.deviation] if seeds > 1 else []
        row += [None if math.isnan(score.gap_closed) else score.gap_closed] if gap else []
        row += [None if score.annotation is None else score.annotation / 60] if costs else []
        row += [None if score.error else fmean(score.seconds)]
        rows.append((*row, score.remark()))
    columns = ["method", f"{board.split} mAP", *(["±"] if seeds > 1 else []), *(["gap closed"] if gap else [])]
    columns += [*(["annotation, min"] if costs else []), "seconds", "what is particular"]
    table = Table(
        "leaderboard",
        "Best first; seconds are those of training one run.",
        tuple(columns),
        rows,
        formats={
            f"{board.split} mAP": ".2f",
            "±": ".2f",
            "gap closed": ".0%",
            "annotation, min": ",.0f",
            "seconds": ".0f",
        },
        bars=("gap closed",),
        swatches=material.colours(),
    )
    return Section("leaderboard", "Leaderboard", (words,), tables=(table,), notes=tuple(notes))


def facts(material: Material) -> dict[str, str]:
    """The few numbers for the top of the page."""
    best, labels = material.best, material.data.labels("train")
    found = {"best on partial labels" if material.ceiling else "best": best.name, "its mAP": f"{best.score.mean:.1f}"}
    if material.ceiling is not None and material.ceiling is not best:
        found["complete labels"] = f"{material.ceiling.score.mean:.1f}"
    if material.floor is not None and material.floor is not best:
        found["unknown means absent"] = f"{material.floor.score.mean:.1f}"
    if not math.isnan(best.score.gap_closed) and best is not material.floor:
        found["of the gap closed"] = f"{best.score.gap_closed:.0%}"
    found["of the training labels known"] = f"{100 * _share(labels):.3g} %"
    return found


def _share(labels: LabelMatrix) -> float:
    return float(labels.known.sum()) / max(len(labels) * labels.width, 1)


def settings(material: Material) -> Section:
    """Recipes, versions and identities."""
    first = material.entrants[0].run.description()
    rows = [(name, str(value)) for name, value in first["versions"].items()]
    identities = [(f"identity of {name}", value[:16]) for name, value in material.data.identities.items()]
    table = Table("versions", "Software, and hashes of what the data say.", ("what", "value"), [*rows, *identities])
    listings = [
        Listing(f"{entrant.name}: recipe of {entrant.run.folder.name}", entrant.run.recipe.to_yaml())
        for entrant in material.entrants
    ]
    words = (
        "Each run folder holds its complete recipe; `tagfill train --recipe RUN/recipe.yaml` trains it again, and on "
        "the same machine with the same versions it ends with the same bytes. Recipes of the first seed:",
    )
    return Section("settings", "Settings to reproduce", words, tables=(table,), listings=tuple(listings))


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
    *own, last = report_sections(material, progress)
    return write(
        [*own, *more, last],
        path,
        title=title or f"Methods on {material.data.name}",
        summary=summary,
        facts=facts(material) if material.entrants else {},
    )


def report_sections(material: Material, progress: Progress = SILENT) -> list[Section]:
    """All parts that there is something to say in; without a single score, why."""
    if not material.entrants:
        return [data(material), leaderboard(material)]
    train = Part.of(material.data, material.truth, "train")
    scored = Part.of(material.data, material.truth, material.split)
    looks = look(material, train, scored, progress)
    drawn = [
        leaderboard(material),
        data(material),
        sections.curves(material),
        sections.classes(material, looks),
        sections.distributions(material, looks, train),
        sections.recovery(material, looks, train),
        *_pictured(material, looks, progress),
        settings(material),
    ]
    return [section for section in drawn if section is not None]


def _pictured(material: Material, looks: dict[str, Look], progress: Progress) -> list[Section | None]:
    """Sections with photographs; runs on cached features may have lost their images, which costs them these alone."""
    try:
        return [sections.heatmaps(material), sections.suspects(material, looks)]
    except TagfillError as error:
        progress.say(f"The report shows no images. {error}")
        return []


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
    return known if known is not None and known.split == split else score_run(run, data, split=split)


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
