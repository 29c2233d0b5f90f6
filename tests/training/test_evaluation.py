"""An evaluation against scikit-learn on the same predictions, and where its parts come from."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, precision_score

import tagfill
from tagfill.contract import Ranks
from tagfill.errors import TagfillError
from tagfill.metrics import (
    RECALL_LEVELS,
    GatheredPredictions,
    best_thresholds,
    bootstrap_interval,
    expected_calibration_error,
    group_means,
    mean_average_precision,
)
from tagfill.models import Classifier
from tagfill.probabilities import Calibration, calibrate, probabilities
from tagfill.training import Evaluation, Run, evaluate
from tagfill.training.evaluation import LoadedModel, gather_predictions

from .conftest import Material


@pytest.fixture(scope="module")
def runs(material: Material, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    common = {"features": material.cache, "epochs": 2, "lr": 1e-2, **material.settings}
    return {
        "partial": tagfill.train(material.single, method="an", out=folder / "partial", **common),
        "full": tagfill.train(material.full, method="bce", out=folder / "full", **common),
    }


@pytest.fixture(scope="module")
def dataset(material: Material) -> tagfill.Dataset:
    return tagfill.Dataset.open(material.single)


@pytest.fixture(scope="module")
def found(material: Material, runs: dict[str, Run], dataset: tagfill.Dataset) -> Evaluation:
    return evaluate(
        runs["partial"], dataset, features=material.cache, ceiling=runs["full"], bootstrap=40, groups=3, seed=7
    )


def predictions(run: Run, dataset: tagfill.Dataset, material: Material, split: str) -> GatheredPredictions:
    trained = LoadedModel.open(run, dataset, features=material.cache)
    return gather_predictions(trained.predict(split), Ranks(), len(dataset.classes))


def calibration_of(run: Run) -> Calibration | None:
    return Classifier.load(run.model_folder).calibration


def test_thresholds_are_chosen_on_validation_and_saved_with_the_model(material, runs, dataset, found):
    seen = predictions(runs["partial"], dataset, material, "val")
    model = Classifier.load(runs["partial"].model_folder)
    assert model.calibration == calibrate(seen.scores, seen.labels)
    expected = best_thresholds(probabilities(seen.scores, model.calibration), seen.labels, default=0.5)

    assert model.thresholds == tuple(expected.tolist())
    np.testing.assert_array_equal(found.thresholds, expected)
    assert found.thresholds_from.startswith("saved with the model")


def test_numbers_agree_with_scikit_learn(material, runs, dataset, found):
    seen = predictions(runs["partial"], dataset, material, "test")
    called = probabilities(seen.scores, calibration_of(runs["partial"])) >= found.thresholds
    shown = [c for c in range(len(dataset.classes)) if (seen.labels[:, c] == 1).any()]
    pairs = [(seen.labels[:, c], called[:, c]) for c in shown]

    expected = [average_precision_score(seen.labels[:, c], seen.scores[:, c]) for c in shown]
    np.testing.assert_allclose(found.average_precision[shown], expected, rtol=0, atol=1e-12)
    assert found.mean == pytest.approx(np.mean(expected), abs=1e-12)
    assert found.counts.mean_f1 == pytest.approx(np.mean([f1_score(z, p) for z, p in pairs]), abs=1e-12)
    assert found.counts.overall_f1 == pytest.approx(f1_score(seen.labels.ravel(), called.ravel()), abs=1e-12)
    precision = [precision_score(z, p, zero_division=np.nan) for z, p in pairs]
    np.testing.assert_allclose(found.counts.precision[shown], precision, rtol=0, atol=1e-12)


def test_probabilities_are_calibrated(material, runs, dataset, found):
    seen = predictions(runs["partial"], dataset, material, "test")
    calibrated = probabilities(seen.scores, calibration_of(runs["partial"]))

    assert found.calibration_from == "measured"
    assert found.calibration_error == expected_calibration_error(calibrated, seen.labels)
    assert found.raw_calibration_error == expected_calibration_error(probabilities(seen.scores), seen.labels)
    best = np.take_along_axis(seen.labels, calibrated.argmax(1)[:, None], 1)
    assert found.top_1 == pytest.approx((best == 1).mean())


def test_what_was_asked_for_is_there(material, runs, dataset, found):
    seen, best = (predictions(runs[name], dataset, material, "test") for name in ("partial", "full"))

    assert found.interval == bootstrap_interval(seen.scores, seen.labels, resamples=40, seed=7)
    alone = evaluate(runs["full"], dataset, features=material.cache)
    np.testing.assert_array_equal(found.ceiling, alone.average_precision)
    assert len(best.scores) == found.images
    np.testing.assert_array_equal(
        found.groups, group_means(found.average_precision, dataset.labels("train").known, groups=3)
    )
    assert (alone.interval, alone.ceiling, alone.groups) == (None, None, None)


def test_groups_count_classes_without_a_positive_like_the_mean(material, runs, dataset, monkeypatch):
    seen = predictions(runs["full"], dataset, material, "test")
    seen.labels[:, 0] = np.minimum(seen.labels[:, 0], 0)
    monkeypatch.setattr("tagfill.training.evaluation.gather_predictions", lambda *_: seen)
    found = evaluate(runs["full"], dataset, features=material.cache, groups=len(dataset.classes), empty="zero")
    assert np.nanmin(found.groups) == 0
    assert found.groups.mean() == pytest.approx(found.mean)


def test_classes_are_sorted_by_loss_against_the_ceiling_or_by_precision(material, runs, dataset, found):
    loss = [row[found.columns().index("loss")] for row in found.rows()]
    known = [value for value in loss if value is not None]
    assert known == sorted(known, reverse=True)
    assert loss[: len(known)] == known  # classes without a value come last
    alone = evaluate(runs["partial"], dataset, features=material.cache)
    precision = [row[1] for row in alone.rows() if row[1] is not None]
    assert precision == sorted(precision)


def test_json_and_csv_hold_the_same_rows(found):
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    rows = list(csv.reader(found.to_csv().splitlines()))

    assert rows[0] == found.columns()
    assert [row[0] for row in rows[1:]] == [row["class"] for row in told["classes"]]
    assert [float(row[1]) for row in rows[1:] if row[1]] == [r["AP"] for r in told["classes"] if r["AP"] is not None]
    assert told["mAP_interval"]["low"] <= told["mAP"] <= told["mAP_interval"]["high"]
    assert set(told["precision_at"]) == {"1", "3", "5"}
    formulas = replace(found, classes=tuple(f"={name}" for name in found.classes))
    safe = list(csv.reader(formulas.to_csv(spreadsheet=True).splitlines()))
    assert [[name.removeprefix("'="), *numbers] for name, *numbers in safe[1:]] == rows[1:]


def test_a_boost_changes_scores_so_thresholds_are_chosen_again(material, runs, dataset):
    boosted = evaluate(runs["partial"], dataset, features=material.cache, boost=5.0)
    trained = LoadedModel.open(runs["partial"], dataset, features=material.cache, boost=5.0)
    seen = gather_predictions(trained.predict("val"), Ranks(), len(dataset.classes))

    expected = best_thresholds(
        probabilities(seen.scores, calibrate(seen.scores, seen.labels)), seen.labels, default=0.5
    )

    np.testing.assert_array_equal(boosted.thresholds, expected)
    assert boosted.thresholds_from == "chosen on val, now"


def test_unknown_entries_are_counted_and_left_out(material, runs, dataset):
    """The training split has one label per image."""
    found = evaluate(runs["partial"], dataset, split="train", features=material.cache)

    assert found.known.sum() == found.images
    assert found.unknown == found.images * (len(dataset.classes) - 1)
    assert np.isnan(found.mean)  # all that is known is positive: there is nothing to rank


def test_more_groups_than_classes_are_refused(runs, dataset):
    with pytest.raises(TagfillError, match="do not make 99 groups"):
        evaluate(runs["partial"], dataset, groups=99)


def test_a_run_without_validation_has_no_thresholds(material: Material, tmp_path: Path):
    data = tagfill.Dataset.open(material.single)
    splits = data.split_of_images()
    splits[splits == "val"] = "spare"
    part = data.with_splits(splits).replace(folder=None)
    run = tagfill.train(part, method="an", epochs=1, features=material.cache, out=tmp_path / "run", **material.settings)
    assert Classifier.load(run.model_folder).thresholds is None
    assert calibration_of(run) is None
    found = evaluate(run, part, features=material.cache)
    assert (found.thresholds == 0.5).all()
    assert (found.calibration_from, found.raw_calibration_error) == (None, found.calibration_error)
    assert "no usable validation labels" in found.thresholds_from


def test_other_definitions_and_rules_are_those_of_the_metrics(material, runs, dataset):
    found = evaluate(runs["partial"], dataset, features=material.cache, definition="voc12", empty="zero")
    seen = predictions(runs["partial"], dataset, material, "test")

    assert found.mean == mean_average_precision(seen.scores, seen.labels, empty="zero", definition="voc12")
    assert (found.to_json()["definition"], found.to_json()["empty"]) == ("voc12", "zero")
    without = replace(
        found, average_precision=np.where(np.arange(len(found.known)) == 0, np.nan, found.average_precision)
    )
    assert without.mean == pytest.approx(np.nan_to_num(without.average_precision).mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"definition": "voc10"}, "definition is 'voc10'; give one of step, rank, voc12, voc07"),
        ({"empty": "one"}, "empty is 'one'; give one of skip, zero"),
        ({"bootstrap": 10, "definition": "rank"}, "leave out bootstrap"),
    ],
)
def test_what_cannot_be_measured_is_refused(runs, dataset, options, sentence):
    with pytest.raises(TagfillError, match=sentence):
        evaluate(runs["partial"], dataset, **options)


def test_curves_and_mistakes_follow_from_the_predictions(material, runs, dataset, found):
    seen = predictions(runs["partial"], dataset, material, "test")
    shown = [c for c in range(len(dataset.classes)) if (seen.labels[:, c] == 1).any()]
    for c in shown[:3]:
        precision, recall, _ = precision_recall_curve(seen.labels[:, c], seen.scores[:, c])
        for at, level in enumerate(RECALL_LEVELS):
            assert found.precision_at_recall[c, at] == pytest.approx(precision[:-1][recall[:-1] >= level].max())
    assert found.reliability.error == found.calibration_error
    shares = probabilities(seen.scores, calibration_of(runs["partial"]))
    names = dataset.names(dataset.split("test"))
    worst = sorted(np.abs(shares - seen.labels).max(1), reverse=True)
    assert 0 < len(found.mistakes) <= 8
    for number, mistake in enumerate(found.mistakes):
        row, label = names.index(mistake.image), dataset.classes.index(mistake.label)
        assert mistake.present == bool(seen.labels[row, label])
        assert mistake.probability == pytest.approx(shares[row, label], abs=1e-6)
        assert abs(mistake.probability - mistake.present) == pytest.approx(worst[number], abs=1e-6)


def test_notebooks_show_evaluations_and_runs(runs, found, tmp_path):
    assert repr(found).startswith("<Evaluation of test: mAP ")
    html = found._repr_html_()
    assert html.count("data:image/jpeg") == len(found.mistakes)
    assert "worst and the 5 best" in html
    assert len(html) < 200_000
    moved = replace(found, root=tmp_path / "gone")
    assert "There is no image root" in moved._repr_html_()
    run = runs["partial"]
    assert (
        repr(run)
        == f"<Run {run.folder}: an, finished, best epoch {run.best['epoch']}, val mAP {run.best['val_mAP']:.2f}>"
    )
    assert "<polyline" in run._repr_html_()
    assert repr(Run(tmp_path)) == f"<Run {tmp_path}>"
    assert "Cannot be shown in full" in Run(tmp_path)._repr_html_()


def test_plots_show_the_numbers(found):
    assert found.plot()._repr_png_().startswith(b"\x89PNG")
    bars = found.plot_classes().axes[0].patches
    scored = found.average_precision[~np.isnan(found.average_precision)]
    assert len(bars) == len(scored)
    assert sorted(bar.get_width() for bar in bars) == pytest.approx(sorted(100 * scored))
    line = found.plot_precision_recall([found.classes[0]]).axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), 100 * found.precision_at_recall[0])
    dots = found.plot_calibration().axes[0].collections[0].get_offsets()
    assert len(dots) == (found.reliability.count > 0).sum()
    with pytest.raises(TagfillError, match="no class 'dragon'"):
        found.plot_precision_recall(["dragon"])
    with pytest.raises(TagfillError, match="evaluate the run again"):
        replace(found, reliability=None).plot_calibration()
