"""One step over a hand-made batch, shared evenly by some processes, with batch normalization frozen.

Usage: python half_batches.py PROCESSES OUT

Writes each loss and the gradients of all weights, as the main process has them after the backward pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tagfill import losses
from tagfill.models import Classifier, create
from tagfill.training.devices import Devices

IMAGES, CLASSES = 8, 5
LOSSES = ("binary", "assume_negative", "expected_negative", "consistency")


def value(name: str, logits: Tensor, maps: Tensor, rows: slice) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(-1, 2, (IMAGES, CLASSES), generator=generator)[rows]
    target = torch.rand(IMAGES, CLASSES, *maps.shape[2:], generator=generator)[rows]
    likely = (torch.rand(IMAGES, CLASSES, generator=generator) > 0.5)[rows]
    if name == "expected_negative":
        return losses.expected_negative(logits, labels, likely)
    if name == "consistency":
        return losses.consistency(maps, labels, target)
    if name == "binary":
        return losses.binary(logits, labels.abs())  # complete, so that every rank has as many known labels
    return losses.assume_negative(logits, labels)


def freeze_normalization(model: Classifier) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def step(devices: Devices, name: str) -> dict[str, Tensor]:
    """The loss over the whole batch, and all gradients after the backward pass."""
    model = create("test_efficientnet", "cam", [str(n) for n in range(CLASSES)], image_size=64, seed=4)
    wrapped, _ = devices.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped.train()
    freeze_normalization(model)
    pixels = torch.randint(0, 256, (IMAGES, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    share = IMAGES // devices.ranks.world
    rows = slice(devices.ranks.rank * share, (devices.ranks.rank + 1) * share)
    prediction = wrapped(pixels[rows], maps=True)
    loss = value(name, prediction.logits, prediction.maps, rows)
    devices.backward(loss)
    mean = devices.ranks.sum(loss.detach()) / devices.ranks.world
    return {"loss": mean, **{key: p.grad.contiguous() for key, p in model.named_parameters() if p.grad is not None}}


if __name__ == "__main__":
    torch.set_num_threads(1)
    together = Devices(int(sys.argv[1]))
    found = {f"{name}.{key}": tensor for name in LOSSES for key, tensor in step(together, name).items()}
    if together.main:
        save_file(found, Path(sys.argv[2]))
    together.barrier()
