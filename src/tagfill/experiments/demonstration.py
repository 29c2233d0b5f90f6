"""The demonstration: what partial labels cost, and how much of it each method wins back.

Scenes with complete labels are the ceiling, one positive label an image with the rest assumed absent is the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tagfill import protocols, scenes
from tagfill.annotations import Dataset
from tagfill.experiments.caching import features
from tagfill.loading import FeatureCache
from tagfill.metrics import gap_closed
from tagfill.progress import SILENT, Progress
from tagfill.training import Run, evaluate, resume, train

CEILING, FLOOR = "full labels", "an"
METHODS = (FLOOR, "role", "en+scl")


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
    epochs: int = 15,
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
    return sorted(rows, key=lambda row: -row.mean)


def _train(
    dataset: Dataset, method: str, cache: FeatureCache, folder: Path, epochs: int, seed: int, progress: Progress
) -> Run:
    if (folder / "run.json").exists():
        return resume(folder, progress=progress)
    return train(dataset, method=method, features=cache, epochs=epochs, seed=seed, out=folder, progress=progress)
