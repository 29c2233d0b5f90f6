"""What a run depends on, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import tagfill
from tagfill.dataset import Dataset
from tagfill.errors import DatasetError, RunError, TagfillError
from tagfill.progress import SILENT
from tagfill.training import Run, make_recipe, start, start_or_resume
from tagfill.training.checkpoints import open_newest
from tagfill.training.run import _check_free
from tagfill.training.trainer import Interrupt

from .conftest import Material
from .processes import outcome
from .stopping import stop_in_epoch


def cached(material: Material, out: Path, **changes: Any) -> Run:
    settings = {"method": "en+scl", "epochs": 2, "batch_size": 16, **material.settings, **changes}
    return tagfill.train(material.single, out=out, features=material.cache, **settings)


def on_cache(material: Material) -> dict[str, Any]:
    return {"features": material.cache, "batch_size": 16, **material.settings}


def on_images(material: Material, out: Path, workers: int) -> Run:
    recipe = make_recipe(
        {
            "dataset": str(material.single),
            "method": "en+scl",
            "stages": [{"epochs": 2, "train": "all"}],
            **material.settings,
        }
    )
    return start(Dataset.open(material.single), recipe, out=out, workers=workers)


def half_way(material: Material, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stopped after its first epoch."""
    recipe = make_recipe(
        {
            "dataset": str(material.single),
            "features": str(material.cache),
            "method": "role",
            "stages": [{"input": "cache", "epochs": 3}],
            **material.settings,
        }
    )
    stop_in_epoch(2, recipe, out, monkeypatch)


def test_same_seed_same_bytes(material: Material, tmp_path: Path) -> None:
    first, second = (outcome(cached(material, tmp_path / name).folder) for name in "ab")

    assert first == second


def test_another_seed_changes_everything(material: Material, tmp_path: Path) -> None:
    first, second = (outcome(cached(material, tmp_path / str(seed), seed=seed).folder) for seed in (0, 1))

    assert [name for name in first if first[name] == second[name]] == []


def test_number_of_workers_changes_nothing(material: Material, tmp_path: Path) -> None:
    alone, helped = (outcome(on_images(material, tmp_path / str(n), workers=n).folder) for n in (0, 2))

    assert alone == helped


def test_truth_has_no_influence(material: Material, tmp_path: Path) -> None:
    blind = tmp_path / "blind"
    Dataset.open(material.single).replace(truth=None).save(blind)

    with_truth = outcome(cached(material, tmp_path / "a").folder)
    without = outcome(
        tagfill.train(
            blind,
            out=tmp_path / "b",
            features=material.cache,
            method="en+scl",
            epochs=2,
            batch_size=16,
            **material.settings,
        ).folder
    )

    assert with_truth == without


