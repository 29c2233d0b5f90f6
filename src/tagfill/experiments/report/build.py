"""Building a report of trained methods, from the leaderboard to the settings.

The sections of text and tables are made here, those of charts in `charts.py`, those of photographs in `galleries.py`;
`page.py` lays them out.
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
from tagfill.experiments.report import charts, galleries
from tagfill.experiments.report.model_scores import ImageSample, score_models
from tagfill.experiments.report.page import unique_names, write
from tagfill.experiments.report.report_data import ReportData, TrainedMethod
from tagfill.experiments.report.section import Listing, Section, Table
from tagfill.experiments.runs import FULL, Outcome, complete_dataset, score_run
from tagfill.labels import LabelMatrix
from tagfill.progress import SILENT, Progress
from tagfill.training import Recipe, Run

_NEED_COMPLETE_LABELS = ("bce", "bce-ls")


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
    """Write a report about finished runs on one dataset.

    Args:
        runs: their folders. Runs that differ only in their seed become one row of the leaderboard.
        out: the page; a Markdown version and a folder with figures go beside it.
        dataset: the dataset, if it has moved since the first run on partial labels was trained.
        split: to score.
        title: of the page.
        analyses: folders that `tagfill analyze` wrote; each becomes a section.
        progress: receives progress and messages.

    Returns:
        The path of the page.

    Raises:
        TagfillError: if a run is not finished or was trained on other images.
    """
    opened = [Run.open(folder) for folder in runs]
    if not opened:
        raise TagfillError("There is nothing to report on; give at least one run folder.")
    partial = (run for run in opened if not _needs_complete_labels(run.recipe))
    data = Dataset.open(dataset or next(partial, opened[0]).recipe.dataset)
    for run in opened:
        if run.description()["identities"]["images"] != data.identities["images"]:
            raise TagfillError(
                f"{run.folder} was trained on other images than those of {data.name}; a report is about runs on one "
                "dataset."
            )
        _ = run.best  # raises if the run is not finished
    methods = []
    for name, group in _group_by_settings(opened).items():
        outcomes = []
        for run in group:
            outcome = Outcome.read(run.folder)
            if outcome is None or outcome.split != split:
                outcome = score_run(run, data, split=split)
            outcomes.append(outcome)
        complete = _needs_complete_labels(group[0].recipe)
        score = Score.from_outcomes(name, outcomes, complete=complete)
        methods.append(TrainedMethod(name, tuple(group), score, complete))
    report = ReportData.rank(data, _open_truth(data, progress), split, methods)
    more = [Section.open(Path(folder)) for folder in analyses]
    return write_report(report, Path(out), title=title, more=more, progress=progress)


def write_report(
    report: ReportData,
    path: Path,
    *,
    title: str | None = None,
    more: Sequence[Section] = (),
    progress: Progress = SILENT,
) -> Path:
    """Write the page and its Markdown version, with `more` sections before the last one; return the page's path."""
    *sections, last = build_sections(report, progress)
    return write(
        [*sections, *more, last],
        path,
        title=title or f"Methods on {report.data.name}",
        facts=key_facts(report) if report.methods else {},
    )


def build_sections(report: ReportData, progress: Progress = SILENT) -> list[Section]:
    """All sections that have content; without a single score, only the data and why there are no scores."""
    if not report.methods:
        return [data_section(report), leaderboard_section(report)]
    train = ImageSample.draw(report.data, report.truth, "train")
    scored = ImageSample.draw(report.data, report.truth, report.split)
    scores = score_models(report, train, scored, progress)
    sections = [
        leaderboard_section(report),
        data_section(report),
        charts.learning_curve_section(report),
        charts.class_section(report, scores),
        charts.distribution_section(report, scores, train),
        charts.recovery_section(report, scores, train),
    ]
    try:
        sections += [galleries.class_map_section(report), galleries.suspect_section(report, scores)]
    except TagfillError as error:  # runs on cached features do not need the images, which may be gone
        progress.say(f"The report shows no images. {error}")
    sections.append(settings_section(report))
    return [section for section in sections if section is not None]


def key_facts(report: ReportData) -> dict[str, str]:
    """The few numbers at the top of the page."""
    best, labels = report.best, report.data.labels("train")
    facts = {"best on partial labels" if report.ceiling else "best": best.name, "its mAP": f"{best.score.mean:.1f}"}
    if report.ceiling is not None and report.ceiling is not best:
        facts["mAP with complete labels"] = f"{report.ceiling.score.mean:.1f}"
    if report.floor is not None and report.floor is not best:
        facts["mAP if unknown means absent"] = f"{report.floor.score.mean:.1f}"
    if not math.isnan(best.score.gap_closed) and best is not report.floor:
        facts["gap closed"] = f"{best.score.gap_closed:.0%}"
    facts["known training labels"] = f"{100 * _known_share(labels):.3g}%"
    return facts


