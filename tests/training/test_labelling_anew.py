"""Methods that are told the truth, or that label the training images between epochs, in real runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tagfill
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.training import Run, resume
from tagfill.training.checkpoints import open_newest

from .conftest import Material
from .processes import outcome
from .stopping import stop_in_epoch


def train(material: Material, out: Path, method: str, data: Dataset | None = None, **settings: object) -> Run:
    dataset = data if data is not None else Dataset.open(material.single)
    return tagfill.train(
        dataset, out=out, method=method, features=material.cache, epochs=4, **material.settings, **settings
    )


def pseudo_labels(run: Run) -> torch.Tensor:
    checkpoint, _ = open_newest(run.checkpoints)
    return checkpoint.of_rank(0)["memory.pseudo_labels.values"]


def test_soft_negatives_are_as_many_as_the_formula_says(material: Material, tmp_path: Path) -> None:
    """Four epochs, two of them warm-up: before the third and the fourth, ⌊0.9 U_i / 2⌋ labels of each class."""
    run = train(material, tmp_path / "run", "em-apl")

    labels = Dataset.open(material.single).labels("train")
    known = torch.from_numpy(labels.dense() != -1)
    given = pseudo_labels(run) >= 0
    each = (0.9 * torch.from_numpy(len(labels) - labels.known) / 2).floor().long()
    assert torch.equal(given.sum(0), 2 * each)
    assert not (given & known).any()


def test_curriculum_labels_what_it_is_sure_of(material: Material, tmp_path: Path) -> None:
    run = train(material, tmp_path / "run", "curriculum", options={"curriculum": {"present_above": 0.5}})

    assert set(pseudo_labels(run).unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert (pseudo_labels(run) == 1).any()


def test_the_oracle_learns_more_than_it_could_know(material: Material, tmp_path: Path) -> None:
    told, assumed = (train(material, tmp_path / name, name).metrics()[-1] for name in ("iun", "an"))

    assert told["loss"]["iun"] != assumed["loss"]["an"]


def test_the_oracle_needs_a_simulated_dataset(material: Material, tmp_path: Path) -> None:
    without = Dataset.open(material.single).replace(truth=None, folder=None)

    with pytest.raises(TagfillError, match="is an oracle and needs the complete labels"):
        train(material, tmp_path / "run", "iun", without)


@pytest.mark.parametrize("method", ["epr", "role"])
def test_the_expected_number_is_said_with_its_origin(material: Material, tmp_path: Path, method: str) -> None:
    run = train(material, tmp_path / "run", method)

    assert "counted on the validation split" in (run.folder / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", ["em-apl", "curriculum"])
def test_a_run_that_was_stopped_ends_with_the_same_bytes(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Stopped in the last epoch, whose labels were given before the checkpoint that the run goes on from."""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    train(material, unbroken, method)
    stop_in_epoch(4, Run.open(unbroken).recipe, broken, monkeypatch, every_steps=3)

    resume(broken)

    assert outcome(broken) == outcome(unbroken)
