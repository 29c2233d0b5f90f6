"""Table C: what tags, points and boxes of the same cost teach, and what pseudo-labels add to them.

PatchML's study on photos. A budget buys random pairs of image and class; a `cam` head learns from them by `patchml`.
All training images are visited in each epoch, those without a label too, so that every entry takes as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench import Bench
from boxes import boxed
from budgets_page import figures, section
from jobs import Job, run_all
from material import Material

import tagfill

__all__ = ["figures", "measure", "section"]

PERCENTS = (1, 2, 5, 10)
ADDED_AT = (5,)
SEARCHED_AT = 5
WEIGHTS = (1.0, 5.0)
RATE, EPOCHS = 1e-3, 5
SEEDS = 3
KEPT = ("positives", "negatives", "images", "seconds", "val", "test", "loc")
CSL_I = {"image_unknown": "selective"}
CSL_P = {"patch_unknown": "selective", "k_patch": 25, "patch_weights": [24.0, 1.0, 1.0]}


@dataclass(frozen=True)
class Entry:
    """What takes part.

    Attributes:
        kind: of annotation.
        percents: budgets that it is run at.
        options: of `patchml`, beside its weight of cells.
        term: what is added to `patchml`, and its options.
        pairs: trained on weak and strong views instead of flips and crops, half of each batch from labelled images.
        costs: of the protocol, in place of its own.
        seeds: of each budget.
        localise: whether class maps are scored too.
    """

    kind: str
    percents: Sequence[int] = PERCENTS
    options: dict[str, Any] = field(default_factory=dict)
    term: tuple[str, dict[str, Any]] | None = None
    pairs: bool = False
    costs: dict[str, float] = field(default_factory=dict)
    seeds: int = SEEDS
    localise: bool = False


ENTRIES = {
    **{kind: Entry(kind, localise=True) for kind in ("I", "SP", "SB", "AP", "AB")},
    "SP, as many as SB": Entry("SP", ADDED_AT, costs={"point_seconds": 6.0}, localise=True),
    "SP + PatchCluster": Entry("SP", term=("patchcluster", {}), localise=True),
    "SP + CSL-I": Entry("SP", ADDED_AT, CSL_I),
    "SP + CSL-P": Entry("SP", ADDED_AT, CSL_P),
    "I + PatchCluster": Entry("I", ADDED_AT, term=("patchcluster", {"features": "image"})),
    "I + CSL-I": Entry("I", ADDED_AT, CSL_I),
    "I, pairs": Entry("I", ADDED_AT, pairs=True),
    "I + FixMatch": Entry("I", ADDED_AT, term=("fixmatch", {}), pairs=True),
    "SP, pairs": Entry("SP", ADDED_AT, pairs=True),
    "SP + FixMatch": Entry("SP", ADDED_AT, term=("fixmatch", {}), pairs=True),
}
"""A point that is charged what a box costs buys as many labels as boxes do: the same pairs, with points."""


def measure(bench: Bench) -> dict[str, Any]:
    """Scores of each entry at its budgets, and what these bought."""
    entries = {name: entry for name, entry in ENTRIES.items() if not (bench.quick and entry.pairs)}
    if bench.quick:
        entries = {name: replace(entry, percents=(10,)) for name, entry in entries.items()}
    bench.features("eval", "views", *({"pairs"} if any(entry.pairs for entry in entries.values()) else ()))
    epochs = 2 if bench.quick else EPOCHS
    bench.material.made("located", divided_as(bench.material.open("full")))
    weight, tried = weight_of_cells(bench, epochs)
    cells = [(name, percent, seed) for name, entry in entries.items() for percent in entry.percents
             for seed in range(min(bench.seeds, entry.seeds))]  # fmt: skip
    runs = [job(bench.material, entries[name], percent, seed, epochs, weight) for name, percent, seed in cells]
    found: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in entries}
    for (name, percent, _), run, scores in zip(cells, runs, run_all(runs, bench.work, bench.processes), strict=True):
        bought = bench.material.open(run.data).protocol["kept"]
        row = found[name].setdefault(f"{percent}", {})
        for key, value in (scores | bought).items():  # seconds are the annotators'
            if key in KEPT:
                row.setdefault(key, []).append(value)
    setting = {"epochs": epochs, "seeds": bench.seeds, "rate": RATE, "weight": weight,
               "searched at": SEARCHED_AT, "tried": tried}  # fmt: skip
    return {"setting": setting, "entries": found}


def divided_as(full: tagfill.Dataset) -> Callable[[tagfill.Dataset], tagfill.Dataset]:
    """All that is known, boxes and masks too, with the splits of another dataset of the same images."""
    return lambda everything: full.replace(annotations=everything.rows(), truth=None, protocol=None, folder=None)


def weight_of_cells(bench: Bench, epochs: int) -> tuple[float, dict[str, float]]:
    """The weight of cells that validation likes best, with points of the first seed at one budget; and all scores."""
    runs = [job(bench.material, ENTRIES["SP"], SEARCHED_AT, 0, epochs, weight) for weight in WEIGHTS]
    scores = [scores["val"] for scores in run_all(runs, bench.work, bench.processes)]
    best = WEIGHTS[scores.index(max(scores))]
    return best, {f"{weight:g}": score for weight, score in zip(WEIGHTS, scores, strict=True)}


def job(material: Material, entry: Entry, percent: int, seed: int, epochs: int, weight: float) -> Job:
    """The run of an entry at a budget; tags have no cells to weigh."""
    kind = entry.kind
    costs = [f"{name}{cost:g}" for name, cost in entry.costs.items()]
    data = material.made(
        "-".join(["budget", kind, *costs, f"{percent}", f"s{seed}"]),
        lambda data: boxed(tagfill.protocols.budget(data, percent=percent, kind=kind, seed=seed, **entry.costs)),
        of="located",
    )
    options: dict[str, Any] = {"patchml": {"w_patch": 0.0 if kind == "I" else weight, **entry.options}}
    method = "patchml"
    if entry.term is not None:
        method, options = f"patchml+{entry.term[0]}", {**options, entry.term[0]: entry.term[1]}
    half = {"stages": [{"name": "main", "input": "cache", "epochs": epochs, "labelled_share": 0.5}]}
    return Job(data, method, options, head="cam", cache="pairs" if entry.pairs else "views",
               lr=RATE, epochs=epochs, seed=seed,
               settings=half if entry.pairs else {}, localise=entry.localise)  # fmt: skip
