"""Table F: heads on the same cached features: score, size and cost."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import Bench
from jobs import Job, run_all
from tables import shown, table

LABELS = {"full": ("full", "bce"), "AN": ("single", "an"), "LL-R": ("single", "ll-r"), "ROLE": ("single", "role")}
ATTENTIVE = "query, self-attention"
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("linear", {}),
    "cam": ("cam", {}),
    "cam, boost": ("cam", {"boost": 5.0}),
    "3×3 convolution (tscam)": ("tscam", {}),
    "query, no self-attention": ("query", {}),
    ATTENTIVE: ("query", {"keep_first_self_attention": True, "keep_other_self_attention": True}),
}
FOCUS = {"query, no self-attention, ASL γ₋ 1": 1.0, "query, no self-attention, ASL γ₋ 2": 2.0}
"""Query2Label's own loss on full labels."""

SLOW = "query"
"""Heads that begin with this have one seed, fewer epochs and a rate of their own."""


def measure(bench: Bench) -> dict[str, Any]:
    """Scores of each head with each way of learning, and the cost of a step."""
    bench.features("eval")
    epochs = 2 if bench.quick else 8
    seeds = {name: 1 if name.startswith(SLOW) else bench.seeds for name in HEADS}
    cells = [(name, way, seed) for name in HEADS for way in LABELS if name != ATTENTIVE or way in ("full", "AN")
             for seed in range(seeds[name])]  # fmt: skip
    runs = [replace(job(name, way, epochs), seed=seed) for name, way, seed in cells]
    plain = replace(job("query, no self-attention", "full", epochs), method="asl")
    full = [replace(plain, options={"asl": {"gamma_negative": gamma}}) for gamma in FOCUS.values()]
    scores = run_all([*runs, *full], bench.work, bench.processes)
    found: dict[str, dict[str, list[float]]] = {name: {way: [] for way in LABELS} for name in HEADS}
    for (name, way, _), one in zip(cells, scores, strict=False):
        found[name][way].append(one["test"])
    for name, one in zip(FOCUS, scores[len(runs) :], strict=True):
        found[name] = {"full": [one["test"]]}
    costs = {name: cost(job(name, "AN", 1), bench.work) for name in HEADS}
    setting = {"epochs": epochs, "epochs of query": runs[-1].epochs, "seeds": bench.seeds}
    return {"setting": setting, "heads": found, "costs": costs}


def job(name: str, way: str, epochs: int) -> Job:
    """A run without a seed of its own; Query2Label's transformer wants a smaller rate than one layer does."""
    head, options = HEADS[name]
    data, method = LABELS[way]
    slow = name.startswith(SLOW)
    settings = {"expected_positives": 1.5} if method == "role" else {}
    return Job(data, method, head=head, head_options=options, cache="eval", lr=1e-4 if slow else 1e-3,
               epochs=max(1, epochs * 3 // 8) if slow else epochs, settings=settings)  # fmt: skip


def cost(job: Job, work: Path) -> dict[str, float]:
    """Parameters, images per second in training and peak memory of one epoch, in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(one_epoch, job, work).result()


def one_epoch(job: Job, work: Path) -> dict[str, float]:
    """What `cost` asks for, measured here."""
    import resource
    import tempfile

    import torch

    import tagfill
    from tagfill.models import create_head

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = tagfill.Dataset.open(work / "data" / job.data)
        tagfill.train(data, method=job.method, head=job.head, head_options=job.head_options, epochs=1, lr=job.lr,
                      features=work / "features" / str(job.cache), out=Path(folder) / "run")  # fmt: skip
        seconds = json.loads((Path(folder) / "run" / "timings.jsonl").read_text().splitlines()[0])["seconds"]
    head = create_head(job.head, 1280, len(data.classes), seed=0, **job.head_options)
    return {
        "parameters": sum(values.numel() for values in head.parameters()),
        "images a second": len(data.split("train")) / seconds,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, costs = results["setting"], results["costs"]
    rows = []
    for name, found in results["heads"].items():
        taken = costs.get(name)
        told = ["–"] * 3 if taken is None else [
            f"{taken['parameters']:,}", f"{taken['peak MB']:,.0f}", f"{taken['images a second']:,.0f}"]  # fmt: skip
        rows.append([name, *(shown(found.get(way, [])) for way in LABELS), *told])
    columns = ["head", *LABELS, "parameters", "peak MB", "images per second"]
    epochs, fewer, seeds = setting["epochs"], setting["epochs of query"], setting["seeds"]
    return f"""Test mAP on cached features of whole images. One layer: rate 1e-3, {epochs} epochs, {seeds} seeds.
`query` (width 256): rate 1e-4, {fewer} epochs, one seed, because it takes much longer; rates were not searched.
The two ASL rows use Query2Label's own loss on full labels. Memory is the peak of a process that trains one epoch with
`an`, including libraries; images per second are those of that epoch on one core, including validation; other runs may
have been running at the same time.

{table(columns, rows)}"""
