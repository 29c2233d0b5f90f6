"""A contestant: forward and backward of one head over the same features, one thread."""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch
from contest import ExtraMemory, tell

from tagfill.losses import assume_negative
from tagfill.models import create_head

CHANNELS, GRID, CLASSES, STEPS = 1280, 7, 20, 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--maps", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drawn = torch.Generator().manual_seed(0)
    features = torch.rand(options.batch, GRID, GRID, CHANNELS, generator=drawn).permute(0, 3, 1, 2)
    labels = torch.randint(-1, 2, (options.batch, CLASSES), generator=drawn, dtype=torch.int8)
    head = create_head(options.head, CHANNELS, CLASSES, seed=0, **options.options).train()
    extra = ExtraMemory()

    tell(ready=True)
    while sys.stdin.readline().strip():
        forward = backward = 0.0
        for _ in range(STEPS):
            begin = time.perf_counter()
            prediction = head(features, maps=options.maps)
            loss = assume_negative(prediction.logits, labels)
            if prediction.maps is not None:
                loss = loss + 0 * prediction.maps.sum()  # so that the maps take part in the backward pass
            middle = time.perf_counter()
            loss.backward()
            end = time.perf_counter()
            forward, backward = forward + middle - begin, backward + end - middle
            head.zero_grad()
        tell(wall=forward + backward, cpu=forward + backward, forward=forward, backward=backward, peak=extra.mb())


if __name__ == "__main__":
    main()
