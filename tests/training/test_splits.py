"""Batches that do not fit into memory are split, and the run ends as if they had been split from the beginning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tagfill
from tagfill.contract import Batch
from tagfill.errors import RunError
from tagfill.training import Recipe, Run, Saving, make_recipe, resume, start
from tagfill.training.splits import Splits, out_of_memory
from tagfill.training.trainer import Trainer

from .conftest import Material
from .processes import outcome
from .stopping import stop_in_epoch


def refuse(monkeypatch: pytest.MonkeyPatch, images: int, *, first: tuple[int, int] = (1, 0)) -> None:
    """Simulate an allocator without room for more than a number of images, from an epoch and its step on.

    It refuses as late as possible: gradients are added, and memory and batch statistics are updated.
    """
    plain = Trainer._forward_backward

    def forward_backward(self: Trainer, epoch: int, step: int, micro_batch: Batch, share: float, *, last: bool) -> None:
        plain(self, epoch, step, micro_batch, share, last=last)
        if len(micro_batch.index) > images and (epoch, step) >= first:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Trainer, "_forward_backward", forward_backward)


@pytest.fixture
def recipe(material: Material) -> Callable[..., Recipe]:
    """A recipe with state in the optimizer and in memory on disk; batches have 16 images and the last one has 5."""

    def make(**stage: Any) -> Recipe:
        stages = [{"input": "cache", "epochs": 2, "optimizer": {"lr": 0.01}, **stage}]
        content = {"dataset": str(material.single), "method": "en", "features": str(material.cache), "stages": stages}
        content["memory"] = {"storage": "disk"}
        return make_recipe({**content, "expected_positives": 2.0, "batch_size": 16, **material.settings})

    return make


def run(recipe: Recipe, out: Path, **settings: Any) -> Run:
    return start(tagfill.Dataset.open(recipe.dataset), recipe, out=out, **settings)


def test_bytes_are_those_of_a_recipe_that_splits(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_micro_batches_add_up_to_the_batch` compares such a recipe with one that does not split."""
    given = run(recipe(accumulate=4), tmp_path / "given")
    refuse(monkeypatch, 4)
    found = run(recipe(), tmp_path / "found")

    assert outcome(found.folder) == outcome(given.folder)
    said = (found.folder / "log.txt").read_text()
    assert (
        "Step 1 of epoch 1 does not fit into memory; from there on, each batch is split into 2 micro-batches." in said
    )


def test_a_resumed_run_splits_the_same_steps(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there is more memory now, and if checkpoints were saved at other steps."""
    with monkeypatch.context() as patch:
        refuse(patch, 8, first=(1, 5))
        plain = run(recipe(), tmp_path / "plain", saving=Saving(every_steps=4))
        stop_in_epoch(2, recipe(), tmp_path / "stopped", monkeypatch, every_steps=3)

    resumed = resume(tmp_path / "stopped")

    assert outcome(resumed.folder) == outcome(plain.folder)
    assert json.loads(plain.splits_path.read_text()) == [{"stage": 0, "epoch": 1, "step": 5, "accumulate": 2}]
    assert outcome(plain.folder) != outcome(run(recipe(), tmp_path / "whole").folder)


def test_an_image_that_does_not_fit_alone_gets_a_sentence(
    recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, 0)
    with pytest.raises(RunError, match="not enough memory for one image alone"):
        run(recipe(), tmp_path / "run")


def test_splits_hold_from_their_step_on(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "splits.json")
    assert [splits.split_further(*step, size=5, default=1) for step in ((0, 1, 2), (0, 2, 1), (1, 1, 0))] == [2, 4, 2]
    assert splits.split_further(1, 1, 0, size=3, default=1) == 3
    read = Splits(tmp_path / "splits.json")
    assert [read.accumulate(0, epoch, 3, 1) for epoch in (1, 2, 3)] == [[1, 1, 2], [2, 4, 4], [4, 4, 4]]
    assert read.accumulate(1, 1, 2, 1) == [3, 3]
    assert read.accumulate(2, 1, 2, 3) == [3, 3]


def test_refusals_of_allocators_are_recognized() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 50, dtype=torch.uint8)
    assert out_of_memory(refused.value)
    assert out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert not out_of_memory(RuntimeError("The size of tensor a must match the size of tensor b"))
