"""What was trained on what, and the leaderboard."""

from __future__ import annotations

import math
from statistics import fmean

from tagfill.annotations import LabelMatrix
from tagfill.experiments.report.contents.material import Material
from tagfill.experiments.report.section import Section, Table


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
