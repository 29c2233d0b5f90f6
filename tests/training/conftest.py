"""A small dataset with one label per image, a tiny backbone, and the cache of its features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

import tagfill
from tagfill.evidence import import_scores
from tagfill.models import create_backbone

BACKBONE = "test_efficientnet"
IMAGE_SIZE = 128


@dataclass(frozen=True)
class Material:
    """Folders that a training test starts from."""

    full: Path
    single: Path
    cache: Path
    weights: Path

    @property
    def flags(self) -> list[str]:
        """Flags of `tagfill train` for the tiny backbone."""
        return ["--backbone", BACKBONE, "--pretrained", str(self.weights), "--set", f"image_size={IMAGE_SIZE}"]

    @property
    def settings(self) -> dict[str, object]:
        """The same for `tagfill.train`."""
        return {"backbone": BACKBONE, "pretrained": str(self.weights), "image_size": IMAGE_SIZE}


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("material")
    full = tagfill.scenes.make(folder / "full", train=101, val=24, test=24, size=64)
    single = tagfill.protocols.single_positive(full, seed=1200).save(folder / "single")
    _add_evidence(full, single)
    weights = folder / "backbone.safetensors"
    state = create_backbone(BACKBONE, image_size=IMAGE_SIZE, seed=5).model.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, weights)
    cache = tagfill.features(
        single,
        backbone=BACKBONE,
        pretrained=str(weights),
        image_size=IMAGE_SIZE,
        views="eval,flip,crops:2",
        out=folder / "cache",
    )
    assert full.folder is not None
    assert single.folder is not None
    return Material(full.folder, single.folder, cache.folder, weights)


def _add_evidence(full: tagfill.Dataset, single: tagfill.Dataset) -> None:
    """Scores of a tagger that knows the truth through noise, for the methods that learn from them."""
    truth = full.labels().dense()
    scores = 0.25 + 0.02 * truth + 0.01 * np.random.default_rng(2).normal(size=truth.shape)
    table = pa.table({"image": full.names(), **dict(zip(full.classes, scores.T, strict=True))})
    import_scores(table, single, name="clip", scale="cosines")


@pytest.fixture(scope="session")
def partial(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images with a third of all labels, positives and negatives."""
    part = tagfill.protocols.random_entries(tagfill.Dataset.open(material.full), proportion=0.3, seed=3)
    folder = part.save(tmp_path_factory.mktemp("partial") / "partial").folder
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def points(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images with a third of all labels, and a point on each positive one."""
    part = tagfill.protocols.PROTOCOLS["budget"](tagfill.Dataset.open(material.full), percent=30, kind="SP", seed=1)
    folder = part.save(tmp_path_factory.mktemp("points") / "points").folder
    assert folder is not None
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
