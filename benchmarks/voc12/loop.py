"""Table E: suggest, review, train again on photos, against unknown pairs in random order.

As in benchmarks/loop, which does this on scenes. A curve, of one order and seed, is remembered when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench
from joblib import Parallel, delayed
from reviewing import ORDERS, Loop, curve, full_labels
from reviewing_page import curves, figure, reviewed, verdicts
from tables import table

import tagfill
from tagfill.io import write_json

FIGURE = "voc12-loop.svg"
LOOP = Loop(method="an", head="linear", epochs=8, folds=2, seconds=2.0, wrong=0.05, hours=0.5, rounds=3)
FULL = "full"


def measure(bench: Bench) -> dict[str, Any]:
    """Curves of all orders and seeds, and what full labels give."""
    bench.features("eval")
    loop = replace(LOOP, epochs=2, rounds=1) if bench.quick else LOOP
    cells = [(order, seed) for seed in range(bench.seeds) for order in (*ORDERS, FULL)]
    outcomes = Parallel(n_jobs=bench.processes)(delayed(made)(bench.work, loop, *cell) for cell in cells)
    found: dict[str, list[Any]] = {order: [] for order in (*ORDERS, FULL)}
    for (order, _), outcome in zip(cells, outcomes, strict=True):
        found[order].append(outcome)
    labels = bench.material.open("full").labels("train")
    return {
        "settings": {**asdict(loop), "seeds": bench.seeds, "missing": int(labels.positives.sum()) - len(labels)},
        "hours": [loop.hours * number for number in range(loop.rounds + 1)],
        "full": found.pop(FULL),
        "orders": found,
    }


def made(work: Path, loop: Loop, order: str, seed: int) -> Any:
    """A curve, or the score of full labels; read if it was made before."""
    key = hashlib.sha256(json.dumps([asdict(loop), order, seed], sort_keys=True).encode()).hexdigest()[:16]
    record = work / "scores" / f"loop-{key}.json"
    if not record.exists():
        full, cache = tagfill.Dataset.open(work / "data" / "full"), work / "features" / "eval"
        with tempfile.TemporaryDirectory(dir=work) as folder:
            place = Path(folder)
            scores: Any = (
                full_labels(full, cache, place, seed, loop)
                if order == FULL
                else curve(full, cache, place, order, seed, loop)
            )
        record.parent.mkdir(parents=True, exist_ok=True)
        write_json(record, {"loop": asdict(loop), "order": order, "seed": seed, "scores": scores})
    return json.loads(record.read_text(encoding="utf-8"))["scores"]


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    settings, hours = results["settings"], results["hours"]
    paces = [[order, *(f"{labels[:, number].mean() / hours[number]:,.0f}" for number in range(1, len(hours)))]
             for order, labels in curves(results, "labels").items()]  # fmt: skip
    many = f"{settings['seeds']} {'seed' if settings['seeds'] == 1 else 'seeds'}"
    return f"""Training begins with one positive label per image, drawn for each seed; {settings["missing"]:,} others
are missing. Method `{settings["method"]}` with a `{settings["head"]}` head on features of whole images,
{settings["epochs"]} epochs, rate 1e-3, not searched, {many}. A simulated reviewer decides a pair of image and class in
{settings["seconds"]:g} seconds and is wrong in {100 * settings["wrong"]:g} % of the cases;
after each {settings["hours"]:g} hours a new model is trained with the new labels. *Suggested* uses the order of
`tagfill suggest` with {settings["folds"]}-fold scores, *planned* the choice of `tagfill plan` (likely and rare),
*random* unknown pairs in random order. Hours are review time. Full labels reach {np.mean(results["full"]):.2f}.

![Test mAP against hours of review](../images/{FIGURE})

{reviewed(results)}

{verdicts(results)}

Missing labels found per hour of review, up to the given number of hours:

{table(["order", *(f"{hour:g} hours" for hour in hours[1:])], paces)}"""


def figures(results: dict[str, Any]) -> dict[str, bytes]:
    """Test mAP against hours."""
    return {FIGURE: figure(results)}
