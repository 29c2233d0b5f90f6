"""One phase of the label side in a process of its own; prints one line of JSON.

python benchmarks/scale/phases.py PHASE FOLDER PHOTOS
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from generate import CLASSES, write_labels, write_predictions

from tagfill.dataset import Dataset, validate
from tagfill.labels import LabelMatrix

SOURCE, DATA, PREDICTIONS, MATRIX = "labels.parquet", "data", "predictions", "matrix"
MACHINES = 4
BATCH_SIZE = 256
BATCHES = 500  # that are made dense
PER_CLASS = 100  # suggestions


class Watch:
    """Processor and wall-clock seconds of the parts of a process that are measured."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what is inside."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu += time.process_time() - cpu
        self.wall += time.perf_counter() - wall


def generate_labels(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Write the table that is imported; not a cost of Tagfill."""
    with watch.running():
        written = write_labels(folder / SOURCE, photos)
    return {"rows": written.rows, "bytes": written.bytes}


def import_table(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Read the long table, and save the dataset folder."""
    from tagfill.formats import csv

    with watch.running():
        data = csv.read(folder / SOURCE, root=folder)
        data.save(folder / DATA)
    files = {path.name: path.stat().st_size for path in (folder / DATA).glob("*.*")}
    assert len(data) == photos
    return {"rows": rows_of(data), "bytes": sum(files.values()), "files": files}


def open_and_validate(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Open the folder, and look for problems in all rows."""
    with watch.running():
        data = Dataset.open(folder / DATA)
        errors = [problem for problem in validate(data) if problem.severity == "error"]
    return {"rows": rows_of(data), "errors": len(errors)}


def resolve(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """From rows to the label matrix; it is written down for the next phases, which is not measured."""
    with watch.running():
        data = Dataset.open(folder / DATA)
        labels = data.labels()
    (folder / MATRIX).mkdir(exist_ok=True)
    for name in ("starts", "classes", "values"):
        np.save(folder / MATRIX / f"{name}.npy", getattr(labels, name))
    return {"rows": rows_of(data), "entries": len(labels.values), "bytes": labels.nbytes}


def shard(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Divide the photos among machines, and take the labels of each."""
    from tagfill.data import Sampler  # loads torch, which the other phases do without

    labels, entries, largest = read_matrix(folder), 0, 0
    for rank in range(MACHINES):
        with watch.running():
            own = labels.take(Sampler(photos, BATCH_SIZE, 0, rank, MACHINES).shard)
        entries, largest = entries + len(own.values), max(largest, own.nbytes)
    assert entries == len(labels.values)
    return {"rows": entries, "machines": MACHINES, "bytes": largest}


def sample(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Plan an epoch of one machine, and make some of its batches dense."""
    from tagfill.data import Sampler

    labels, sampler = read_matrix(folder), Sampler(photos, BATCH_SIZE, 0, 0, MACHINES)
    dense = Watch()
    with watch.running():
        batches = sampler.batches(1)
    with dense.running():
        positives = sum(int((labels.rows(batch) == 1).sum()) for batch in batches[:BATCHES])
    assert positives
    drawn = sum(map(len, batches[:BATCHES]))
    return {"rows": len(labels.values) // MACHINES, "dense_ms_per_photo": 1e3 * dense.cpu / drawn}


def generate_predictions(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """Write what predictions would be; not a cost of Tagfill."""
    with watch.running():
        written = write_predictions(folder / PREDICTIONS, photos)
    return {"rows": written.rows, "bytes": written.bytes}


def suggest(folder: Path, photos: int, watch: Watch) -> dict[str, Any]:
    """The best pairs of each class that are not annotated, over all shards of predictions."""
    from tagfill.curation.from_predictions import suggest_from_predictions

    data = Dataset.open(folder / DATA)
    data.labels()  # measured as a phase of its own
    files = sorted((folder / PREDICTIONS).glob("*.parquet"))
    with watch.running():
        found = suggest_from_predictions(data, files, per_class=PER_CLASS)
    predicted = sum(_rows_of_file(path) for path in files)
    return {"rows": predicted, "files": len(files), "suggestions": len(found)}


def rows_of(data: Dataset) -> int:
    """How many annotation rows a dataset has."""
    return _rows_of_file(data.annotations) if isinstance(data.annotations, Path) else data.annotations.num_rows


def _rows_of_file(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def read_matrix(folder: Path) -> LabelMatrix:
    """The label matrix that `resolve` wrote down."""
    parts = (np.load(folder / MATRIX / f"{name}.npy") for name in ("starts", "classes", "values"))
    return LabelMatrix(*parts, CLASSES)


PHASES: dict[str, Callable[[Path, int, Watch], dict[str, Any]]] = {
    "generate labels": generate_labels,
    "import": import_table,
    "validate": open_and_validate,
    "resolve": resolve,
    "shard": shard,
    "sample": sample,
    "generate predictions": generate_predictions,
    "suggest": suggest,
}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    name, folder, photos = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    watch = Watch()
    found = PHASES[name](folder, photos, watch)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "cpu_seconds": watch.cpu, "seconds": watch.wall, "peak_bytes": peak}))
