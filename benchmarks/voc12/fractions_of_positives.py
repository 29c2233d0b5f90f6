"""Table B1: a fraction of the positives with 1 to 1.5 times as many negatives, the protocol of Soft Exposure."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
from bench import Bench
from jobs import Job, run_all
from tables import shown, table
from tuning import chosen

from tagfill.figures import TEXT, color, new_figure, svg_file

FRACTIONS = (5, 10, 30, 50, 70, 90)
SEARCHED = 30
"""Percent of the positives at which rates are searched, for all fractions."""

STUDIED = 10
"""Percent of the positives at which the options of SE are varied."""

METHODS = {
    "ne": {}, "wne": {}, "fe": {}, "ls": {}, "se-i": {"uncovered": "ignore"}, "se-i, uncovered absent": {
    "uncovered": "negative"}, "se-l": {}, "se": {}, "csl": {},
    "zlpr": {}, "two-way": {},
}  # fmt: skip

VARIATIONS = {
    "as it is (β 5, γ 0, k 10)": {},
    "β 1": {"beta": 1.0}, "β 20": {"beta": 20.0}, "β 100": {"beta": 100.0},
    "γ 0.1": {"gamma": 0.1}, "γ 0.9": {"gamma": 0.9},
    "k 3": {"k": 3}, "k 30": {"k": 30},
    "median of the five nearest": {"reduce": "median5"}, "mean prototype": {"prototype": "mean"},
    "Euclidean distance": {"distance": "euclidean"}, "temperature the other way": {"temperature": "inverse"},
}  # fmt: skip


COVERED = {"unknown": "all", "by labels": "with evidence by labels", "by images": "with evidence by images"}


def entry(name: str, epochs: int) -> Job:
    """A method with its options, on whatever data."""
    method = name.split(",")[0]
    options = METHODS[name]
    return Job("", method, options={method: options} if options else {}, epochs=epochs)


def measure(bench: Bench) -> dict[str, Any]:
    """Scores of every method at every fraction, of complete labels, of the options of SE; and what evidence covers."""
    bench.features("views")
    epochs = 2 if bench.quick else 6
    fractions = (10, 50) if bench.quick else FRACTIONS
    searched = {name: replace(entry(name, epochs), data=data(bench, SEARCHED, 0)) for name in METHODS}
    rates = chosen(searched, bench)
    cells = [(name, percent, seed) for percent in fractions for name in METHODS for seed in range(bench.seeds)]
    runs = [replace(entry(name, epochs), data=data(bench, percent, seed), seed=seed, lr=rates[name])
            for name, percent, seed in cells]  # fmt: skip
    full = {"full": replace(Job("full", "bce"), epochs=epochs)}
    ceiling = [replace(full["full"], seed=seed, lr=chosen(full, bench)["full"]) for seed in range(bench.seeds)]
    varied = [(name, seed) for name in VARIATIONS for seed in range(bench.seeds)]
    studies = [replace(entry("se", epochs), data=data(bench, STUDIED, seed), seed=seed, lr=rates["se"],
                       options={"se": VARIATIONS[name]} if VARIATIONS[name] else {})
               for name, seed in varied]  # fmt: skip
    scores = run_all([*runs, *ceiling, *studies], bench.work, bench.processes)
    found: dict[str, Any] = {name: {str(percent): {"mAP": [], "mF1": []} for percent in fractions} for name in METHODS}
    for (name, percent, _), one in zip(cells, scores, strict=False):
        if "refused" not in one:
            found[name][str(percent)]["mAP"].append(one["test"])
            found[name][str(percent)]["mF1"].append(one["mF1"])
    complete = scores[len(runs) : len(runs) + len(ceiling)]
    options: dict[str, list[float]] = {name: [] for name in VARIATIONS}
    for (name, _), one in zip(varied, scores[len(runs) + len(ceiling) :], strict=True):
        options[name].append(one["test"])
    return {
        "setting": {"epochs": epochs, "grid": bench.grid, "seeds": bench.seeds, "rates": rates},
        "full": {"mAP": [one["test"] for one in complete], "mF1": [one["mF1"] for one in complete]},
        "methods": found,
        "covered": {str(percent): covered(bench, percent) for percent in fractions},
        "options": options,
    }


def measure_rows(bench: Bench, names: list[str]) -> dict[str, Any]:
    """Some of the methods at every fraction, with the rates that validation chooses for them."""
    bench.features("views")
    epochs = 2 if bench.quick else 6
    rates = chosen({name: replace(entry(name, epochs), data=data(bench, SEARCHED, 0)) for name in names}, bench)
    cells = [(name, percent, seed) for percent in FRACTIONS for name in names for seed in range(bench.seeds)]
    runs = [replace(entry(name, epochs), data=data(bench, percent, seed), seed=seed, lr=rates[name])
            for name, percent, seed in cells]  # fmt: skip
    found: dict[str, Any] = {name: {str(percent): {"mAP": [], "mF1": []} for percent in FRACTIONS} for name in names}
    for (name, percent, _), one in zip(cells, run_all(runs, bench.work, bench.processes), strict=True):
        if "refused" not in one:
            found[name][str(percent)]["mAP"].append(one["test"])
            found[name][str(percent)]["mF1"].append(one["mF1"])
    return {"methods": found, "rates": rates}


def data(bench: Bench, percent: int, seed: int) -> str:
    """The name of what a fraction leaves."""
    from tagfill.protocols import positive_fraction

    def keep(full: Any) -> Any:
        return positive_fraction(full, fraction=percent / 100, seed=seed)

    return bench.material.made(f"fraction-{percent}-{seed}", keep, of="full")


def covered(bench: Bench, percent: int, k: int = 10) -> dict[str, float]:
    """Unknown labels per image, and how many have evidence from known labels and from the k nearest images."""
    from tagfill.data import FeatureCache
    from tagfill.memory.neighbors import nearest, unit_rows

    part = bench.material.open(data(bench, percent, 0))
    rows = part.split("train")
    labels = part.labels("train").rows(np.arange(len(rows)))
    features = FeatureCache.open(bench.work / "features" / "views").view("eval").pooled(rows)
    index, _ = nearest(unit_rows(features), np.arange(len(rows)), k)
    unknown = labels < 0
    by_images = unknown & (labels[index] >= 0).any(1)
    by_labels = unknown & (labels >= 0).any(1, keepdims=True)
    return {name: float(part.sum(1).mean()) for name, part in (
        ("unknown", unknown), ("by labels", by_labels), ("by images", by_images))}  # fmt: skip


def figures(results: dict[str, Any]) -> dict[str, bytes]:
    """Test mAP against the fraction of positives that are known."""
    figure, axes = new_figure(7.5, 4)
    for place, (name, found) in enumerate(results["methods"].items()):
        at = [percent for percent in found if found[percent]["mAP"]]
        heights = [mean(found[percent]["mAP"]) for percent in at]
        axes.plot([int(percent) for percent in at], heights, "o-", color=color(place), markersize=3, label=name)
    axes.axhline(mean(results["full"]["mAP"]), color=TEXT, linewidth=0.8, linestyle=":")
    axes.set_xlabel("percent of the positives known")
    axes.set_ylabel("test mAP")
    axes.set_xticks([int(percent) for percent in results["covered"]])
    axes.grid()
    figure.legend(loc="outside right upper")
    return {"voc12-b1.svg": svg_file(figure)}


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, methods, covers = results["setting"], results["methods"], results["covered"]
    percents = list(covers)
    tables = [
        table([metric, *(f"{percent} %" for percent in percents), "rate"],
              [[f"`{name}`", *(shown(found[percent][metric]) for percent in percents), f"{setting['rates'][name]:g}"]
               for name, found in methods.items()])
        for metric in ("mAP", "mF1")
    ]  # fmt: skip
    base = results["options"][next(iter(VARIATIONS))]
    options = table(["`se` with", "test mAP", "difference"], [
        [name, shown(values), f"{mean(values) - mean(base):+.2f}"] for name, values in results["options"].items()
    ])  # fmt: skip
    evidence = table(["unknown labels per image", *(f"{percent} %" for percent in percents)], [
        [told, *(f"{covers[percent][key]:.1f}" for percent in percents)] for key, told in COVERED.items()
    ])  # fmt: skip
    seeds, epochs = setting["seeds"], setting["epochs"]
    return f"""A random fraction of the positive training labels is kept, and 1 to 1.5 times as many negatives of the
same images; {seeds} seeds, which also draw the labels, {epochs} epochs. Rates were chosen
on validation at {SEARCHED} % with the first seed. All labels (`bce`): mAP {shown(results["full"]["mAP"])}, mF1
{shown(results["full"]["mF1"])}; that is 100 %, where all methods are the same. mF1 is at thresholds chosen on
validation. `se-i` ignores labels without evidence, as the paper's text says; *uncovered absent* follows its equation.

![Test mAP against the fraction of known positives; the dotted line is all labels](../images/voc12-b1.svg)

{chr(10).join(f"{one}{chr(10)}" for one in tables)}
### Coverage of evidence

First seed, ten nearest images.

{evidence}

### Options of SE

At {STUDIED} %, with the same labels and rate for all.

{options}"""
