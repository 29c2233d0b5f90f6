"""What one process measures; prints one line of JSON.

python benchmarks/memory/measure.py heatmaps images=82000 size=28 steps=240
python benchmarks/memory/measure.py neighbours images=100000 queries=10000
python benchmarks/memory/measure.py setup images=20000
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from tagfill import methods
from tagfill.contract import Batch, Ranks, Task
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory
from tagfill.memory.neighbors import nearest, unit_rows
from tagfill.models import create_head

BATCH, CHANNELS, CLASSES, NEIGHBOURS = 64, 1280, 80, 10


def anonymous_mb() -> float:
    """Anonymous memory of this process, which no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("RssAnon"))


class Peak:
    """The most anonymous memory inside a `with` block, beyond what there was before."""

    def __enter__(self) -> Peak:
        self._before = self._most = anonymous_mb()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self._most = max(self._most, anonymous_mb())

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watcher.join()
        self.mb = max(self._most, anonymous_mb()) - self._before


def single_positives(images: int) -> LabelMatrix:
    """One positive and one negative an image."""
    rng = np.random.default_rng(0)
    present = rng.integers(CLASSES, size=images)
    absent = (present + 1 + rng.integers(CLASSES - 1, size=images)) % CLASSES
    image, values = np.repeat(np.arange(images), 2), np.tile([1, 0], images)
    return LabelMatrix.from_entries(image, np.stack([present, absent], 1).ravel(), values, (images, CLASSES))


def crops(count: int, rng: np.random.Generator) -> Geometry:
    """Crops of a quarter of the area and more, half of them mirrored."""
    size = rng.uniform(0.5, 1, (count, 2))
    corner = rng.random((count, 2)) * (1 - size)
    box = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    return Geometry(box, rng.random(count) < 0.5, np.zeros(count, bool), np.ones(count, bool))


def task_of(labels: LabelMatrix, memory: Memory, grid: int, features: Any = None) -> Task:
    return Task(
        classes=tuple(map(str, range(CLASSES))),
        labels=labels,
        size=len(labels),
        epochs=1,
        seed=0,
        grid=(grid, grid),
        expected_positives=1.5,
        lr=1e-3,
        memory=memory,
        ranks=Ranks(),
        predict=lambda split: iter(()),
        shard=np.arange(len(labels)),
        frozen_features=features,
        truth=lambda: labels,
    )


def heatmaps(images: int, size: int, steps: int) -> dict[str, Any]:
    """Steps of training with and without heatmaps on disk, in turns, and the heatmaps alone."""
    grid, labels, rng = size // 2, single_positives(images), np.random.default_rng(1)
    cells = torch.from_numpy(rng.random((BATCH, grid, grid, CHANNELS), dtype=np.float32)).permute(0, 3, 1, 2)
    order = rng.permutation(images)
    batches = [order[start : start + BATCH] for start in range(0, images - BATCH + 1, BATCH)][:steps]
    views = [crops(BATCH, rng) for _ in batches]
    with tempfile.TemporaryDirectory(prefix="heatmaps-") as folder, Peak() as peak:
        begin = time.perf_counter()
        memory = Memory(labels, np.arange(images), seed=0, folder=Path(folder))
        with_maps, plain = (
            trainer("an+scl", task_of(labels, memory, grid)),
            trainer("an", task_of(labels, Memory(labels, np.arange(images), seed=0), grid)),
        )
        made = time.perf_counter() - begin
        memory.mark(1)  # from here on rows are saved before they change, as in a run
        store = memory.heatmaps(momentum=0.8, size=size)
        taken: dict[str, list[float]] = {"without": [], "with": [], "alone": []}
        memory.expect(batches)
        for number, (index, view) in enumerate(zip(batches, views, strict=True)):
            batch = Batch(torch.from_numpy(index), torch.from_numpy(labels.rows(index)), cells, view)
            if number % 3 == 2:
                begin = time.perf_counter()
                target = store.read(batch.index, view, (grid, grid))
                store.update(batch.index, view, target)
                taken["alone"].append(time.perf_counter() - begin)
                continue
            name, step = ("with", with_maps) if number % 3 else ("without", plain)
            if name == "without":
                store.read(batch.index, view, (grid, grid))  # so that what was expected comes
            begin = time.perf_counter()
            step(batch)
            taken[name].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        memory.mark(2)
        marked = time.perf_counter() - begin
        memory.close()
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "gb": round(memory.sizes()["heatmaps"] / 1e9, 3),
        "disk_gb": round(on_disk / 1e9, 3),
        "make_seconds": round(made, 2),
        "mark_seconds": round(marked, 3),
        "anonymous_mb": round(peak.mb, 1),
        "samples_per_second": {name: round(BATCH / median(times), 1) for name, times in taken.items()},
    }


