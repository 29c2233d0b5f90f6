"""What methods ask of the data reaches them: pairs of views, images without a label, marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch import Tensor

import tagfill
from tagfill import methods
from tagfill.contract import Batch, Prediction
from tagfill.dataset import Dataset
from tagfill.methods import BaseMethod
from tagfill.methods.fixmatch import FixMatch

from .conftest import BACKBONE, IMAGE_SIZE, Material


class Watching(BaseMethod):
    """Keeps what it is given; learns that all logits are zero."""

    seen: ClassVar[list[tuple[Batch, Prediction]]]

    def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
        self.seen.append((batch, prediction))
        return {"zero": prediction.logits.square().mean()}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    def needing(*needs: str) -> list[tuple[Batch, Prediction]]:
        seen: list[tuple[Batch, Prediction]] = []
        watching = type("Watching", (Watching,), {"needs": frozenset(needs), "seen": seen})
        monkeypatch.setitem(methods.METHODS, "watching", watching)
        return seen

    return needing


def train(material: Material, out: Path, dataset: Path, **settings: Any) -> None:
    tagfill.train(dataset, method="watching", epochs=1, batch_size=16, out=out, **{**material.settings, **settings})


def few_labels(material: Material, out: Path) -> Dataset:
    """Labels of twenty training images only."""
    data = Dataset.open(material.single)
    silent = set(data.names(data.split("train"))[20:])
    rows = data.rows()
    return data.replace(
        annotations=rows.take([at for at, name in enumerate(rows["image"].to_pylist()) if name not in silent])
    ).save(out)


def test_pairs_of_views_are_predicted_together(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("weak+strong")

    train(material, tmp_path / "run", material.single, features=None)

    assert {batch.views for batch, _ in seen} == {("weak", "strong")}
    assert all(len(prediction.logits) == 2 * len(batch.index) == len(batch.geometry) for batch, prediction in seen)
    assert sum(len(batch.index) for batch, _ in seen) == 101


def test_pairs_of_views_come_from_a_cache_too(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("weak+strong")
    cache = tagfill.features(
        Dataset.open(material.single),
        backbone=BACKBONE,
        pretrained=str(material.weights),
        image_size=IMAGE_SIZE,
        views="eval,pairs:1",
        out=tmp_path / "cache",
    )

    train(material, tmp_path / "run", material.single, features=cache)

    assert {batch.views for batch, _ in seen} == {("weak", "strong")}
    assert all(len(prediction.logits) == 2 * len(batch.index) for batch, prediction in seen)


def test_half_of_a_batch_has_no_label_for_a_method_that_needs_such_images(
    material: Material, tmp_path: Path, watch: Any
) -> None:
    seen = watch("unlabelled")
    few_labels(material, tmp_path / "few")

    train(material, tmp_path / "run", tmp_path / "few", features=material.cache)

    assert {int((batch.labels >= 0).any(1).sum()) for batch, _ in seen} == {8}


@pytest.mark.parametrize(("scope", "labelled"), [("unlabeled_images", {8}), ("all_unknown", None)])
def test_fixmatch_gets_as_many_images_without_a_label_as_with_one_unless_it_labels_all(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, labelled: set[int] | None
) -> None:
    seen: list[int] = []

    class Watched(FixMatch):
        def loss(self, batch: Batch, prediction: Prediction) -> dict[str, Tensor]:
            seen.append(int((batch.labels >= 0).any(1).sum()))
            return super().loss(batch, prediction)

    monkeypatch.setitem(methods.METHODS, "watching", Watched)
    few_labels(material, tmp_path / "few")

    train(material, tmp_path / "run", tmp_path / "few", options={"watching": {"scope": scope}})

    assert set(seen) == labelled if labelled else sum(seen) == 20


def test_all_images_are_mixed_where_none_is_without_a_label(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch("unlabelled")

    train(material, tmp_path / "run", material.single, features=material.cache)

    assert sum(len(batch.index) for batch, _ in seen) == 101


@pytest.mark.parametrize("cached", [True, False])
def test_marks_come_with_their_images(material: Material, tmp_path: Path, watch: Any, cached: bool) -> None:
    seen = watch("marks")

    train(material, tmp_path / "run", material.full, features=material.cache if cached else None)

    assert sum(len(batch.marks) for batch, _ in seen if batch.marks is not None) > 101
    for batch, _ in seen:
        assert batch.marks is not None
        assert (batch.labels[batch.marks.image, batch.marks.label] == 1).all()


def test_nobody_gets_marks_without_asking(material: Material, tmp_path: Path, watch: Any) -> None:
    seen = watch()

    train(material, tmp_path / "run", material.full, features=material.cache)

    assert all(batch.marks is None for batch, _ in seen)
