"""The demonstration: what partial labels cost, and how much of that each method wins back.

The ceiling is trained on scenes with complete labels; the floor on one positive label per image, with all other labels
treated as absent. It is a comparison like any other, except that two methods cannot learn from one positive label per
image alone and are given other labels of the same images; the leaderboard says so, and what their labels cost:

- `se` distinguishes present from absent by known labels nearby, so it also gets labels that are known to be absent;
- `patchml` learns from locations, so the positive label of each image comes with a point; unknown labels and cells are
  treated as absent, except for the most likely ones (CSL-I and CSL-P).

The number of absent labels and the options of `patchml` were chosen on validation images of the first seed; everything
else is at its defaults.
"""

from __future__ import annotations

from pathlib import Path

from tagfill import protocols, scenes
from tagfill.data.extract import features
from tagfill.dataset import Dataset
from tagfill.experiments.comparison import MethodSpec, compare
from tagfill.experiments.leaderboard import Leaderboard
from tagfill.models import create_backbone
from tagfill.progress import SILENT, Progress

DRAW_SEED = 1200  # of the published draw of single positives
ABSENT = 4  # absent labels per image for `se`
PATCHML_OPTIONS = {  # k_image is the mean number of missing labels per image, k_patch half of the cells
    "image_unknown": "selective",
    "patch_unknown": "selective",
    "w_patch": 5.0,
    "k_image": 2,
    "k_patch": 25,
}


def demo(
    out: Path,
    *,
    epochs: int = 25,
    seeds: int = 1,
    sizes: tuple[int, int, int] = (600, 200, 400),
    jobs: int | None = None,
    report: bool = True,
    progress: Progress = SILENT,
) -> Leaderboard:
    """Simulate, cache features, train, compare and report; a second call reuses what exists.

    Args:
        out: folder for the simulated datasets, the runs, the leaderboard and the report.
        epochs: of each run.
        seeds: number of runs per method.
        sizes: numbers of training, validation and test images.
        jobs: number of processes; one per core by default.
        report: also write the report.
        progress: receives progress and messages.

    Returns:
        The leaderboard, best first.
    """
    create_backbone("tf_efficientnet_lite0", pretrained="bundled")  # raises first if weights have to be installed
    progress.say("Comparing methods on scenes with one known label per image, against the same scenes with all labels.")
    data = scenes.make(train=sizes[0], val=sizes[1], test=sizes[2], progress=progress)
    part = _save_once(protocols.single_positive(data, seed=DRAW_SEED), out / "data" / "single-positive")
    with_absent = protocols.k_positives(data, num_pos=1, num_neg=ABSENT, seed=DRAW_SEED)
    with_points = protocols.k_positives(data, num_pos=1, kind="SP", seed=DRAW_SEED)
    absent = _save_once(with_absent, out / "data" / "some-absent")
    points = _save_once(with_points, out / "data" / "single-points")
    methods = [
        MethodSpec("role", "role"),
        MethodSpec("ll-r:boost=5", "ll-r", {"boost": 5}),
        MethodSpec("en+scl", "en+scl"),
        MethodSpec("se", "se", dataset=absent.folder, note=f"also given {ABSENT} absent labels per image"),
        MethodSpec(
            "patchml",
            "patchml",
            options={"patchml": PATCHML_OPTIONS},
            dataset=points.folder,
            note="the label of each image has a point; CSL-I and CSL-P",
        ),
    ]
    known = part.labels("train").positives.sum()
    progress.say(f"{len(part):,} images, {len(part.classes)} classes, {known:,} known training labels")
    cache = features(data, progress=progress)
    return compare(
        part,
        methods,
        out=out,
        seeds=seeds,
        epochs=epochs,
        features=cache.folder,
        jobs=jobs,
        report=report,
        title="Scenes with one known label per image",
        progress=progress,
    )


def _save_once(part: Dataset, folder: Path) -> Dataset:
    return Dataset.open(folder) if (folder / "dataset.yaml").exists() else part.save(folder)
