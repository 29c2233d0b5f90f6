"""Table D1: the whole network, not only its head.

Two stages on photos, as in LinearInit: a head on cached features of small images, then the whole network from the
best head and its memory. All runs of the table share one pool of processes, longest first.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

from bench import Bench
from jobs import Job, run_all
from material import SMALL
from single_positives import BOOST, PUBLISHED
from tables import FLOOR, gain, gains, shown, table

HEAD_EPOCHS, EPOCHS = 10, 2
HEAD_RATE, RATE = 1e-3, 1e-4
REJECTED = 1.0
"""Percent of labels that LL-R rejects in the second of two epochs; the default of 0.2 would have no effect."""

ENTRIES = {
    "full": Job("full", "bce"),
    "full, boost": Job("full", "bce", head="cam", head_options=BOOST),
    "an": Job("single", FLOOR),
    "an, boost": Job("single", FLOOR, head="cam", head_options=BOOST),
    "ll-r": Job("single", "ll-r", head="cam"),
    "ll-r, boost": Job("single", "ll-r", head="cam", head_options=BOOST),
    "en+scl": Job("single", "en+scl", head="cam"),
    "role": Job("single", "role"),
}
PAPER = {**PUBLISHED, "role": PUBLISHED["role, two stages"]}
"""The fine-tuned LinearInit of ROLE is the row of two stages."""


def measure(bench: Bench) -> dict[str, Any]:
    """Heads alone, and whole networks."""
    epochs = lengths(bench)
    setting = {"side": SMALL, "head epochs": epochs[0], "epochs": epochs[1], "rejected": REJECTED, "seeds": bench.seeds}
    return {"setting": setting, **measure_rows(bench, ["full", "an"] if bench.quick else list(ENTRIES))}


def measure_rows(bench: Bench, names: list[str]) -> dict[str, Any]:
    """Some of the rows."""
    bench.features("small")
    epochs = lengths(bench)
    jobs = {("whole", name, 0): whole(ENTRIES[name], *epochs) for name in names}
    for name in names:
        head = alone(ENTRIES[name], epochs[0])
        jobs |= {("head", name, seed): replace(head, seed=seed) for seed in range(bench.seeds)}
    found: dict[str, dict[str, list[float]]] = {part: {} for part in ("whole", "head")}
    for (part, name, _), scores in zip(jobs, run_all(list(jobs.values()), bench.work, bench.processes), strict=True):
        found[part].setdefault(name, []).append(scores["test"])
    return found


def lengths(bench: Bench) -> tuple[int, int]:
    """Epochs of the head alone, and of the whole network."""
    return (2, 1) if bench.quick else (HEAD_EPOCHS, EPOCHS)


def alone(job: Job, epochs: int) -> Job:
    """The head on cached features of small images."""
    settings = {"image_size": SMALL, "expected_positives": 1.5}
    return replace(job, cache="small", lr=HEAD_RATE, epochs=epochs, settings=settings)


def whole(job: Job, head_epochs: int, epochs: int) -> Job:
    """The same head, and then everything; batch norms keep their statistics, since batches are small."""
    first = alone(job, head_epochs)
    stages: list[dict[str, Any]] = [
        {"name": "head", "input": "cache", "epochs": head_epochs, "optimizer": {"lr": HEAD_RATE}},
        {"name": "everything", "input": "images", "train": "all", "freeze": ["batch-norm"], "epochs": epochs,
         "optimizer": {"lr": RATE}, "crop_scale": [0.5, 1.0], "start": {"head": "best", "memory": "best"}},
    ]  # fmt: skip
    if job.method == "ll-r":
        stages[1]["options"] = {"ll-r": {"rate": REJECTED}}
    return replace(first, lr=RATE, epochs=epochs, settings={**first.settings, "stages": stages})


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, heads, networks = results["setting"], results["head"], results["whole"]
    rows = []
    for name in ENTRIES:
        if name not in networks:
            rows.append([f"`{name}`", "not run", *["–"] * 5])
            continue
        head, whole_network = heads[name], networks[name]
        rows.append([f"`{name}`", shown(head), gain(head, heads[FLOOR], name), shown(whole_network),
                     gain(whole_network, networks[FLOOR], name), gains(whole_network, head[:1]),
                     f"{PAPER[name]:+.2f}" if name in PAPER else "–"])  # fmt: skip
    columns = ["method", "head alone", "gain over `an`", "whole network", "gain over `an`", "whole over head, seed 0",
               "gain over `an` in the paper"]  # fmt: skip
    many = f"{setting['seeds']} {'seed' if setting['seeds'] == 1 else 'seeds'}"
    return f"""Photos at {setting["side"]} px, so that fine-tuning is affordable without an accelerator: the numbers
in this section are lower than elsewhere and comparable only with each other. *Head alone* trains
{setting["head epochs"]} epochs on cached features of whole images at that size, Adam {HEAD_RATE:g}, {many}. *Whole
network* continues from the best epoch of such a head and its memory, with {setting["epochs"]} epochs of backbone and
head on images (crops with 50 % to 100 % of the image, flips; Adam {RATE:g}; batch norms frozen): one seed, for lack
of time. For ROLE this is LinearInit. Rates were not searched. LL-R rejects {setting["rejected"]:g} % of the labels in
the second of these epochs. The papers fine-tune a ResNet-50 at 448 px for longer. A boost changes inference: compare
`ll-r, boost` with `full` and `an` with the same boost.

{table(columns, rows)}{on_boosting(heads, networks)}"""


def on_boosting(heads: dict[str, list[float]], networks: dict[str, list[float]]) -> str:
    """A remark if boosting loses both with the head alone and with the whole network."""
    boosted, plain = "ll-r, boost", "ll-r"
    if boosted not in networks or any(mean(found[boosted]) >= mean(found[plain]) for found in (heads, networks)):
        return ""
    return """

Class maps have 3×3 cells at this size, and boosting them in training costs LL-R more than it gains."""
