"""The demonstration: what partial labels cost, and how much of it each method wins back.

Scenes with complete labels are the ceiling, one positive label an image with the rest assumed absent is the floor. It
is a comparison like any other, with two entries that are given other labels of the same images, because one positive
label an image and nothing else cannot teach them anything; the leaderboard says so, and what their labels cost:

- `se` tells present from absent by what is known nearby, so it needs labels that are known to be absent;
- `patchml` learns from places, so the one positive label of each image comes with a point; unknown labels and cells are
  read as absent but for the likeliest (CSL-I and CSL-P).

How many absent labels, and the options of `patchml`, were chosen on validation images of the first seed; everything
else is at its defaults.
"""

from __future__ import annotations

from pathlib import Path

from tagfill import protocols, scenes
from tagfill.data.extract import features
from tagfill.dataset import Dataset
from tagfill.experiments.comparison import compare
from tagfill.experiments.leaderboard import Leaderboard
from tagfill.experiments.runs import Entry
from tagfill.models import create_backbone
from tagfill.progress import SILENT, Progress

DRAW = 1200  # the seed of the published draw
ABSENT = 4  # labels known to be absent, an image, that `se` is given
SELECTIVE = {  # k_image is the number of labels that images of this kind lack on average, k_patch half of the cells
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
    """Simulate, cache, train, compare and report; what exists already is not made again.

    Args:
        out: the folder for the simulated datasets, the runs, the leaderboard and the report.
        epochs: of each method.
        seeds: runs of each method.
        sizes: numbers of training, validation and test images.
        jobs: processes at once; one a core by default.
        report: also write the report.
        progress: told about everything.

    Returns:
        The leaderboard, best first.
    """
    create_backbone("tf_efficientnet_lite0", pretrained="bundled")  # says what to install before anything else
    progress.say("Scenes with one known label an image, against the same scenes with all labels.")
    data = scenes.make(train=sizes[0], val=sizes[1], test=sizes[2], progress=progress)
    part = _saved(protocols.single_positive(data, seed=DRAW), out / "data" / "single-positive")
    absent = protocols.k_positives(data, num_pos=1, num_neg=ABSENT, seed=DRAW)
    points = protocols.k_positives(data, num_pos=1, kind="SP", seed=DRAW)
    wanted = entries(_saved(absent, out / "data" / "some-absent"), _saved(points, out / "data" / "single-points"))
    progress.say(
        f"{len(part):,} images, {len(part.classes)} classes; {part.labels('train').positives.sum():,} labels known"
    )
    cache = features(data, progress=progress)
    return compare(
        part,
        wanted,
        out=out,
        seeds=seeds,
        epochs=epochs,
        features=cache.folder,
        jobs=jobs,
        report=report,
        title="Scenes with one known label an image",
        progress=progress,
    )


def entries(absent: Dataset, points: Dataset) -> list[Entry]:
    """What takes part beside `an` and complete labels.

    Args:
        absent: the scenes with one label known to be present and some known to be absent.
        points: the scenes with one label known to be present, and where.
    """
    return [
        Entry("role", "role"),
        Entry("ll-r:boost=5", "ll-r", {"boost": 5}),
        Entry("en+scl", "en+scl"),
        Entry("se", "se", dataset=absent.folder, note=f"also given {ABSENT} absent labels an image"),
        Entry(
            "patchml",
            "patchml",
            options={"patchml": SELECTIVE},
            dataset=points.folder,
            note="the label of each image has a point; CSL-I and CSL-P",
        ),
    ]


def _saved(part: Dataset, folder: Path) -> Dataset:
    return Dataset.open(folder) if (folder / "dataset.yaml").exists() else part.save(folder)
