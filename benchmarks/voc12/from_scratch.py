"""Table D2: scenes from random weights, the whole network, with new crops at each visit."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bench import Bench
from jobs import Job, run_all
from tables import FLOOR, gain, shown, table

import tagfill

SIDE = 96
SCENES = {"train": 600, "val": 100, "test": 400}
EPOCHS = 12
BATCH = 8  # twice the steps of 16, and twice as quick to learn in a trial with full labels
LEARNED = 1.0  # mAP above chance by which something was learned
ENTRIES = {
    "full": ("scenes", "bce", 53.1 - 46.5),
    "an": ("scenes-single", "an", 0.0),
    "en": ("scenes-single", "en", 47.5 - 46.5),
    "en+cl": ("scenes-single", "en+cl", 49.1 - 46.5),
    "en+scl": ("scenes-single", "en+scl", 51.4 - 46.5),
}
"""Dataset, method, and the gain over AN of VOC 2012 from random weights in the paper of EN and SCL."""


def measure(bench: Bench) -> dict[str, Any]:
    """Scores of each entry, one per seed."""
    bench.material.made("scenes", lambda _: tagfill.scenes.make(**SCENES))
    bench.material.made("scenes-single", lambda scenes: tagfill.protocols.single_positive(scenes), of="scenes")
    epochs = 1 if bench.quick else EPOCHS
    jobs = {(name, seed): job(name, epochs, seed) for seed in range(bench.seeds) for name in ENTRIES}
    found: dict[str, list[float]] = {name: [] for name in ENTRIES}
    for (name, _), scores in zip(jobs, run_all(list(jobs.values()), bench.work, bench.processes), strict=True):
        found[name].append(scores["test"])
    setting = {**SCENES, "epochs": epochs, "side": SIDE, "batch": BATCH, "seeds": bench.seeds}
    present = bench.material.open("scenes").labels("test").positives
    return {"setting": setting, "chance": 100 * float(present.mean()) / SCENES["test"], "methods": found}


def job(name: str, epochs: int, seed: int) -> Job:
    """A run on scenes from random weights."""
    data, method, _ = ENTRIES[name]
    stages = [{"name": "main", "input": "images", "train": "all", "epochs": epochs}]
    settings = {"backbone": "resnet18", "pretrained": False, "image_size": SIDE, "batch_size": BATCH, "stages": stages}
    return Job(data, method, head="cam", cache=None, epochs=epochs, seed=seed, settings=settings)


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    drawn, found = results["setting"], results["methods"]
    published = {name: "–" if name == FLOOR else f"{paper:+.1f}" for name, (_, _, paper) in ENTRIES.items()}
    rows = [[f"`{name}`", shown(values), gain(values, found[FLOOR], name), published[name]]
            for name, values in found.items()]  # fmt: skip
    epochs, seeds, side = drawn["epochs"], drawn["seeds"], drawn["side"]
    return f"""Not photos: {drawn["train"]} embedded scenes with one positive label each (`full`: all labels), and
more for validation ({drawn["val"]}) and testing ({drawn["test"]}). `resnet18` with a `cam` head at {side} px from
random weights, new crops and flips at each visit, Adam 1e-3, batches of {drawn["batch"]}, {epochs} epochs, {seeds}
seeds. Time allowed only a few epochs: differences within two standard errors mean nothing. Chance level is
{results["chance"]:.1f}. The paper's gains are for VOC 2012 from random weights, with much longer training.

{table(["method", "test mAP", "gain over `an`", "gain over `an` in the paper"], rows)}{too_short(results)}"""


def too_short(results: dict[str, Any]) -> str:
    """A remark if no method has learned anything from one label per image."""
    if any(mean(values) > results["chance"] + LEARNED for name, values in results["methods"].items() if name != "full"):
        return ""
    return """

With one label per image the network learns almost nothing in this time, so this table cannot compare the methods."""
