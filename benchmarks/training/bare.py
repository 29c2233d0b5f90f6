"""A contestant: forward, backward and step over the batches of `trained.py --recorded`, and nothing else."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from rounds import take_turns
from trained import recorded

from data import BACKBONE
from tagfill.dataset import Dataset
from tagfill.losses import assume_negative
from tagfill.models import Classifier, create
from tagfill.models.allocator import disable_heap_trimming


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--cache", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_heap_trimming()
    dataset = Dataset.open(options.folder)
    model = create(BACKBONE, "cam", dataset.classes, pretrained="bundled", image_size=224)
    if options.cache:
        model = Classifier(None, model.head, "cam", dataset.classes)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs = recorded("pooled" if options.cache else "images", options.batch)
    count = len(dataset.labels("train"))
    order = np.split(np.arange(count), np.arange(options.batch, count, options.batch))
    labels = [torch.from_numpy(dataset.labels("train").rows(index)) for index in order]

    def epoch() -> float:
        for known in labels:
            assume_negative(model(inputs[: len(known)]).logits, known).backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter()

    take_turns(epoch)


if __name__ == "__main__":
    main()
