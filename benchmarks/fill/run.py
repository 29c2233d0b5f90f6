"""`tagfill fill` on photos with one tag each, compared with the truth and with simpler rules.

Writes benchmarks/results/fill.json and docs/benchmarks/fill.md. Each draw of tags goes on where it stopped.

    python benchmarks/fill/run.py                                     scenes only
    python benchmarks/fill/run.py --voc voc2012.tar --coco PHOTOS LABELS.csv.gz
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say
from cases import Case, cases
from page import page

RECORD = Record(
    "fill", ("filling", "curation", "training", "data", "models", "methods", "losses"), libraries=("torch", "timm")
)
TARGET = 0.9
OUTCOME = "outcome.json"
SIZES, DEFAULT_SIZE = (224, 384), 320  # of the input


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--voc", type=Path, help="the folder VOCdevkit, or a tar archive of it")
    parser.add_argument("--coco", type=Path, nargs=2, metavar=("PHOTOS", "LABELS"))
    parser.add_argument("--seeds", type=int, default=3, help="draws of tags")
    parser.add_argument("--work", type=Path, default=Path("runs/fill"))
    parser.add_argument("--sizes", action="store_true", help="also try other sizes of the input")
    parser.add_argument("--finished", action="store_true", help="compute nothing, and show what is finished")
    options = parser.parse_args()
    work = options.work.absolute()
    found: dict[str, list[dict[str, Any]]] = {}
    sizes: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases(work, options.voc, options.coco):
        jobs = [(seed, None) for seed in range(options.seeds)] + [(0, size) for size in SIZES if options.sizes]
        if options.finished:
            jobs = [job for job in jobs if (folder_of(case, work, *job) / OUTCOME).exists()]
        found[case.name] = [measure(case, work, *job) for job in jobs if job[1] is None]
        sizes[case.name] = {str(job[1]): measure(case, work, *job) for job in jobs if job[1] is not None}
    results = {**RECORD.begin(), "target": TARGET, "seeds": options.seeds, "cases": found}
    results |= measured_sizes(results, sizes)
    RECORD.write(results, page(results))


def measure(case: Case, work: Path, seed: int, image_size: int | None = None) -> dict[str, Any]:
    """Fill in one draw of tags and compare; results of an earlier call are read."""
    folder = folder_of(case, work, seed, image_size)
    outcome = folder / OUTCOME
    if outcome.exists():
        return dict(json.loads(outcome.read_text(encoding="utf-8")))
    from tagfill.filling import fill

    say(f"{case.name}, {folder.name}")
    given = case.write_tags(folder / "tags.csv", seed)
    share_features(folder)
    keep = f"precision={TARGET}"
    result = fill(folder / "tags.csv", photos=case.photos, out=folder / "filled", keep=keep, image_size=image_size)
    truth, classes = case.truth, result.dataset.classes
    missing = sum(len(set(tags) - {given[image]}) for image, tags in truth.items())
    unknown = len(truth) * len(classes) - len(given)
    added = {(row["image"], tag) for row in result.table.to_pylist() for tag in row["added"]}
    summary = result.summary
    scores = raw_scores(folder / "filled", "auto")
    found = {
        "photos": len(truth),
        "classes": len(classes),
        "missing": missing,
        "unknown": unknown,
        "expected_missing": summary.expected_missing,
        "expected_precision": summary.expected_precision,
        "seconds": summary.seconds,
        "rules": {
            "fill": judged(added, case),
            "own scores": judged(pairs_by_mean(*scores, given, TARGET), case),
            "an, 0.5": judged(pairs_above(*raw_scores(folder / "filled", "an"), given, 0.5), case),
        },
    }
    outcome.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    say(json.dumps(found["rules"]))
    return found


def measured_sizes(results: dict[str, Any], sizes: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Results by size of the input, with the commit that they were measured at: those of now, or else of before."""
    if any(sizes.values()):
        for name, of_case in sizes.items():
            of_case[str(DEFAULT_SIZE)] = results["cases"][name][0]
        return {"sizes": sizes, "sizes_commit": results["commit"]}
    earlier = json.loads(RECORD.results.read_text(encoding="utf-8")) if RECORD.results.exists() else {}
    return {name: earlier[name] for name in ("sizes", "sizes_commit") if name in earlier}


def folder_of(case: Case, work: Path, seed: int, image_size: int | None) -> Path:
    """Where one draw of tags, or one size of the input, is worked on."""
    own = f"seed-{seed}" if image_size is None else f"size-{image_size}"
    return work / case.name.replace(",", "").replace(" ", "-").lower() / own


def share_features(folder: Path) -> None:
    """Use the features of the first draw, which has the same photos, if they are of the same size."""
    first = folder.parent / "seed-0" / "filled" / "work"
    if folder.name == "seed-0" or not folder.name.startswith("seed-") or not first.exists():
        return
    target = folder / "filled" / "work"
    target.mkdir(parents=True, exist_ok=True)
    for cache in first.glob("features-*"):
        if not (target / cache.name).exists():
            shutil.copytree(cache, target / cache.name, copy_function=os.link)


def raw_scores(filled: Path, method: str) -> tuple[list[str], tuple[str, ...], np.ndarray]:
    """Names, classes and σ(logits) of the tagged photos, by a model that was trained on them."""
    from tagfill.dataset import Dataset
    from tagfill.probabilities import sigmoid
    from tagfill.training import Run, build_recipe, start
    from tagfill.training.evaluation import LoadedModel

    (work,) = (path for path in (filled / "work").iterdir() if (path / "run").is_dir())
    data, run = Dataset.open(work / "data"), Run(work / "run")
    if method != "auto":
        content = {"dataset": str(data.folder), "method": method, "backbone": run.recipe.backbone}
        recipe = build_recipe(content, features=run.recipe.final_features, epochs=10)
        run = start(data, recipe, out=filled.parent / f"run-{method}", force=True)
    model = LoadedModel.open(run, data, features=run.recipe.final_features)
    logits = np.concatenate([prediction.logits.numpy() for _, prediction in model.predict("train")])
    return data.names(data.split("train")), data.classes, sigmoid(logits)


def pairs_above(
    names: list[str], classes: tuple[str, ...], scores: np.ndarray, given: dict[str, str], threshold: float
) -> set[tuple[str, str]]:
    """Unknown pairs with at least this score."""
    found = {(names[row], classes[label]) for row, label in zip(*np.nonzero(scores >= threshold), strict=True)}
    return {pair for pair in found if given.get(pair[0]) != pair[1]}


def pairs_by_mean(
    names: list[str], classes: tuple[str, ...], scores: np.ndarray, given: dict[str, str], target: float
) -> set[tuple[str, str]]:
    """As many unknown pairs as possible whose mean score is at least the target."""
    position = {name: code for code, name in enumerate(classes)}
    unknown = np.ones(scores.shape, dtype=bool)
    unknown[np.arange(len(names)), [position[given[name]] for name in names]] = False
    ranked = np.sort(scores[unknown])[::-1]
    enough = np.flatnonzero(np.cumsum(ranked) >= target * np.arange(1, len(ranked) + 1))
    return pairs_above(names, classes, scores, given, ranked[enough[-1]]) if len(enough) else set()


def judged(pairs: set[tuple[str, str]], case: Case) -> dict[str, int]:
    """How many tags a rule adds, and how many of them are right."""
    return {"added": len(pairs), "right": sum(tag in case.truth[image] for image, tag in pairs)}


if __name__ == "__main__":
    main()