def test_test_split_has_no_influence(material: Material, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    tested = set(data.names(data.split("test")))
    rows = data.rows()
    others = [row for row, name in enumerate(rows["image"].to_pylist()) if name not in tested]
    data.replace(annotations=rows.take(others)).save(tmp_path / "blind")
    mine = Material(material.full, tmp_path / "blind", material.cache, material.weights)

    assert outcome(cached(mine, tmp_path / "a").folder) == outcome(cached(material, tmp_path / "b").folder)


def test_heatmaps_on_disk_equal_heatmaps_in_memory(material: Material, tmp_path: Path) -> None:
    in_memory = outcome(cached(material, tmp_path / "ram").folder)
    on_disk = outcome(cached(material, tmp_path / "disk", memory={"storage": "disk"}).folder)

    assert in_memory["metrics"] == on_disk["metrics"]
    assert in_memory["model.safetensors"] == on_disk["model.safetensors"]


def test_run_records_what_it_depends_on(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run")

    description = run.description()
    assert description["identities"] == Dataset.open(material.single).identities
    assert description["recipe_hash"] == run.recipe.hash()
    assert description["versions"]["torch"].startswith("2.")
    assert description["result"]["chosen_by"] == "mAP on val, clean labels"
    assert description["result"]["expected_positives_from"] == "counted on the validation split"


def test_expected_positives_are_counted_on_validation(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run")

    counted = Dataset.open(material.full).labels("val").positives_per_image().mean()
    assert run.best["expected_positives"] == pytest.approx(counted)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"method": "wan"}, None),
        ({"method": "wan", "expected_positives": 2.5}, None),
        ({"method": "ep"}, "expected positives per image: 3.667, counted on the validation split"),
        (
            {"method": "epr", "expected_positives": 2.5},
            "expected positives per image: 2.500, given as expected_positives",
        ),
        (
            {"method": "role", "options": {"role": {"expected": 1.5}}, "expected_positives": 2.5},
            "expected positives per image: 1.500, given as an option of the method",
        ),
    ],
)
def test_expected_positives_are_told_where_a_method_asks_for_them(
    material: Material, tmp_path: Path, settings: dict[str, Any], line: str | None
) -> None:
    run = cached(material, tmp_path / "run", epochs=1, **settings)

    said = [text for text in (run.folder / "log.txt").read_text().splitlines() if "expected positives" in text]
    assert len(said) == (line is not None)
    assert line is None or line in said[0]
    assert ("expected_positives" in run.best) == (line is not None)


