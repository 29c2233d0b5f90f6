"""The demonstration: what partial labels cost, and how much of it each method wins back.

Scenes with complete labels are the ceiling, one positive label an image with the rest assumed absent is the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tagfill import protocols, scenes
from tagfill.annotations import Dataset
from tagfill.experiments.caching import features
from tagfill.files import replacing
from tagfill.loading import FeatureCache
from tagfill.metrics import gap_closed
from tagfill.progress import SILENT, Progress
from tagfill.training import Run, evaluate, resume, train

CEILING, FLOOR = "full labels", "an"
METHODS = (FLOOR, "role", "en+scl")
REPORT = "report.md"


@dataclass(frozen=True)
class Row:
    """A line of the leaderboard: mAP on test in percent, and the share of the gap that the method closes."""

    method: str
    mean: float
    gap_closed: float
    run: Run


def demo(
    out: Path,
    *,
    epochs: int = 25,
    seed: int = 0,
    sizes: tuple[int, int, int] = (600, 200, 400),
    progress: Progress = SILENT,
) -> list[Row]:
    """Simulate, cache, train and compare; a run that exists already is not made again.

    Args:
        out: the folder for the simulated dataset and the runs.
        epochs: of each method.
        seed: of the runs.
        sizes: numbers of training, validation and test images.
        progress: told about everything.

    Returns:
        The leaderboard, best first.
    """
    data = scenes.make(train=sizes[0], val=sizes[1], test=sizes[2], progress=progress)
    part_folder = out / "scenes-single-positive"
    part = protocols.single_positive(data, seed=1200)
    if not (part_folder / "dataset.yaml").exists():
        part.save(part_folder)
    part = Dataset.open(part_folder)
    progress.say(
        f"{len(part):,} images, {len(part.classes)} classes; {part.labels('train').positives.sum():,} labels known"
    )
    cache = features(data, progress=progress)
    scores: dict[str, tuple[float, Run]] = {}
    for name in (CEILING, *METHODS):
        dataset, method = (data, "bce") if name == CEILING else (part, name)
        run = _train(dataset, method, cache, out / "runs" / name.replace(" ", "-"), epochs, seed, progress)
        scores[name] = (evaluate(run, dataset, split="test", features=cache.folder).mean, run)
        progress.say(f"{name}: test mAP {100 * scores[name][0]:.2f}")
    floor, ceiling = scores[FLOOR][0], scores[CEILING][0]
    rows = [Row(name, 100 * mean, gap_closed(mean, floor, ceiling), run) for name, (mean, run) in scores.items()]
    rows.sort(key=lambda row: -row.mean)
    with replacing(out / REPORT) as file:
        file.write(report(part, rows).encode())
    return rows


def report(part: Dataset, rows: list[Row]) -> str:
    """The leaderboard and the learning curves as Markdown."""
    board = [
        f"| {row.method} | {row.mean:.2f} | {row.gap_closed:.0%} | {row.run.best['epoch']} | `{row.run.folder.name}` |"
        for row in rows
    ]
    curves = {row.method: [line["val_mAP"] for line in row.run.metrics()] for row in rows}
    epochs = len(next(iter(curves.values())))
    shown = sorted({1, *range(5, epochs + 1, 5), epochs})
    lines = [
        "# Scenes with one known label an image",
        "",
        f"{len(part.split('train')):,} training images with {int(part.labels('train').positives.sum()):,} known labels "
        f"in {len(part.classes)} classes; {len(part.split('val')):,} validation images chose the epoch, "
        f"{len(part.split('test')):,} test images gave the scores. The gap is that between `an`, which reads unknown "
        "as absent, and training on full labels.",
        "",
        "| method | test mAP | gap closed | best epoch | run |",
        "|---|---:|---:|---:|---|",
        *board,
        "",
        "Validation mAP by epoch:",
        "",
        "| method | " + " | ".join(map(str, shown)) + " |",
        "|---|" + "---:|" * len(shown),
        *(f"| {name} | " + " | ".join(f"{curve[e - 1]:.1f}" for e in shown) + " |" for name, curve in curves.items()),
        "",
        "Each run folder holds its complete recipe; `tagfill train --recipe RUN/recipe.yaml` trains it again.",
        "",
    ]
    return "\n".join(lines)


def _train(
    dataset: Dataset, method: str, cache: FeatureCache, folder: Path, epochs: int, seed: int, progress: Progress
) -> Run:
    if (folder / "run.json").exists():
        return resume(folder, progress=progress)
    return train(dataset, method=method, features=cache, epochs=epochs, seed=seed, out=folder, progress=progress)
