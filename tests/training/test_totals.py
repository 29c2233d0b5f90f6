"""Sums of an epoch: means over images, and what methods decided about labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tagfill
from tagfill import methods
from tagfill.contract import Decisions, Ranks
from tagfill.training.trainer import Totals, merge_counts

from .conftest import Material
from .extra_methods import Rejecting
from .processes import outcome


def decided(kinds: list[str]) -> Decisions:
    return Decisions(np.arange(len(kinds)), np.arange(len(kinds)), np.array(kinds), np.zeros(len(kinds), np.int8))


def test_means_weigh_parts_by_their_images() -> None:
    totals = Totals()
    totals.add({"a": 1.0, "b": 4.0}, 3)
    totals.add({"a": 5.0, "b": 0.0}, 1)

    assert totals.means(Ranks()) == {"a": 2.0, "b": 3.0}


@pytest.mark.parametrize("kinds", [None, [], ["rejected"], ["flipped", "rejected", "flipped"]])
def test_totals_come_back_from_a_checkpoint(kinds: list[str] | None) -> None:
    totals = Totals()
    totals.add({"a": 1 / 3}, 7, None if kinds is None else decided(kinds))

    assert Totals.from_state(totals.state_dict()) == totals


def test_decisions_of_ranks_add_up() -> None:
    assert merge_counts([None, None]) is None
    assert merge_counts([None, {}]) == {}
    assert merge_counts([{"rejected": 2}, {"flipped": 1, "rejected": 3}]) == {"flipped": 1, "rejected": 5}


def test_decisions_of_an_epoch_are_counted(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.METHODS, "rejecting", Rejecting)
    labels = tagfill.Dataset.open(material.single).labels("train").dense()

    run = tagfill.train(
        material.single,
        method="rejecting",
        features=material.cache,
        out=tmp_path / "run",
        stages=[{"input": "cache", "epochs": 2, "accumulate": 2}],
        **material.settings,
    )

    expected = {"flipped": int((labels[::3, 1] < 0).sum()), "rejected": int((labels[:, 0] < 0).sum())}
    assert [line["decisions"] for line in run.metrics()] == [expected, expected]
    assert "decisions" not in outcome(plain(material, tmp_path / "plain").folder)["metrics"].decode()


def plain(material: Material, out: Path) -> tagfill.Run:
    return tagfill.train(material.single, method="an", features=material.cache, out=out, epochs=1, **material.settings)