def leaderboard_section(report: ReportData) -> Section:
    """All scores, best first."""
    board, seeds = report.board, max(len(score.values) for score in report.board.scores)
    has_gap = any(not math.isnan(score.gap_closed) for score in board.scores)
    has_cost = any(score.annotation_seconds is not None for score in board.scores)
    text = f"Mean average precision (mAP) on the split `{board.split}`, for the epoch with the best validation mAP. "
    if seeds == 1:
        text += "There is one seed per method: small differences mean nothing."
    else:
        text += f"Mean and standard deviation over {seeds} seeds."
    notes = [board.note] if board.note else []
    if has_gap:
        notes.append(
            "Gap closed: 0% is the score of `an`, which treats unknown labels as absent; 100% is the best score with "
            f"complete labels, that of `{report.ceiling.name if report.ceiling else FULL}`. What changes inference, "
            "such as a boost or an ensemble, is shown with complete labels too."
        )
    if has_cost:
        notes.append(
            "Annotation: the time to annotate the training labels, at 1 s per label plus 1.4 s per point. Methods with "
            "different times were given different labels and are not compared at equal cost."
        )
    rows = []
    for score in board.scores:
        row: list[object] = [score.name, None if score.error else score.mean]
        row += [None if score.error else score.deviation] if seeds > 1 else []
        row += [None if math.isnan(score.gap_closed) else score.gap_closed] if has_gap else []
        row += [None if score.annotation_seconds is None else score.annotation_seconds / 60] if has_cost else []
        row += [None if score.error else fmean(score.seconds)]
        rows.append((*row, score.notes()))
    columns = ["method", f"{board.split} mAP", *(["±"] if seeds > 1 else []), *(["gap closed"] if has_gap else [])]
    columns += [*(["annotation, min"] if has_cost else []), "training, s", "notes"]
    table = Table(
        "leaderboard",
        "Best first; training time is that of one run.",
        tuple(columns),
        rows,
        formats={
            f"{board.split} mAP": ".2f",
            "±": ".2f",
            "gap closed": ".0%",
            "annotation, min": ",.0f",
            "training, s": ".0f",
        },
        bars=("gap closed",),
        swatches=report.colors(),
    )
    return Section("leaderboard", "Leaderboard", (text,), tables=(table,), notes=tuple(notes))


def data_section(report: ReportData) -> Section:
    """Images, splits, classes, and the labels that the methods were given."""
    data = report.data
    labels = data.labels("train")
    pairs = len(labels) * labels.width
    positives, negatives = int(labels.positives.sum()), int(labels.negatives.sum())
    text = [
        f"The dataset `{data.name}` has {len(data):,} images and {len(data.classes):,} classes. The {len(labels):,} "
        f"training images have {pairs:,} labels, one per class: {positives:,} are known to be present, {negatives:,} "
        f"are known to be absent, and {pairs - positives - negatives:,} are unknown."
    ]
    if report.truth is not None:
        missing = int(report.truth.labels("train").positives.sum()) - positives
        text.append(
            f"The missing labels were simulated, so the truth is known: {missing:,} present labels are missing."
        )
    if data.protocol is not None:
        details = [f"seed {data.protocol['seed']}"]
        details += [f"{name}={value}" for name, value in dict(data.protocol.get("parameters", {})).items()]
        text.append(f"Protocol `{data.protocol['name']}`, {', '.join(details)}.")
    rows = []
    for name, members in data.splits.items():
        known = data.labels(name)
        rows.append((name, len(members), int(known.positives.sum()), int(known.negatives.sum()), _known_share(known)))
    columns = ("split", "images", "present", "absent", "known")
    table = Table("splits", "Labels of each split.", columns, rows, formats={"known": ".1%"})
    return Section("data", "Data", tuple(text), tables=(table,))


def settings_section(report: ReportData) -> Section:
    """Recipes, software versions and dataset hashes."""
    description = report.methods[0].run.description()
    rows = [(name, str(version)) for name, version in description["versions"].items()]
    rows += [(f"hash of {name}", value[:16]) for name, value in report.data.identities.items()]
    table = Table("versions", "Software versions, and hashes of the dataset's content.", ("item", "value"), rows)
    listings = [
        Listing(f"{method.name}: recipe of {method.run.folder.name}", method.run.recipe.to_yaml())
        for method in report.methods
    ]
    text = (
        "Each run folder holds its complete recipe. `tagfill train --recipe RUN/recipe.yaml` repeats the run; on the "
        "same machine with the same versions the result is identical to the last byte. Recipes of the first seed:",
    )
    return Section("settings", "Settings", text, tables=(table,), listings=tuple(listings))


def _known_share(labels: LabelMatrix) -> float:
    return float(labels.known.sum()) / max(len(labels) * labels.width, 1)


def _needs_complete_labels(recipe: Recipe) -> bool:
    return recipe.method.split("+")[0] in _NEED_COMPLETE_LABELS


def _group_by_settings(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs that differ only in their seed, named as a comparison would name them."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = run.recipe.model_dump(mode="json", exclude={"seed"})
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    names = []
    for run, *_ in groups.values():
        options = "".join(f":{name}={value}" for name, value in run.recipe.head_options.items())
        names.append(f"{FULL if run.recipe.method == 'bce' else run.recipe.method}{options}")
    return dict(zip(unique_names(names), groups.values(), strict=True))


def _open_truth(data: Dataset, progress: Progress) -> Dataset | None:
    """The same images with complete labels, if the dataset was simulated from labels that can still be read."""
    if data.truth is None:
        return None
    try:
        return complete_dataset(data)
    except DatasetError as error:
        progress.say(f"The report does not use the true labels. {error}")
        return None
