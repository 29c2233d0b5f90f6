"""What one process measures on one dataset folder; prints one line of JSON.

python benchmarks/labels/measure.py load FOLDER
python benchmarks/labels/measure.py workers FOLDER
python benchmarks/labels/measure.py check FOLDER
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from multiprocessing import get_context
from typing import Any

import numpy as np

from memory import Peak, counted
from tagfill.dataset import Dataset, validate
from tagfill.labels import LabelMatrix, Overlay

BATCH = 256
WORKERS = 2


def load(folder: str) -> dict[str, Any]:
    """Open the folder, decide its labels, and make batches dense."""
    before = counted()["private"]
    with Peak() as opening:
        start = time.perf_counter()
        data = Dataset.open(folder)
        opened = time.perf_counter() - start
    after_open = counted()["private"]
    with Peak() as deciding:
        start = time.perf_counter()
        labels = data.labels()
        decided = time.perf_counter() - start
    gc.collect()
    entries = len(labels.values)
    return {
        "images": len(data),
        "classes": len(data.classes),
        "entries": entries,
        "interpreter_mb": before,
        "open_seconds": opened,
        "open_mb": after_open - before,
        "open_peak_mb": opening.private - before,
        "labels_seconds": decided,
        "rows_per_second": entries / decided,
        "mb": counted()["private"] - before,
        "peak_mb": deciding.private - before,
        "matrix_mb": labels.nbytes / 1e6,
        "batch_ms": batch_time(labels),
        "overlay_batch_ms": batch_time(overlaid(labels)),
    }


def overlaid(labels: LabelMatrix) -> Overlay:
    """The labels with as many changes as a tenth of the entries."""
    rng = np.random.default_rng(1)
    keys = np.unique(rng.integers(0, len(labels) * labels.width, max(len(labels.values) // 10, 1)))
    overlay = Overlay(labels)
    overlay.set(keys // labels.width, keys % labels.width, 1)
    return overlay


def batch_time(labels: LabelMatrix | Overlay, repeats: int = 200) -> float:
    """Milliseconds to make a random batch dense, the median."""
    rng = np.random.default_rng(0)
    times = []
    for _ in range(repeats):
        index = rng.integers(0, labels.shape[0], BATCH)
        start = time.perf_counter()
        labels.rows(index)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def workers(folder: str) -> dict[str, Any]:
    """Fork workers that make every batch of an epoch dense, and see whether the labels were copied."""
    labels = Dataset.open(folder).labels()
    gc.collect()
    alone = counted()["proportional"]
    context = get_context("fork")
    queue, done, leave = context.SimpleQueue(), context.Barrier(WORKERS + 1), context.Barrier(WORKERS + 1)
    order = np.random.default_rng(0).permutation(len(labels))
    shares = [order[number::WORKERS] for number in range(WORKERS)]
    started = [context.Process(target=_epoch, args=(labels, share, queue, done, leave)) for share in shares]
    for process in started:
        process.start()
    done.wait()
    together = {process.pid: counted(process.pid) for process in started}
    parent = counted()
    leave.wait()
    positives = [queue.get() for _ in started]
    for process in started:
        process.join()
    assert sum(positives) == int(labels.positives.sum())
    return {
        "matrix_mb": labels.nbytes / 1e6,
        "batches": sum(-(-len(share) // BATCH) for share in shares),
        "workers": WORKERS,
        "alone_pss_mb": alone,
        "together_pss_mb": parent["proportional"] + sum(memory["proportional"] for memory in together.values()),
        "worker_private_mb": max(memory["private"] for memory in together.values()),
    }


def _epoch(labels: LabelMatrix, order: np.ndarray, queue: Any, done: Any, leave: Any) -> None:
    positives = 0
    for begin in range(0, len(order), BATCH):
        positives += int((labels.rows(order[begin : begin + BATCH]) == 1).sum())
    done.wait()  # everybody is still there, and has touched all labels
    leave.wait()
    queue.put(positives)


def check(folder: str) -> dict[str, Any]:
    """Hash what the dataset says, and look for problems."""
    data = Dataset.open(folder)
    before = counted()["private"]
    with Peak() as hashing:
        start = time.perf_counter()
        assert data.identities
        hashed = time.perf_counter() - start
    with Peak() as validating:
        start = time.perf_counter()
        problems = validate(data)
        validated = time.perf_counter() - start
    return {
        "identities_seconds": hashed,
        "identities_peak_mb": hashing.private - before,
        "validate_seconds": validated,
        "validate_peak_mb": validating.private - before,
        "errors": sum(problem.severity == "error" for problem in problems),
    }


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(json.dumps({"load": load, "workers": workers, "check": check}[sys.argv[1]](sys.argv[2])))
