"""Table S: from how many photos on ROLE works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench import Bench, Write
from filling.photo_counts import conclusion
from jobs import Job
from single_positives import dataset
from tables import table

import tagfill

SIZES = (2_900, 8_000, 20_000, None)
QUICK_SIZES = (200, None)
"""Training photos; None is all of them."""

METHODS = {"an": Job("one-0", "an"), "role": Job("one-0", "role")}
RATES = (3e-4, 1e-3, 3e-3)
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
    """One seed, rates chosen on validation; written after every row."""
    dataset(bench, 0)
    found: dict[str, dict[str, Any]] = {}
    setting = {"rates": RATES}
    total = len(bench.material.open("one-0").split("train"))
    for count in QUICK_SIZES if bench.quick else SIZES:
        for name, entry in METHODS.items():
            data = entry.data
            if count is not None:
                data = bench.material.made(f"{entry.data}-of-{count}", lambda whole, n=count: subset(whole, n), of=data)
            epochs = bench.epochs if bench.quick or (count or total) > FEW else LONG
            batch = entry.batch if count is None else BATCH
            job = replace(entry, data=data, epochs=epochs, batch=batch)
            best = bench.tuned(job, RATES, boosted=count is None)
            if best is None:
                continue
            job, scores = best
            row = {"epochs": epochs, "batch": batch, "rate": job.lr, "test": scores["test"]}
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
        row += [f"{found[name]['rate']:g}" if name in found else "–" for name in METHODS]
        row += [f"{found['role'][key]}" if "role" in found else "–" for key in ("epochs", "batch")]
        rows.append(row)
    verdict = conclusion(results["sizes"])
    rates = ", ".join(f"{rate:g}" for rate in results["setting"]["rates"])
    columns = ["training photos", "`an`", "`role`", "gain of `role` over `an`", "rate of `an`", "of `role`"]
    return f"""Fewer training photos, drawn at random; validation and test photos are the same. Smaller sets have
smaller batches and the smallest more epochs, so that they do not lose for lack of steps. Rates are the best of
{rates} on validation; one seed.

{table([*columns, "epochs", "batch"], rows)}

{verdict}"""
