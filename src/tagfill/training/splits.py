"""Batches that do not fit into memory are split into micro-batches.

A step that runs out of memory cannot simply be repeated: batch statistics, gradients and per-image state may have
changed already. The run therefore goes back to its newest checkpoint, and splits batches into twice as many
micro-batches from the step that failed on. `splits.json` in the run folder keeps that step. The steps before it are
repeated as they were, so the result does not depend on when the run was saved, and a resumed run splits the same steps.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from tagfill.errors import RunError
from tagfill.io import write_json

_REFUSALS = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")  # CUDA and MPS, CPU, cuDNN and cuBLAS


class BatchTooLargeError(RunError):
    """A step ran out of memory, and will be split when the run continues."""


@dataclass(frozen=True, order=True)
class Split:
    """From a step on, the batches of a stage are split into this many micro-batches.

    Attributes:
        stage: position in the recipe's list.
        epoch: from 1.
        step: within the epoch, from 0.
        accumulate: micro-batches per batch.
    """

    stage: int
    epoch: int
    step: int
    accumulate: int


class Splits:
    """The splits of a run, from the file that keeps them.

    Args:
        path: of the file; it exists once a batch did not fit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self._splits = [Split(**split) for split in content]

    def accumulate(self, stage: int, epoch: int, steps: int, default: int) -> list[int]:
        """Micro-batches per batch, for each step of an epoch.

        Args:
            stage: position in the recipe's list.
            epoch: from 1.
            steps: of the epoch.
            default: what the recipe says.
        """
        counts = [default] * steps
        for split in sorted(self._splits):
            if split.stage == stage and split.epoch <= epoch:
                first = split.step if split.epoch == epoch else 0
                counts[first:] = [split.accumulate] * (steps - first)
        return counts

    def split_further(self, stage: int, epoch: int, step: int, size: int, default: int) -> int:
        """Split batches into twice as many micro-batches from a step on that ran out of memory.

        Args:
            stage: position in the recipe's list.
            epoch: from 1.
            step: within the epoch, from 0.
            size: of its batch.
            default: what the recipe says.

        Returns:
            Micro-batches per batch.

        Raises:
            RunError: if the micro-batches already hold one image each.
        """
        count = self.accumulate(stage, epoch, step + 1, default)[step]
        if count >= size:
            raise RunError(
                "There is not enough memory for one image alone. Train less of the network (--train top or head), or "
                "set a smaller image_size or precision=bfloat16."
            )
        split = Split(stage, epoch, step, min(2 * count, size))
        self._splits = sorted({*self._splits, split})
        write_json(self._path, [asdict(kept) for kept in self._splits])
        return split.accumulate


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch says that memory could not be allocated.

    >>> out_of_memory(RuntimeError("MPS backend out of memory")), out_of_memory(RuntimeError("shapes do not match"))
    (True, False)
    """
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.OutOfMemoryError) or any(refusal in str(error) for refusal in _REFUSALS)
