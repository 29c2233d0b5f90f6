"""TensorBoard's own reader finds what a run wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tagfill

from .conftest import Material


def test_events_of_a_run(material: Material, tmp_path: Path) -> None:
    run = tagfill.train(
        material.single, out=tmp_path / "run", method="role", features=material.cache, epochs=2, **material.settings
    )

    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()

    found = [(scalar.step, scalar.value) for scalar in events.Scalars("val/mAP")]
    assert found == [(line["epoch"], pytest.approx(line["val_mAP"])) for line in run.metrics()]
    assert {"loss/role", "loss/estimates", "lr"} <= set(events.Tags()["scalars"])
