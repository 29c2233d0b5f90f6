"""Train, suggest, review, train again: mAP against hours of review; writes benchmarks/results/loop.json and its page.

Scenes with one known label an image. A simulated reviewer decides suggestions at the desk that the review page uses, at
a given pace, and is wrong now and then; its decisions become rows of the dataset, from which the next model learns.
Beside it the same reviewer looks at what `tagfill plan` chooses, and at unknown pairs in random order. Hours are the
reviewer's, not the machine's.

    python benchmarks/loop/run.py           three seeds; about five minutes on two cores
    python benchmarks/loop/run.py --quick   one seed, one round, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from joblib import Parallel, delayed
from page import page

from tagfill import experiments, protocols, scenes
from tagfill.annotations import Dataset
from tagfill.curation import Suggestions, reviewing
from tagfill.curation.desk import Verdict
from tagfill.curation.planning import plan
from tagfill.curation.ranking import Pairs
from tagfill.curation.suggesting import suggest
from tagfill.curation.suggestions import MISSING, SCHEMA
from tagfill.protocols.costs import Costs
from tagfill.training import evaluate, train

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

FIGURE = Path(__file__).parents[2] / "docs" / "images" / "loop.svg"
RECORD = Record("loop", ("curation", "training", "methods", "protocols"), libraries=("torch",))
METHOD, EPOCHS, FOLDS = "an", 12, 2
SECONDS, WRONG = 2.0, 0.05  # a decision takes so long, and is wrong so often
ROUND_HOURS, ROUNDS, SEEDS = 0.25, 3, 3
ORDERS = ("suggested", "planned", "random")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed and one round that write no file")
    quick = parser.parse_args().quick
    rounds, seeds = (1, 1) if quick else (ROUNDS, SEEDS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        full = scenes.make(train=600, val=200, test=400)
        cache = experiments.features(full).folder
        jobs = [(order, seed) for seed in range(seeds) for order in ORDERS]
        curves = Parallel(n_jobs=os.cpu_count())(
            delayed(curve)(full, cache, place / f"{order}-{seed}", order, seed, rounds) for order, seed in jobs
        )
        ceiling = [full_labels(full, cache, place / f"full-{seed}", seed) for seed in range(seeds)]
    results: dict[str, Any] = {
        **RECORD.begin(),
        "settings": {
            "method": METHOD,
            "epochs": EPOCHS,
            "folds": FOLDS,
            "seconds": SECONDS,
            "wrong": WRONG,
            "seeds": seeds,
        },
        "hours": [ROUND_HOURS * number for number in range(rounds + 1)],
        "full": ceiling,
        "orders": {
            order: [found for (o, _), found in zip(jobs, curves, strict=True) if o == order] for order in ORDERS
        },
    }
    if quick:
        print(json.dumps(results, indent=2))
        return
    text, figure = page(results)
    RECORD.write(results, text)
    FIGURE.write_bytes(figure)


def curve(full: Dataset, cache: Path, place: Path, order: str, seed: int, rounds: int) -> list[dict[str, float]]:
    """Test mAP, labels found and decisions made after each round of review."""
    torch.set_num_threads(1)
    data = protocols.single_positive(full, seed=1200 + seed).save(place / "data")
    rng = np.random.default_rng(seed)
    found: list[dict[str, float]] = []
    labels = 0
    for number in range(rounds + 1):
        data = Dataset.open(place / "data")
        run = train(data, method=METHOD, features=cache, epochs=EPOCHS, seed=seed, out=place / f"run-{number}")
        score = 100 * evaluate(run, data, split="test", features=cache).mean
        found.append({"mAP": score, "labels": labels})
        say(f"{order}, seed {seed}, {ROUND_HOURS * number:g} h: {score:.2f}")
        if number < rounds:
            folds = place / f"folds-{number}"
            count = int(ROUND_HOURS * 3600 / SECONDS)
            if order == "random":
                wanted = at_random(data, count, rng)
            elif order == "planned":
                made = plan(data, ROUND_HOURS, run=run.folder, folds=FOLDS, costs=Costs(SECONDS), jobs=1, models=folds)
                wanted = as_suggestions(data, made.pairs)
            else:
                limits = {"missing": count, "wrong": 0, "minimum": 0.0}
                wanted = suggest(run.folder, data, folds=FOLDS, jobs=1, out=folds, **limits).suggestions
            shutil.rmtree(folds, ignore_errors=True)
            labels += review(data, full, wanted, rng, number)
    return found


def at_random(data: Dataset, count: int, rng: np.random.Generator) -> Suggestions:
    """Pairs that nobody looked at, in random order."""
    rows = data.split("train")
    image, label = np.nonzero(~data.labels().looked_at(rows))
    chosen = rng.permutation(len(image))[:count]
    nothing = np.zeros(len(chosen))
    return as_suggestions(data, Pairs(rows[image[chosen]], label[chosen], nothing, nothing, nothing.astype(np.int8)))


def as_suggestions(data: Dataset, pairs: Pairs) -> Suggestions:
    table = [
        {"image": name, "label": data.classes[label], "kind": MISSING, "probability": chance, "value": 0.0}
        for name, label, chance in zip(data.names(pairs.row), pairs.label, pairs.probability, strict=True)
    ]
    return Suggestions(pa.Table.from_pylist(table, schema=SCHEMA))


def review(data: Dataset, full: Dataset, wanted: Suggestions, rng: np.random.Generator, number: int) -> int:
    """Decide them, and tell how many labels were found."""
    truth, where = full.labels(), {name: row for row, name in enumerate(full.names())}
    with reviewing.at_desk(data, wanted) as desk:
        rows = np.array([where[one.image] for one in desk.suggestions])
        classes = np.array([full.classes.index(one.label) for one in desk.suggestions])
        there = truth.rows(rows)[np.arange(len(rows)), classes] == 1
        said = there ^ (rng.random(len(there)) < WRONG)
        desk.decide(
            [
                Verdict(f"{number}/{one.place}", one.place, one.image, one.label, bool(present), SECONDS)
                for one, present in zip(desk.suggestions, said, strict=True)
            ],
            "simulated",
        )
    return int((there & said).sum())


def full_labels(full: Dataset, cache: Path, place: Path, seed: int) -> float:
    run = train(full, method="bce", features=cache, epochs=EPOCHS, seed=seed, out=place)
    return 100 * evaluate(run, full, split="test", features=cache).mean


if __name__ == "__main__":
    main()
