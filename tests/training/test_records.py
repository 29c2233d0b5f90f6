"""What a run writes down for analyses: it agrees with what the run did, changes nothing, and survives interruption."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tagfill
from tagfill.contract import Batch, Decisions, Prediction, Ranks
from tagfill.errors import TagfillError
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Memory
from tagfill.training import Run, Saving, make_recipe, records, resume, start
from tagfill.training.records import Recorder

from .conftest import Material

EVERYTHING = ["decisions", "scores", "heatmaps"]


def trained(material: Material, out: Path, method: str, **settings: Any) -> Run:
    common = {"features": material.cache, "epochs": 3, "batch_size": 16, "seed": 4}
    return tagfill.train(material.single, method=method, out=out, **common, **material.settings, **settings)


@pytest.fixture(scope="module")
def recorded(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(material, tmp_path_factory.mktemp("recorded") / "run", "en+scl", record=EVERYTHING)


def test_recording_changes_nothing(material: Material, recorded: Run, tmp_path: Path) -> None:
    plain = trained(material, tmp_path / "run", "en+scl")

    assert plain.recipe.hash() == recorded.recipe.hash()
    for name in ("metrics.jsonl", "best/model.safetensors"):
        assert (plain.folder / name).read_bytes() == (recorded.folder / name).read_bytes()
    assert not (plain.folder / "records").exists()


def test_decisions_are_those_that_were_counted(recorded: Run) -> None:
    written = [epoch.column("decisions.kind") for epoch in records.read_records(recorded)]

    counts = [{records.KINDS[code]: int((kinds == code).sum()) for code in np.unique(kinds)} for kinds in written]
    assert counts == [line["decisions"] for line in recorded.metrics()]
    assert counts[-1]


def test_every_visited_image_has_probabilities(material: Material, recorded: Run) -> None:
    *_, last = records.read_records(recorded)

    classes = len(tagfill.Dataset.open(material.single).classes)
    scores = last.column("scores.probabilities")
    assert scores.shape == (101, classes)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert not last.has("scores.estimates")


def test_estimates_of_role_stand_beside_its_predictions(material: Material, tmp_path: Path) -> None:
    run = trained(material, tmp_path / "run", "role", record="scores")
    observed = tagfill.Dataset.open(material.single).labels("train").dense()

    first, *_, last = records.read_records(run)

    assert (first.column("scores.estimates")[observed == 1] > 0.9).all()
    assert not np.array_equal(first.column("scores.estimates"), last.column("scores.estimates"))


def test_heatmaps_are_those_of_the_memory(recorded: Run) -> None:
    from safetensors.numpy import load_file

    newest = max((recorded.folder / "checkpoints").glob("[0-9]*"))
    kept = load_file(newest / "rank0.safetensors")["memory.heatmaps.values"]
    *_, last = records.read_records(recorded)

    assert (last.column("heatmaps.values") == kept[last.column("heatmaps.index")].transpose(0, 3, 1, 2)).all()
    assert len(last.column("heatmaps.index")) == records.PICTURED


@pytest.mark.parametrize("after", [3, 11])
def test_interrupted_run_writes_the_same_records(
    material: Material, recorded: Run, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven steps make an epoch; a checkpoint lies after each, and what the next step gathered is lost with it."""
    content = recorded.recipe.model_dump(mode="json")
    visits = 0

    def stop(self: Recorder, *arguments: Any) -> None:
        nonlocal visits
        visits += 1
        if visits > after:
            raise RuntimeError("the power is gone")
        real(self, *arguments)

    real = Recorder.visit
    monkeypatch.setattr(Recorder, "visit", stop)
    data = tagfill.Dataset.open(material.single)
    with pytest.raises(RuntimeError):
        start(data, make_recipe(content), out=tmp_path / "run", saving=Saving(every_steps=1))
    monkeypatch.setattr(Recorder, "visit", real)

    resume(tmp_path / "run")

    files = sorted((recorded.folder / "records").iterdir())
    assert [path.name for path in files] == sorted(path.name for path in (tmp_path / "run" / "records").iterdir())
    for path in files:
        assert path.read_bytes() == (tmp_path / "run" / "records" / path.name).read_bytes()


def recorder(run: Run, rank: int, world: int, images: list[int]) -> Recorder:
    shard, labels = np.array(images), LabelMatrix.from_dense(np.full((4, 2), -1, np.int8))
    ranks = Ranks()
    ranks.rank, ranks.world = rank, world
    task: Any = SimpleNamespace(labels=labels, shard=shard, memory=Memory(labels, shard, seed=0), seed=0, ranks=ranks)
    return Recorder(run, 0, ("decisions", "scores"), task)


def test_processes_record_their_own_images(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for rank in (0, 1):
        own = recorder(run, rank, 2, [rank, rank + 2])
        index = torch.tensor([rank + 2])
        batch = Batch(index, torch.full((1, 2), -1, dtype=torch.int8), torch.zeros(1, 3), Geometry.whole(1))
        decided = Decisions.of(index, torch.tensor([[False, True]]), "rejected", -1)
        own.visit(batch, Prediction(torch.tensor([[0.0, 50.0]])), decided)
        own.end_epoch(1)

    (epoch,) = records.read_records(run)

    assert epoch.column("decisions.image").tolist() == [2, 3]
    assert epoch.column("scores.index").tolist() == [0, 2, 1, 3]
    seen = epoch.column("scores.probabilities")
    assert seen[[1, 3]].tolist() == [[0.5, 1.0], [0.5, 1.0]]
    assert np.isnan(seen[[0, 2]]).all()


def test_records_of_more_processes_are_removed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for rank in (0, 1):
        recorder(run, rank, 2, [rank, rank + 2]).end_epoch(1)

    recorder(run, 0, 1, [0, 1, 2, 3]).end_epoch(1)

    (epoch,) = records.read_records(run)
    assert epoch.column("scores.index").tolist() == [0, 1, 2, 3]


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(TagfillError, match=r"record\.0: Input should be 'decisions', 'scores' or 'heatmaps'"):
        make_recipe({"dataset": "d", "method": "an", "record": "losses"})


def test_names_may_be_joined_by_commas() -> None:
    recipe = make_recipe({"dataset": "d", "method": "an", "record": "decisions, scores"})

    assert recipe.record == ("decisions", "scores")
