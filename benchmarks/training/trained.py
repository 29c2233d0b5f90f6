"""A contestant: Tagfill's own training, an epoch a round; `--recorded` replays batches from memory."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rounds import Turns

from data import BACKBONE
from tagfill.contract import Batch
from tagfill.dataset import Dataset
from tagfill.images import Geometry
from tagfill.progress import SILENT
from tagfill.training import Saving, make_recipe, stage, start


class Recorded:
    """A source whose inputs are always the same tensor, with the labels of the images asked for."""

    def __init__(self, dataset: Dataset, inputs: torch.Tensor) -> None:
        self._labels = dataset.labels("train")
        self._inputs = inputs

    def train(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> Iterator[Batch]:
        for index in batches:
            labels = torch.from_numpy(self._labels.rows(index))
            yield Batch(torch.from_numpy(index), labels, self._inputs[: len(index)], Geometry.whole(len(index)))


def recorded(kind: str, batch: int) -> torch.Tensor:
    """A batch of pixels, or of pooled features."""
    drawn = torch.Generator().manual_seed(0)
    if kind == "images":
        pixels = torch.randint(0, 256, (batch, 224, 224, 3), dtype=torch.uint8, generator=drawn)
        return pixels.permute(0, 3, 1, 2)
    return torch.rand(batch, 1280, generator=drawn)


def recipe(folder: Path, method: str, batch: int, cache: bool, **settings: Any) -> Any:
    kind = {"input": "cache"} if cache else {"input": "images", "train": "all"}
    return make_recipe(
        {
            "dataset": str(folder),
            "features": str(folder / "cache") if cache else None,
            "method": method,
            "expected_positives": 2.0,
            "backbone": BACKBONE,
            "batch_size": batch,
            "image_size": None if cache else 224,
            "stages": [{**kind, "epochs": 1000, "optimizer": {"lr": 1e-4}}],
            **settings,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--method", default="an")
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dataset = Dataset.open(options.folder)
    if options.recorded:
        tensors = recorded("pooled" if options.cache else "images", options.batch)
        stage._make_source = lambda *_: Recorded(dataset, tensors)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory(prefix="training-") as own:
        start(
            dataset,
            recipe(options.folder, options.method, options.batch, options.cache),
            out=options.out or Path(own) / "run",
            workers=options.workers,
            processes=options.processes,
            saving=Saving(every_minutes=None),
            progress=SILENT if os.environ.get("LOCAL_RANK", "0") != "0" else Turns(),  # one of them takes turns
        )


if __name__ == "__main__":
    main()
