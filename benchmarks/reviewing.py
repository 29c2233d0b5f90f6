"""Train, suggest, review, train again, with a simulated reviewer: what the benchmarks of the loop share.

The reviewer decides (image, class) pairs in a review session, as on the page, at a given pace, and is wrong now
and then; its decisions become rows of the dataset, from which the next model learns. Hours are the reviewer's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from bookkeeping import say

from tagfill import protocols
from tagfill.curation import Suggestions
from tagfill.curation.plan import plan
from tagfill.curation.review import Decision, open_session
from tagfill.curation.suggest import Pairs, suggest
from tagfill.curation.suggestions import MISSING, SCHEMA
from tagfill.dataset import Dataset
from tagfill.protocols.costs import Costs
from tagfill.training import evaluate, train

ORDERS = ("suggested", "planned", "random")


@dataclass(frozen=True)
class Loop:
    """How model and reviewer take turns.

    Attributes:
        method: that learns.
        head: of the model.
        epochs: of each training.
        folds: models that suggest, so that none is asked about what it learned from.
        seconds: that a decision takes.
        wrong: share of decisions that are.
        hours: of review between two trainings.
        rounds: of review.
    """

    method: str
    head: str
    epochs: int
    folds: int
    seconds: float
    wrong: float
    hours: float
    rounds: int


def curve(full: Dataset, cache: Path, place: Path, order: str, seed: int, loop: Loop) -> list[dict[str, float]]:
    """Test mAP, labels found and decisions made after each round of review, beginning with one label per image."""
    torch.set_num_threads(1)
    data = protocols.single_positive(full, seed=1200 + seed).save(place / "data")
    rng = np.random.default_rng(seed)
    found: list[dict[str, float]] = []
    labels = 0
    for number in range(loop.rounds + 1):
        data = Dataset.open(place / "data")
        learning = {"head": loop.head, "epochs": loop.epochs, "seed": seed}
        run = train(data, method=loop.method, features=cache, out=place / f"run-{number}", **learning)
        score = 100 * evaluate(run, data, split="test", features=cache).mean
        found.append({"mAP": score, "labels": labels})
        say(f"{order}, seed {seed}, {loop.hours * number:g} h: {score:.2f}")
        if number < loop.rounds:
            folds = place / f"folds-{number}"
            wanted = ordered(data, run.folder, order, folds, loop, rng)
            shutil.rmtree(folds, ignore_errors=True)
            labels += review(data, full, wanted, loop, rng, number)
    return found


def ordered(data: Dataset, run: Path, order: str, folds: Path, loop: Loop, rng: np.random.Generator) -> Suggestions:
    """What is looked at in the next hours of review."""
    count = int(loop.hours * 3600 / loop.seconds)
    if order == "random":
        return at_random(data, count, rng)
    if order == "planned":
        made = plan(data, loop.hours, run=run, folds=loop.folds, costs=Costs(loop.seconds), jobs=1, models=folds)
        return as_suggestions(data, made.pairs)
    limits = {"missing": count, "wrong": 0, "minimum": 0.0}
    return suggest(data, run, folds=loop.folds, jobs=1, out=folds, **limits).suggestions


def at_random(data: Dataset, count: int, rng: np.random.Generator) -> Suggestions:
    """Pairs that nobody looked at, in random order."""
    rows = data.split("train")
    image, label = np.nonzero(~data.labels().is_annotated(rows))
    chosen = rng.permutation(len(image))[:count]
    nothing = np.zeros(len(chosen))
    return as_suggestions(data, Pairs(rows[image[chosen]], label[chosen], nothing, nothing, nothing.astype(np.int8)))


def as_suggestions(data: Dataset, pairs: Pairs) -> Suggestions:
    table = [
        {"image": name, "label": data.classes[label], "kind": MISSING, "probability": chance, "value": 0.0}
        for name, label, chance in zip(data.names(pairs.row), pairs.label, pairs.probability, strict=True)
    ]
    return Suggestions(pa.Table.from_pylist(table, schema=SCHEMA))


def review(data: Dataset, full: Dataset, wanted: Suggestions, loop: Loop, rng: np.random.Generator, number: int) -> int:
    """Decide them, and tell how many labels were found."""
    truth, where = full.labels(), {name: row for row, name in enumerate(full.names())}
    with open_session(data, wanted) as session:
        rows = np.array([where[one.image] for one in session.suggestions])
        classes = np.array([full.classes.index(one.label) for one in session.suggestions])
        there = truth.rows(rows)[np.arange(len(rows)), classes] == 1
        said = there ^ (rng.random(len(there)) < loop.wrong)
        session.decide(
            [
                Decision(f"{number}/{one.place}", one.place, one.image, one.label, bool(present), loop.seconds)
                for one, present in zip(session.suggestions, said, strict=True)
            ],
            "simulated",
        )
    return int((there & said).sum())


def full_labels(full: Dataset, cache: Path, place: Path, seed: int, loop: Loop) -> float:
    """Test mAP with all labels."""
    learning = {"head": loop.head, "epochs": loop.epochs, "seed": seed}
    run = train(full, method="bce", features=cache, out=place, **learning)
    return 100 * evaluate(run, full, split="test", features=cache).mean
