"""What evidence of another tagger is worth: suggestions and training on VOC 2012 with one label per photo.

Scores of CLIP for the training photos are imported as two pieces of evidence, whole photos and tiles. Writes
benchmarks/results/evidence.json and docs/benchmarks/evidence.md; each seed and each training goes on where it stopped.

    python benchmarks/evidence/run.py voc2012.tar scores.parquet
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "voc12"))

from bookkeeping import Record, say
from learning import learn
from page import page

RECORD = Record(
    "evidence", ("evidence", "curation", "inference", "training", "methods", "losses"), libraries=("torch", "timm")
)
COLUMNS = {"clip": "global", "clip-tiles": "tiles"}
FIRST = (900, 1800, 2700)
TARGETS = {"model and evidence": (816, 1289, 1477)}
METHOD, EPOCHS, FOLDS = "an", 8, 5
PARTS = ("prior", "suggestions", "learning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", type=Path, help="the folder VOCdevkit, or a tar archive of it")
    parser.add_argument("scores", type=Path, help="columns image, label, global and tiles")
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--features", type=Path, help="a cache of whole photos; by default it is made")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, help="measure a part; the others are taken from earlier results")
    parser.add_argument("--rows", help="of learning, joined by semicolons; the others are taken from earlier results")
    options = parser.parse_args()
    work = options.work.absolute()
    cache = prepare(options.voc, work, options.features)
    results: dict[str, Any] = {**RECORD.begin(" VOC SCORES"), "settings": {
        "method": METHOD, "epochs": EPOCHS, "folds": FOLDS, "seeds": options.seeds, "first": FIRST, "targets": TARGETS,
    }}  # fmt: skip
    earlier = json.loads(RECORD.results.read_text(encoding="utf-8")) if RECORD.results.exists() else {}
    results |= {part: earlier[part] for part in PARTS if part in earlier}
    wanted = (options.only,) if options.only else PARTS
    if "prior" in wanted:
        results["prior"] = prior(work, cache)
    if "suggestions" in wanted:
        results["suggestions"] = [suggestions(work, cache, options.scores, seed) for seed in range(options.seeds)]
    if "learning" in wanted:
        rows = options.rows.split(";") if options.rows else None
        learned = learn(work, cache, lambda seed: draw(work, options.scores, seed), options.seeds, rows)
        results["learning"] = {**results.get("learning", {}), **learned}
    RECORD.write(results, page(results))


def prepare(voc: Path, work: Path, features: Path | None) -> Path:
    """Complete labels in the published division, and features of whole photos."""
    from material import Material

    import tagfill

    material = Material(work)
    material.prepare(voc)
    cache = features or work / "features" / "eval"
    tagfill.features(material.open("single"), views="eval", out=cache)
    return cache


def draw(work: Path, scores: Path, seed: int) -> Any:
    """One label per training photo, with the evidence beside it."""
    import tagfill
    from tagfill.evidence import import_scores, list_evidence

    folder = work / "data" / f"single-{seed}"
    if not (folder / "dataset.yaml").exists():
        full = tagfill.Dataset.open(work / "data" / "full")
        tagfill.protocols.single_positive(full, seed=1200 + seed).save(folder)
    data = tagfill.Dataset.open(folder)
    for name, column in COLUMNS.items():
        if name not in list_evidence(data):
            import_scores(scores, data, name=name, column=column, scale="cosines")
    return data


def prior(work: Path, cache: Path) -> dict[str, float]:
    """Test mAP of the ImageNet prior, which knows no label."""
    import tagfill
    from tagfill.evidence import open_evidence
    from tagfill.evidence.models import score_with_prior
    from tagfill.metrics import average_precision

    full = tagfill.Dataset.open(work / "data" / "full")
    nothing = full.replace(annotations=full.rows().slice(0, 0), truth=None, folder=None)
    data = nothing.save(work / "data" / "without-labels")
    score_with_prior(data, features=cache, force=True)
    rows = full.split("test")
    truth = full.labels().rows(rows)
    found = average_precision(open_evidence(data, "prior").scores.rows(rows).astype(np.float64), truth)
    return {"test mAP": 100 * float(np.nanmean(found)), "chance": 100 * float(np.mean(truth[truth >= 0] == 1))}


def suggestions(work: Path, cache: Path, scores: Path, seed: int) -> dict[str, Any]:
    """How many of the first suggestions are right, for the model, the evidence, and both."""
    import torch

    import tagfill
    from tagfill.evidence import debias, open_evidence
    from tagfill.io import write_json

    record = work / "scores" / f"suggestions-{seed}.json"
    if record.exists():
        return json.loads(record.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    data = draw(work, scores, seed)
    rows = data.split("train")
    truth = tagfill.Dataset.open(work / "data" / "full").labels().rows(rows)
    known = data.labels().rows(rows)
    folder = work / "runs" / f"suggest-{seed}"
    if not (folder / "run" / "best").exists():
        tagfill.train(data, method=METHOD, epochs=EPOCHS, seed=seed, features=cache, out=folder / "run")
    found: dict[str, Any] = {"missing": int(((known < 0) & (truth == 1)).sum())}
    shared = {"folds": FOLDS, "missing": max(FIRST), "wrong": 0, "minimum": 0.0, "jobs": 1, "out": folder / "folds"}
    for name, evidence in {"model": [], "model and evidence": None}.items():
        made = tagfill.suggest(data, folder / "run", evidence=evidence, **shared)
        at = {image: row for row, image in enumerate(data.names())}
        table = made.suggestions.table
        where = [(at[i], data.classes.index(c)) for i, c in zip(table["image"].to_pylist(), table["label"].to_pylist(),
                                                               strict=True)]  # fmt: skip
        every = tagfill.Dataset.open(work / "data" / "full").labels().rows(np.array([row for row, _ in where]))
        right = every[np.arange(len(where)), [c for _, c in where]] == 1
        found[name] = [int(right[:first].sum()) for first in FIRST]
        found[f"{name}, weights"] = dict(made.weights)
        say(f"seed {seed}, {name}: {found[name]} {dict(made.weights)}")
    labels = data.labels("train")
    for name, pieces in {"clip": ["clip"], "clip-tiles": ["clip-tiles"], "evidence": list(COLUMNS)}.items():
        evidence = [open_evidence(data, piece) for piece in pieces]
        evidence = [type(one)(one.name, one.scale, one.source, one.time, one.scores.take(rows)) for one in evidence]
        probability = debias(evidence, labels).probabilities(np.arange(len(rows)), known)
        unknown = known < 0
        order = np.argsort(-probability[unknown], kind="stable")
        right = (truth[unknown] == 1)[order]
        found[name] = [int(right[:first].sum()) for first in FIRST]
        say(f"seed {seed}, {name} alone: {found[name]}")
    record.parent.mkdir(parents=True, exist_ok=True)
    write_json(record, found)
    return found


if __name__ == "__main__":
    main()