def test_best_epoch_is_that_of_the_best_validation(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run", epochs=4)

    scores = [line["val_mAP"] for line in run.metrics()]
    assert run.best["epoch"] == int(np.argmax(scores)) + 1


def test_saved_model_scores_what_training_saw(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run")

    again = tagfill.evaluate(run, Dataset.open(material.single), split="val", features=material.cache)
    assert 100 * again.mean == pytest.approx(run.best["val_mAP"], abs=1e-9)


def test_unsaved_dataset_is_kept_in_the_run(material: Material, tmp_path: Path) -> None:
    part = tagfill.protocols.single_positive(Dataset.open(material.full), seed=1200)

    run = tagfill.train(part, method="an", out=tmp_path / "run", features=material.cache, epochs=1, **material.settings)

    assert Dataset.open(run.folder / "dataset").identities == Dataset.open(material.single).identities


def test_folder_that_is_not_empty_is_refused(material: Material, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(tagfill.TagfillError, match="not empty"):
        cached(material, tmp_path)


def test_recipe_with_a_relative_dataset_can_be_resumed_from_anywhere(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(material.single.parent)
    recipe = make_recipe({"dataset": "single", "method": "an", **material.settings, "features": str(material.cache)})

    run = start(Dataset.open("single"), recipe, out=tmp_path / "run")

    assert Path(run.recipe.dataset) == material.single


def test_force_starts_over(material: Material, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "bad-images.txt").write_text("old.jpg\tgone\n")
    recipe = make_recipe({"dataset": str(material.single), "method": "an", **material.settings})

    run = start(Dataset.open(material.single), recipe, out=tmp_path / "run", force=True)

    assert not (run.folder / "bad-images.txt").exists()


def test_second_run_in_the_same_folder_is_refused(material: Material, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tagfill.io import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1]), 'is training'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    recipe = make_recipe({"dataset": str(material.single), "method": "an", **material.settings})
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"

        with pytest.raises(tagfill.TagfillError, match=r"Another process is training in .* another --out\."):
            start(Dataset.open(material.single), recipe, out=tmp_path / "run", force=True)


def test_resuming_a_finished_run_does_nothing(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run")
    before = outcome(run.folder)

    assert tagfill.resume(run.folder).best == run.best
    assert start_or_resume(Dataset.open(material.single), run.recipe, out=run.folder).best == run.best
    assert outcome(run.folder) == before


def test_start_or_resume_continues_only_the_same_run(material: Material, tmp_path: Path) -> None:
    data, run = Dataset.open(material.single), Run(tmp_path / "run")
    given = {"features": str(material.cache), "method": "an", "stages": [{"input": "cache", "epochs": 1}]}
    recipe = make_recipe({"dataset": str(material.single), **given, **material.settings})
    start_or_resume(data, recipe, out=run.folder)
    expected = outcome(run.folder)
    shutil.rmtree(run.folder / "checkpoints")  # as if it had been killed before the first one
    start_or_resume(data, recipe, out=run.folder)

    assert outcome(run.folder) == expected
    with pytest.raises(RunError, match="holds a run with other settings"):
        start_or_resume(data, recipe.model_copy(update={"seed": 7}), out=run.folder)


def test_resuming_with_other_labels_is_refused(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Material(material.full, tmp_path / "single", material.cache, material.weights)
    shutil.copytree(material.single, mine.single)
    half_way(mine, tmp_path / "run", monkeypatch)
    data = Dataset.open(mine.single)
    data.replace(annotations=data.rows().slice(1)).save(mine.single)

    with pytest.raises(tagfill.TagfillError, match=r"labels of dataset .* changed"):
        tagfill.resume(tmp_path / "run")


def test_resuming_with_another_recipe_is_refused(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_way(material, tmp_path / "run", monkeypatch)
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("lr: 0.001", "lr: 0.01"))

    with pytest.raises(tagfill.TagfillError, match=r"recipe\.yaml was changed"):
        tagfill.resume(tmp_path / "run")


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors", "rank0.safetensors"])
def test_damaged_checkpoint_falls_back_to_the_one_before(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = tmp_path / "run"
    half_way(material, run, monkeypatch)
    unbroken = tmp_path / "unbroken"
    shutil.copytree(run, unbroken)
    newest = max((run / "checkpoints").glob("[0-9]*"))
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])

    assert outcome(tagfill.resume(run).folder) == outcome(tagfill.resume(unbroken).folder)


@pytest.mark.parametrize("left", [["model.safetensors"], ["model.safetensors", "state.json"]])
def test_a_partly_removed_checkpoint_is_ignored(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[str]
) -> None:
    run = tmp_path / "run"
    half_way(material, run, monkeypatch)
    unbroken = tmp_path / "unbroken"
    shutil.copytree(run, unbroken)
    oldest = min((run / "checkpoints").glob("[0-9]*"))
    for path in oldest.iterdir():
        if path.name not in left:
            path.unlink()  # as if the run had been killed while it removed the checkpoint
        elif path.suffix == ".json":
            path.write_bytes(path.read_bytes()[:20])

    assert outcome(tagfill.resume(run).folder) == outcome(tagfill.resume(unbroken).folder)


def test_newest_checkpoint_cut_anywhere_gives_way_to_the_one_before(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_way(material, tmp_path / "run", monkeypatch)
    folder = tmp_path / "run" / "checkpoints"
    *_, before, newest = sorted(folder.iterdir())
    for path in newest.iterdir():
        content = path.read_bytes()
        for length in {*range(0, len(content), max(1, len(content) // 60)), len(content) - 2}:
            path.write_bytes(content[:length])

            checkpoint, warnings = open_newest(folder)

            assert checkpoint.path == before
            assert len(warnings) == 1
        path.write_bytes(content)
    assert open_newest(folder)[0].path == newest


def test_newest_two_checkpoints_are_kept_and_one_between_epochs(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_way(material, tmp_path / "run", monkeypatch)

    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    steps = [json.loads((path / "state.json").read_text())["step"] for path in kept]
    assert steps == [0, 4, 6]


def test_loss_that_is_not_finite_stops_the_run(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match=r"loss term 'an' is (nan|inf)"):
        cached(material, tmp_path / "run", method="an", lr=3e37)


def test_memory_above_its_budget_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(tagfill.TagfillError, match="above the budget"):
        cached(material, tmp_path / "run", memory={"budget_gb": 1e-6})


def test_metrics_are_one_json_object_an_epoch(material: Material, tmp_path: Path) -> None:
    run = cached(material, tmp_path / "run")

    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert set(lines[0]["loss"]) == {"en", "scl"}


def test_tags_alone_cannot_choose_an_epoch(material: Material, tmp_path: Path) -> None:
    data = Dataset.open(material.single)
    tags = data.replace(annotations=data.rows().filter(pc.field("present")), truth=None, folder=None)

    run = tagfill.train(tags.save(tmp_path / "tags"), method="an", epochs=2, out=tmp_path / "run", **on_cache(material))

    assert run.best["epoch"] == 2
    assert run.best["chosen_by"] == "last epoch"
    assert "val_mAP" not in run.best
    assert np.isnan(tagfill.evaluate(run, tags, split="val", features=material.cache).mean)


def test_the_same_call_with_force_starts_over_and_writes_the_same_bytes(material: Material, tmp_path: Path) -> None:
    first = cached(material, tmp_path / "run", epochs=1)
    before = first.metrics_path.read_bytes()
    with pytest.raises(RunError, match="is not empty"):
        cached(material, tmp_path / "run", epochs=1)
    assert cached(material, tmp_path / "run", epochs=1, force=True).metrics_path.read_bytes() == before


def test_a_refused_run_leaves_its_folder_to_the_corrected_call(material: Material, tmp_path: Path) -> None:
    with pytest.raises(TagfillError, match="99 present labels per image are expected, but there are"):
        cached(material, tmp_path / "run", method="en", epochs=1, expected_positives=99)
    assert not Run.open(tmp_path / "run").begun
    assert cached(material, tmp_path / "run", method="en", epochs=1, expected_positives=1.2).begun


@pytest.mark.parametrize("left_out", [["checkpoints"], ["checkpoints", "best"]])
def test_what_is_kept_of_a_finished_run_is_not_overwritten(
    left_out: list[str], material: Material, tmp_path: Path
) -> None:
    run = cached(material, tmp_path / "run", epochs=1)
    for name in left_out:
        shutil.rmtree(run.folder / name)
    before = run.metrics_path.read_bytes()
    with pytest.raises(RunError, match="is not empty; choose another"):
        cached(material, tmp_path / "run", epochs=1)
    assert run.metrics_path.read_bytes() == before


def test_a_run_and_a_cache_are_taken_where_their_folders_are(material: Material, tmp_path: Path) -> None:
    cache = tagfill.FeatureCache.open(material.cache)
    data = Dataset.open(material.single)
    run = tagfill.train(data, method="an", features=cache, epochs=1, out=tmp_path / "run", **material.settings)
    by_objects = tagfill.evaluate(run, data, features=cache)
    by_folders = tagfill.evaluate(run.folder, data, features=material.cache)
    assert by_objects.mean == by_folders.mean
    assert Path(run) == run.folder


@pytest.mark.parametrize(
    ("classes", "wrong", "words"),
    [
        ([], {}, "there is no class"),
        (["cup"], {"kind": "box", "x": 0.5, "y": 0.5, "w": float("nan"), "h": 0.5}, "w = nan"),
        (["cup"], {"kind": "box", "x": 0.5, "y": float("inf"), "w": 0.1, "h": 0.5}, "y = inf"),
    ],
)
def test_what_inspect_calls_an_error_stops_training(tmp_path: Path, classes: list[str], wrong: Any, words: str) -> None:
    images = [{"image": f"{number}.jpg", "split": "train"} for number in range(4)]
    rows = [{"image": "0.jpg", "label": name, "present": True, **wrong} for name in classes]
    data = Dataset.from_records("shop", tmp_path, classes, images, rows)
    with pytest.raises(DatasetError, match=words):
        tagfill.train(data, out=tmp_path / "run", pretrained=False, progress=SILENT)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_a_killed_process_did_not_make_a_run_is_free(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    for name in (".lock", "recipe.yaml", ".run.json.tmp"):
        (tmp_path / name).touch()
    _check_free(Run(tmp_path), force=False)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match="is not empty"):
        _check_free(Run(tmp_path), force=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_saves_and_the_second_stops(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), number)
        assert interrupt.pressed
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