def trainer(name: str, task: Task) -> Any:
    """One step of training with a method: `cam` head, loss, backward, Adam, memory."""
    method = methods.create(name)
    method.setup(task)
    method.begin_epoch(1)
    head = create_head("cam", CHANNELS, CLASSES, seed=0).train()
    adam = torch.optim.Adam(head.parameters(), lr=1e-3)

    def step(batch: Batch) -> None:
        task.memory.begin_step()
        prediction = head(
            batch.inputs, maps=True
        )  # also where nobody looks at them: the step that heatmaps are added to
        torch.stack(list(method.loss(batch, prediction).values())).sum().backward()
        with torch.no_grad():
            method.observe(batch, prediction.detach())
        adam.step()
        adam.zero_grad()

    return step


def neighbours(images: int, queries: int) -> dict[str, Any]:
    """Exact neighbours of some images among all, against scikit-learn's brute force, on one thread each."""
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(2)
    unit = unit_rows(rng.random((images, CHANNELS), dtype=np.float32) ** 4)
    asked = rng.choice(images, queries, replace=False)
    with Peak() as ours:
        begin = time.perf_counter()
        found, _ = nearest(unit, asked, NEIGHBOURS, search="exact")
        seconds = time.perf_counter() - begin
    with Peak() as theirs:
        begin = time.perf_counter()
        judge = NearestNeighbors(n_neighbors=NEIGHBOURS + 1, algorithm="brute", metric="cosine").fit(unit)
        others = judge.kneighbors(unit[asked], return_distance=False)
        judge_seconds = time.perf_counter() - begin
    same = [
        len(set(row) & {o for o in other.tolist() if o != query}) / NEIGHBOURS
        for row, other, query in zip(found.tolist(), others, asked.tolist(), strict=True)
    ]
    return {
        "seconds": round(seconds, 2),
        "mb": round(ours.mb, 1),
        "sklearn_seconds": round(judge_seconds, 2),
        "sklearn_mb": round(theirs.mb, 1),
        "agreement": round(float(np.mean(same)), 6),
    }


def setup(images: int) -> dict[str, Any]:
    """The set-up of SE from given features, and a step's temperatures."""
    labels = single_positives(images)
    features = np.random.default_rng(3).random((images, CHANNELS), dtype=np.float32) ** 4
    task = task_of(labels, Memory(labels, np.arange(images), seed=0), 7, lambda: features)
    method = methods.create("se")
    with Peak() as peak:
        begin = time.perf_counter()
        method.setup(task)
        seconds = time.perf_counter() - begin
    times = []
    for start in range(0, 20 * BATCH, BATCH):
        index = np.arange(start, start + BATCH) % images
        begin = time.perf_counter()
        method.temperatures(torch.from_numpy(index), torch.from_numpy(labels.rows(index)))  # type: ignore[attr-defined]
        times.append(time.perf_counter() - begin)
    return {
        "seconds": round(seconds, 2),
        "ms_per_image": round(1000 * seconds / images, 3),
        "peak_mb": round(peak.mb, 1),
        "kept_mb": round(sum(task.memory.sizes().values()) / 1e6, 3),
        "temperatures_ms": round(1000 * median(times), 3),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    numbers = {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[2:])}
    print(json.dumps({"heatmaps": heatmaps, "neighbours": neighbours, "setup": setup}[sys.argv[1]](**numbers)))
