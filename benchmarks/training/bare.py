"""A contestant: a training loop as a user of torch would write it for this model and this data, and nothing else.

On images, the batches are those of `trained.py --recorded`: forward, backward and step. On a feature cache, a linear
layer over the pooled features of one view, in memory, in a new order in each epoch, with `BCEWithLogitsLoss`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from rounds import take_turns
from torch import nn
from trained import recorded

from data import BACKBONE
from tagfill.dataset import Dataset
from tagfill.losses import assume_negative
from tagfill.models import create
from tagfill.models.allocator import disable_heap_trimming


def on_images(dataset: Dataset, batch: int) -> None:
    disable_heap_trimming()
    model = create(BACKBONE, "cam", dataset.classes, pretrained="bundled", image_size=224).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs = recorded("images", batch)
    count = len(dataset.labels("train"))
    order = np.split(np.arange(count), np.arange(batch, count, batch))
    labels = [torch.from_numpy(dataset.labels("train").rows(index)) for index in order]

    def epoch() -> float:
        for known in labels:
            assume_negative(model(inputs[: len(known)]).logits, known).backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter()

    take_turns(epoch)


def on_features(dataset: Dataset, folder: Path, batch: int) -> None:
    features = torch.from_numpy(np.load(folder / "cache" / "views" / "eval" / "pooled.npy"))
    targets = torch.from_numpy((dataset.labels("train").dense() == 1).astype(np.float32))
    model = nn.Linear(features.shape[1], targets.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.BCEWithLogitsLoss()

    def epoch() -> float:
        for index in torch.randperm(len(features)).split(batch):
            optimizer.zero_grad()
            criterion(model(features[index]), targets[index]).backward()
            optimizer.step()
        return time.perf_counter()

    take_turns(epoch)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--cache", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Dataset.open(options.folder)
    if options.cache:
        on_features(dataset, options.folder, options.batch)
    else:
        on_images(dataset, options.batch)


if __name__ == "__main__":
    main()
