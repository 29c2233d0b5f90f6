"""Images per second of training on a device: the whole network, its top, and its head."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import say

import tagfill
from tagfill.progress import SILENT
from tagfill.training import build_recipe, start

BACKBONE, SIZE = "tf_efficientnet_lite0", 224
EPOCHS = 3  # the first one warms up
IMAGES = {"cpu": 32, "cuda": 1024, "mps": 512}
BATCH = 32
QUICK_IMAGES = 16


def measure_throughput(work: Path, device: str, *, quick: bool) -> dict[str, Any]:
    """Images per second of the best epoch after the first one, of each part in each precision."""
    count = QUICK_IMAGES if quick else IMAGES[device]
    data = tagfill.scenes.make(work / "photos", train=count, val=2, test=1, size=SIZE, progress=SILENT)
    workers = min(8, (os.cpu_count() or 1) // 2)
    found: dict[str, Any] = {"backbone": BACKBONE, "size": SIZE, "images": count, "workers": workers, "rates": {}}
    shared = {"backbone": BACKBONE, "pretrained": False, "device": device, "progress": SILENT}
    caches = {
        "whole": None,
        "top": tagfill.features(data, at="blocks.5", views="eval", out=work / "inner", **shared).folder,
        "head": tagfill.features(data, views="eval", out=work / "features", **shared).folder,
    }
    for part, cache in caches.items():
        for precision in ("float32",) if device == "cpu" else ("float32", "bfloat16"):  # a CPU emulates bfloat16
            say(f"throughput: {part}, {precision}")
            settings = {"method": "an", "backbone": BACKBONE, "pretrained": False, "image_size": SIZE}
            recipe = build_recipe(
                {"dataset": str(data.folder), **settings, "batch_size": BATCH, "precision": precision},
                features=cache,
                epochs=EPOCHS,
                train={"whole": "all"}.get(part, part),
            )
            reset_peak(device)
            try:
                run = start(data, recipe, out=work / f"{part}-{precision}", device=device, workers=workers)
            except Exception as error:
                found["rates"][f"{part}, {precision}"] = {"error": f"{type(error).__name__}: {error}"}
                continue
            timed = [json.loads(line) for line in run.timings()][1:]
            rate = max(line["images"] / line["seconds"] for line in timed)
            found["rates"][f"{part}, {precision}"] = {"images_per_second": rate, "peak_bytes": peak(device)}
    return found


def reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak(device: str) -> int | None:
    """Bytes of the device that were allocated at most; None where torch does not count them."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None
