"""What a photo costs with 20,000 classes; writes benchmarks/results/scale-units.json, for the plan in docs/scaling.md.

Features, training of a linear head on them, and predictions are made for a few and for more photos (or epochs) in one
thread; the difference in processor time is the cost of a photo, without that of starting. Each step runs once before it
is measured, so that modules and models are loaded. Photos are rendered noise.

    python benchmarks/scale/units.py --work WORK     about two minutes of one core
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from generate import CLASSES, LABELS
from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

import tagfill
from tagfill.dataset import Dataset

RECORD = Record("scale", ("data", "training", "inference", "models"), ("torch",))
OUT = RECORD.results.with_name("scale-units.json")
FEW, MANY = 32, 256
BATCH_SIZE = 128
EPOCHS = (1, 4)
TOP_K = 4
SIZE = (500, 375)  # pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="an empty folder for photos, which is removed")
    work = parser.parse_args().work.absolute()
    torch.set_num_threads(1)
    work.mkdir(parents=True)
    results = {**RECORD.begin(), "classes": CLASSES, "photos": MANY, "size": SIZE, "top_k": TOP_K}
    results["command"] = "python benchmarks/scale/units.py --work WORK"
    few, many = (dataset(work / str(count), count) for count in (FEW, MANY))
    for name, unit in measure(work, few, many).items():
        results[name] = unit
        say(f"{name}: {json.dumps(unit)}")
    OUT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(work)


def dataset(folder: Path, count: int) -> Dataset:
    """Photos with four random labels each."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
        coarse.resize(SIZE, Image.Resampling.BICUBIC).save(folder / f"{number:04d}.jpg", quality=90)
    chosen = np.stack([rng.choice(CLASSES, TOP_K, replace=False) for _ in range(count)])
    rows = {
        "image": np.repeat([f"{number:04d}.jpg" for number in range(count)], TOP_K).tolist(),
        "label": LABELS.take(pa.array(chosen.ravel())).to_pylist(),
        "value": [True] * chosen.size,
        "split": np.repeat(["val"] * 8 + ["train"] * (count - 8), TOP_K).tolist(),
    }
    pq.write_table(pa.table(rows), folder / "labels.parquet")
    found = tagfill.formats.csv.read(folder / "labels.parquet", root=folder)
    return found.replace(classes=LABELS.to_pylist()).save(folder / "data")


def measure(work: Path, few: Dataset, many: Dataset) -> dict[str, dict[str, Any]]:
    """Milliseconds of processor time and bytes per photo of each step."""
    caches = [work / f"cache-{len(data)}" for data in (few, many)]
    tagfill.features(few, out=work / "cache-first", views="eval")
    spent = [
        cpu(lambda data=data, out=out: tagfill.features(data, out=out, views="eval"))  # type: ignore[misc]
        for data, out in zip((few, many), caches, strict=True)
    ]
    units: dict[str, dict[str, Any]] = {"features": unit(spent, MANY - FEW)}
    units["features"]["bytes"] = round((size_of(caches[1]) - size_of(caches[0])) / (MANY - FEW))
    pooled = caches[1] / "views" / "eval" / "pooled.npy"
    units["features"]["pooled_bytes"] = round(pooled.stat().st_size / MANY)
    runs = [work / f"run-{epochs}" for epochs in EPOCHS]
    settings: dict[str, Any] = {"method": "an", "features": caches[1], "head": "linear", "batch_size": BATCH_SIZE}
    settings |= {"val_labels": "tags"}
    tagfill.train(many, epochs=1, out=work / "run-first", **settings)
    spent = [
        cpu(lambda epochs=epochs, out=out: tagfill.train(many, epochs=epochs, out=out, **settings))  # type: ignore[misc]
        for epochs, out in zip(EPOCHS, runs, strict=True)
    ]
    units["train"] = unit(spent, (EPOCHS[1] - EPOCHS[0]) * (MANY - 8))
    units["train"]["model_bytes"] = (runs[1] / "best" / "model.safetensors").stat().st_size
    predict(runs[1], few, work / "predictions-first.parquet")
    written = [work / f"predictions-{len(data)}.parquet" for data in (few, many)]
    spent = [
        cpu(lambda data=data, out=out: predict(runs[1], data, out))  # type: ignore[misc]
        for data, out in zip((few, many), written, strict=True)
    ]
    units["predict"] = unit(spent, MANY - FEW)
    return units


def predict(run: Path, data: Dataset, out: Path) -> None:
    tagfill.inference.predict_to_file(run, data, out, top_k=TOP_K, ignore_tags=True, threads=1)


def cpu(call: Callable[[], object]) -> float:
    """Processor seconds of a call, all threads together."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def unit(spent: list[float], photos: int) -> dict[str, Any]:
    return {"ms": round(1e3 * (spent[1] - spent[0]) / photos, 3)}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
