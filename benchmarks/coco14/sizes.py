"""Table S: from how many photos on ROLE works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench import Bench, Write
from jobs import Job
from single_positives import dataset
from tables import table

import tagfill

SIZES = (2_900, 8_000, 20_000, None)
QUICK_SIZES = (200, None)
"""Training photos; None is all of them."""

METHODS = {"full": Job("full", "bce"), "an": Job("one-0", "an"), "role": Job("one-0", "role")}
BATCH, FEW, LONG = 64, 4_000, 25
"""Of fewer than all photos: batch size; up to this many photos, so many epochs."""


def subset(data: tagfill.Dataset, count: int) -> tagfill.Dataset:
    """All validation and test photos, and some training photos at random; a larger set contains a smaller one."""
    training = data.split("train")
    kept = np.random.default_rng(0).permutation(training)[:count]
    dropped = np.setdiff1d(training, kept)
    images = data.images.take(pa.array(np.setdiff1d(np.arange(len(data)), dropped)))
    rows = data.rows()
    rows = rows.filter(pc.is_in(rows["image"], images["image"])) if hasattr(rows, "filter") else rows
    return data.replace(images=images, annotations=rows, folder=None, truth=None, protocol=None)


def measure(bench: Bench, write: Write) -> None:
    """One seed, rates searched at each size; written after every run."""
    dataset(bench, 0)
    found: dict[str, dict[str, Any]] = {}
    setting = {"grid": bench.grid}
    for count in QUICK_SIZES if bench.quick else SIZES:
        total = len(bench.material.open("full").split("train"))
        for name, entry in METHODS.items():
            data = entry.data
            if count is not None:
                data = bench.material.made(f"{entry.data}-of-{count}", lambda whole, n=count: subset(whole, n), of=data)
            epochs = bench.epochs if bench.quick or (count or total) > FEW else LONG
            batch = entry.batch if count is None else BATCH
            best = bench.tuned(replace(entry, data=data, epochs=epochs, batch=batch))
            if best is None:
                continue
            job, scores = best
            row = {"lr": job.lr, "epochs": epochs, "batch": batch, "test": scores["test"], "boosted": scores["boosted"]}
            found.setdefault(str(count or total), {})[name] = row
            write({"setting": setting, "sizes": found})


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    rows = []
    for count, found in results["sizes"].items():
        row = [f"{int(count):,}"]
        row += [f"{found[name]['test']:.2f}" if name in found else "–" for name in METHODS]
        whole = "role" in found and "an" in found
        row += [f"{found['role']['test'] - found['an']['test']:+.2f}" if whole else "–"]
        row += [f"{found['role'][key]}" if "role" in found else "–" for key in ("epochs", "batch")]
        rows.append(row)
    verdict = conclusion(results["sizes"])
    rates = ", ".join(f"{rate:g}" for rate in results["setting"]["grid"])
    return f"""Fewer training photos, drawn at random; validation and test photos are the same. Smaller sets have
smaller batches and the smallest more epochs, so that they do not lose for lack of steps; rates are the best of
{rates} on validation at each size; one seed.

{table(["training photos", "`full`", "`an`", "`role`", "gain of `role` over `an`", "epochs", "batch"], rows)}

{verdict}"""


def conclusion(sizes: dict[str, Any]) -> str:
    """From which size on ROLE is better than AN."""
    both = {int(count): found for count, found in sizes.items() if {"an", "role"} <= found.keys()}
    works = [count for count, found in both.items() if found["role"]["test"] > found["an"]["test"]]
    fails = [count for count in both if count not in works]
    if not works:
        return f"With 80 classes, `role` is below `an` at every size up to {max(both, default=0):,} photos."
    if not fails:
        return f"`role` is above `an` at every size from {min(works):,} photos on."
    if min(works) > max(fails):
        return f"With 80 classes, `role` is below `an` up to {max(fails):,} photos and above it from {min(works):,} on."
    return "Whether `role` is above `an` does not follow the number of photos."
