"""Whether points teach more than tags of the same cost, on scenes, five paired seeds.

Writes benchmarks/results/patches.json and docs/benchmarks/patches.md. A seed draws labels, order of images and initial
weights alike for all entries; a kind of annotation gets as many labels as its budget buys. Everything trains a `cam`
head on the same cached features.

    python benchmarks/patches/run.py                      half an hour on two cores, goes on where it stopped
    python benchmarks/patches/run.py --budgets 10 --seeds 1    a look, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "patches.json"
PAGE = ROOT / "docs" / "benchmarks" / "patches.md"
COMMAND = "python benchmarks/patches/run.py"
PACKAGES = ("training", "loading", "models", "memory", "methods", "losses", "metrics", "scenes", "protocols")
OWN = ("--", "benchmarks/patches", *(f"src/tagfill/{name}" for name in PACKAGES))  # what the numbers depend on
SIZES = {"train": 600, "val": 200, "test": 400}
BUDGETS, SEEDS, EPOCHS = (10.0, 5.0), 5, 25


@dataclass(frozen=True)
class Entry:
    """What takes part: a kind of annotation, and the method that learns from it."""

    kind: str
    method: str = "patchml"
    options: dict[str, Any] = field(default_factory=dict)


ENTRIES = {
    "I": Entry("I", options={"w_patch": 0.0}),
    "SP": Entry("SP", options={"w_patch": 5.0}),
    "I, absent cells": Entry("I", options={"w_patch": 5.0}),
    "SP, PatchCluster": Entry("SP", "patchml+patchcluster", {"w_patch": 5.0}),
    "SP, CSL-P": Entry("SP", options={"w_patch": 5.0, "patch_unknown": "selective", "k_patch": 25}),
    "I, CSL-I": Entry("I", options={"w_patch": 0.0, "image_unknown": "selective"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", default=",".join(f"{each:g}" for each in BUDGETS), help="percent of all pairs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("runs/patches"), help="where runs are kept")
    options = parser.parse_args()
    budgets = tuple(float(word) for word in options.budgets.split(","))
    results = {
        "command": COMMAND,
        "commit": git("rev-parse", "--short=12", "HEAD")
        + (" with changes" if git("status", "--porcelain", *OWN) else ""),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "sizes": SIZES,
        "epochs": options.epochs,
        "seeds": options.seeds,
        "budgets": measure(budgets, options),
    }
    if (budgets, options.seeds, options.epochs) != (BUDGETS, SEEDS, EPOCHS):
        print(json.dumps(results, indent=2))
        return
    from page import page

    for path, text in ((RESULTS, json.dumps(results, indent=2) + "\n"), (PAGE, page(results))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


def measure(budgets: tuple[float, ...], options: argparse.Namespace) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """Of each budget and entry: what was bought and the three scores, a value a seed."""
    import tagfill

    data = tagfill.scenes.make(**SIZES)
    tagfill.features(data)
    if not (options.out / "boxes" / "dataset.yaml").exists():
        boxed(data).save(options.out / "boxes")
    jobs = [(budget, name, seed, options.epochs, options.out)
            for budget in budgets for name in ENTRIES for seed in range(options.seeds)]  # fmt: skip
    found: dict[str, dict[str, dict[str, list[Any]]]] = {f"{b:g}": {name: {} for name in ENTRIES} for b in budgets}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, (job, outcome) in enumerate(zip(jobs, pool.map(train, jobs), strict=True), start=1):
            for key, value in outcome.items():
                found[f"{job[0]:g}"][job[1]].setdefault(key, []).append(value)
            shown = ", ".join(f"{key} {outcome[key]:.2f}" for key in ("cls", "loc_boxes", "loc_masks"))
            say(f"{number} of {len(jobs)}: {job[1]} at {job[0]:g} %, seed {job[2]}: {shown}")
    return found


def train(job: tuple[float, str, int, int, Path]) -> dict[str, float]:
    """What a budget bought, and what the model that learnt from it scores on test; made or found."""
    budget, name, seed, epochs, out = job
    import tagfill
    from tagfill.training import resume

    entry = ENTRIES[name]
    folder = out / f"{name.replace(', ', '-')}-{budget:g}-s{seed}"
    record = folder / "scores.json"
    if record.exists():
        return dict(json.loads(record.read_text(encoding="utf-8")))
    data = tagfill.scenes.make(**SIZES)
    cache = tagfill.features(data)
    place = out / f"{entry.kind}-data-{budget:g}-s{seed}"
    if not (place / "dataset.yaml").exists():
        tagfill.protocols.budget(data, percent=budget, kind=entry.kind, seed=seed).save(place)
    part = tagfill.Dataset.open(place)
    if (folder / "run.json").exists():
        run = resume(folder)
    else:
        settings = {"method": entry.method, "options": {"patchml": entry.options}}
        run = tagfill.train(part, features=cache, epochs=epochs, seed=seed, out=folder, **settings)
    scores = {"cls": 0.0}
    for truth, dataset in (("masks", data), ("boxes", tagfill.Dataset.open(out / "boxes"))):
        result = tagfill.evaluate(run, dataset, split="test", features=cache.folder, localise="minmax")
        scores |= {"cls": 100 * result.mean, f"loc_{truth}": 100 * result.localised.mean}
    kept = part.protocol["kept"]
    scores |= {key: kept[key] for key in ("positives", "negatives", "images", "seconds")}
    record.write_text(json.dumps(scores), encoding="utf-8")
    return scores


def boxed(data: Any) -> Any:
    """The same data with a box where there was a mask."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.Table.from_batches(data.rows().to_batches())
    columns = {"kind": pc.if_else(pc.equal(rows["kind"], "mask"), "box", rows["kind"])}
    columns |= {n: pa.nulls(rows.num_rows, rows.schema.field(n).type) for n in ("rle", "rle_height", "rle_width")}
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    return data.replace(annotations=rows, folder=None)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
