from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tagfill.images import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory, SavedPart, Scores, Shard


def test_rows_follow_the_ascending_order_of_positions():
    assert Shard(np.array([7, 2, 9])).rows(torch.tensor([9, 2, 7])).tolist() == [2, 0, 1]


def test_the_same_image_may_be_asked_for_twice():
    assert Shard(np.array([2, 7])).rows(torch.tensor([7, 7])).tolist() == [1, 1]


@pytest.mark.parametrize("foreign", [0, 5, 12], ids=["before", "between", "after"])
def test_images_of_another_process_are_refused(foreign):
    with pytest.raises(IndexError, match="kept by another process"):
        Shard(np.array([2, 7, 9])).rows(torch.tensor([7, foreign]))


def test_an_empty_shard_refuses_every_image():
    with pytest.raises(IndexError):
        Shard(np.array([], dtype=np.int64)).rows(torch.tensor([0]))


def test_an_empty_batch_has_no_rows():
    assert Shard(np.array([3])).rows(torch.tensor([], dtype=torch.int64)).tolist() == []


IMAGES, CLASSES = 23, 5
LABELS = LabelMatrix.from_dense(np.random.default_rng(1).integers(-1, 2, (IMAGES, CLASSES)))


def shards(world: int) -> list[np.ndarray]:
    order = np.random.default_rng(2).permutation(IMAGES)
    return [np.sort(order[rank::world]) for rank in range(world)]


def lived(shard: np.ndarray, folder: Path | None) -> Memory:
    """A memory whose every store has seen all its images, with values that depend on the image alone."""
    memory = Memory(LABELS, shard, seed=3, folder=folder)
    index = torch.from_numpy(shard)
    values = torch.stack([torch.rand(CLASSES, generator=torch.Generator().manual_seed(int(i))) for i in shard])
    memory.scores(momentum=0.5).update(index, values)
    memory.estimates().step(index, values - 0.5, lr=0.1)
    maps = values[:, :, None, None].expand(-1, -1, 2, 2)
    memory.heatmaps(momentum=0.5, size=4).update(index, Geometry.whole(len(shard)), maps)
    memory.entries("likely").replace([(0, values > 0.5)])
    return memory


def read(memory: Memory, shard: np.ndarray) -> list[torch.Tensor]:
    index = torch.from_numpy(shard)
    heatmaps = memory.heatmaps(momentum=0.5, size=4).read(index, Geometry.whole(len(shard)), (4, 4))
    tables = [memory.scores(momentum=0.5).read(index), memory.estimates().read(index), heatmaps]
    return [*tables, memory.entries("likely").read(index)]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("on_disk", [False, True])
def test_everything_moves_with_its_image(tmp_path: Path, before: int, after: int, on_disk: bool) -> None:
    parts = []
    for rank, shard in enumerate(shards(before)):
        folder = tmp_path / f"old{rank}" if on_disk else None
        memory = lived(shard, folder)
        files = dict(zip(["heatmaps"], memory.paths(), strict=False))
        parts.append(SavedPart(Shard(shard), memory.state_dict(), files))

    for rank, shard in enumerate(shards(after)):
        moved = Memory(LABELS, shard, seed=3, folder=tmp_path / f"new{rank}" if on_disk else None, parts=parts)
        expected = lived(shard, None)

        for found, wanted in zip(read(moved, shard), read(expected, shard), strict=True):
            assert torch.equal(found, wanted)


def test_moments_of_the_estimates_move_too() -> None:
    parts = [SavedPart(Shard(shard), lived(shard, None).state_dict()) for shard in shards(2)]
    whole = np.arange(IMAGES)
    moved, expected = Memory(LABELS, whole, seed=3, parts=parts).estimates(), lived(whole, None).estimates()
    index = torch.arange(IMAGES)

    for estimates in (moved, expected):
        estimates.step(index, torch.ones(IMAGES, CLASSES), lr=0.1)

    assert torch.equal(moved.read(index), expected.read(index))


def every_store(memory: Memory) -> None:
    """Ask for each kind of store once."""
    memory.scores(momentum=0.5)
    memory.heatmaps(momentum=0.5, size=4)
    memory.estimates()
    memory.pseudo_labels()
    memory.found_labels(limit=2)
    memory.overlay(changes=3)
    memory.entries("likely")
    memory.neighbors(count=2)
    memory.class_distances(prototype="mean", distance="cosine")
    memory.prior()


def test_names_and_types_in_checkpoints_are_those_of_version_0_1() -> None:
    memory = Memory(LABELS, np.arange(IMAGES), seed=3)
    every_store(memory)
    assert {name: str(value.dtype).removeprefix("torch.") for name, value in memory.state_dict().items()} == {
        "scores.values": "float16",
        "scores.visited": "bool",
        "heatmaps.values": "uint8",
        "estimates.values": "float32",
        "estimates.adam.step": "float32",
        "estimates.adam.exp_avg": "float32",
        "estimates.adam.exp_avg_sq": "float32",
        "estimates.adam.row_step": "int64",  # since 0.2
        "estimates.adam.rates": "float64",  # since 0.2
        "pseudo_labels.values": "float16",
        "found_labels.keys": "int64",
        "found_labels.values": "int8",
        "found_labels.cells": "int16",
        "found_labels.made": "bool",
        "overlay.keys": "int64",
        "overlay.values": "int8",
        "likely.keys": "int64",
        "neighbours.index": "int32",
        "neighbours.distance": "float32",
        "class_distances.values": "float32",
        "prior.sums": "float64",
        "prior.visits": "int64",
    }


def test_stores_of_a_few_classes_also_save_which() -> None:
    labels = LabelMatrix.from_dense(np.eye(4, CLASSES, dtype=np.int8) * 2 - 1)
    memory = Memory(labels, np.arange(4), seed=3)
    memory.scores(momentum=0.5, classes_per_image=2)
    memory.heatmaps(momentum=0.5, size=4, classes_per_image=2)
    memory.estimates(classes_per_image=2)
    names = {name for name in memory.state_dict() if "adam" not in name}
    assert names == {
        *("scores.classes", "scores.values", "scores.visited"),
        *("heatmaps.classes", "heatmaps.values", "heatmaps.chosen"),
        *("estimates.classes", "estimates.values"),
    }


def test_bytes_of_tables_are_known_before_they_are_allocated() -> None:
    store = Scores(LABELS, Shard(np.arange(IMAGES)), momentum=0.5)
    assert not hasattr(store, "values")
    assert store.bytes == store.allocate().values.nbytes
