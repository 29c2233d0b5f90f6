"""The number of epochs without complete labels."""

from __future__ import annotations

import numpy as np
import pytest

import tagfill
from tagfill.errors import TagfillError
from tagfill.metrics import roc_auc
from tagfill.training import Run, build_recipe, cross_fit_epochs


class Sentences:
    """A progress that keeps what is said."""

    def __init__(self):
        from tagfill.progress import SILENT

        self.said, self.bar = [], SILENT.bar

    def say(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def data(material, tmp_path_factory):
    """One tag per image, and no validation split."""
    single = tagfill.Dataset.open(material.single)
    splits = single.split_of_images()
    splits[splits == "val"] = "unused"
    return single.with_splits(splits).replace(folder=None).save(tmp_path_factory.mktemp("tags") / "data")


def recipe(material, data, method, epochs=3):
    content = {"dataset": str(data.folder), "method": method, **material.settings}
    return build_recipe(content, features=material.cache, epochs=epochs)


def test_known_tags_of_held_out_images_choose_the_number_of_epochs(material, data, tmp_path):
    progress = Sentences()
    found = cross_fit_epochs(data, recipe(material, data, "auto"), tmp_path, progress=progress)
    assert found.method == "auto"
    runs = [Run.open(tmp_path / f"fold-{fold}" / "run") for fold in range(3)]
    assert {run.recipe.method for run in runs} == {"wan"}
    assert {run.best["chosen_by"] for run in runs} == {"AUC of the known tags of val"}
    held_out = [set(run_names(run)) for run in runs]
    assert sum(map(len, held_out)) == len(set.union(*held_out)) == len(data.split("train"))
    curves = np.array([[line["val_AUC"] for line in run.metrics()] for run in runs])
    smooth = np.convolve(np.pad(curves.mean(0), 1, mode="edge"), np.ones(3), "valid")
    assert found.stages[0].epochs == smooth.argmax() + 1
    assert f"{found.stages[0].epochs} of 3 epochs" in progress.said[-1]
    before = [run.metrics_path.stat().st_mtime_ns for run in runs]
    again = cross_fit_epochs(data, recipe(material, data, "auto"), tmp_path, progress=Sentences())
    assert again == found
    assert [run.metrics_path.stat().st_mtime_ns for run in runs] == before  # the runs are finished


def run_names(run):
    dataset = tagfill.Dataset.open(run.recipe.dataset)
    return dataset.names(dataset.split("val"))


def test_validation_chooses_the_epoch_itself(material, data, tmp_path):
    progress, whole = Sentences(), tagfill.Dataset.open(material.single)
    given = recipe(material, whole, "an")
    assert cross_fit_epochs(whole, given, tmp_path, progress=progress) == given
    assert "validation split" in progress.said[0]
    few = data.replace(annotations=data.rows().slice(0, 10), folder=None)
    with pytest.raises(TagfillError, match="too few"):
        cross_fit_epochs(few, given, tmp_path, progress=progress)


def test_the_area_counts_pairs_of_images():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 5, (40, 3)).astype(float), rng.integers(-1, 2, (40, 3))
    labels[:, 2] = 1
    for column, found in enumerate(roc_auc(scores, labels)):
        pairs = [
            (a > b) + (a == b) / 2
            for a, is_a in zip(scores[:, column], labels[:, column], strict=True)
            for b, is_b in zip(scores[:, column], labels[:, column], strict=True)
            if is_a == 1 and is_b == 0
        ]
        assert np.isnan(found) if not pairs else found == pytest.approx(np.mean(pairs))
