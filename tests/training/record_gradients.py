"""Train a recipe in several processes and record a hash of all gradients after each backward pass, one file per rank.

Usage: python record_gradients.py RECIPE OUT PROCESSES
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from torch import Tensor, nn

from tagfill.dataset import Dataset
from tagfill.training import read_recipe, start
from tagfill.training.devices import Devices

trained: list[nn.Module] = []
plain_wrap, plain_backward = Devices.wrap, Devices.backward


def wrap(self: Devices, module: nn.Module, optimizer: object) -> object:
    trained.append(module)
    return plain_wrap(self, module, optimizer)  # type: ignore[arg-type]


def backward(self: Devices, loss: Tensor) -> None:
    plain_backward(self, loss)
    gradients = [p.grad for p in trained[-1].parameters() if p.grad is not None]
    digest = hashlib.sha256(b"".join(gradient.numpy().tobytes() for gradient in gradients)).hexdigest()
    with (folder / f"gradients-{self.ranks.rank}.txt").open("a") as file:
        file.write(f"{len(trained)} {len(gradients)} {digest}\n")


if __name__ == "__main__":
    recipe, folder = read_recipe(Path(sys.argv[1])), Path(sys.argv[2])
    Devices.wrap, Devices.backward = wrap, backward  # type: ignore[method-assign, assignment]
    start(Dataset.open(recipe.dataset), recipe, out=folder / "run", processes=int(sys.argv[3]))
