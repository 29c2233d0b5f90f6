"""Table G: probabilities of new photos, with and without calibration.

A model is trained twice: with a complete validation split, on which its calibration is measured, and without any, where
the calibration is estimated from cross-fitted scores and the tags alone, as `tagfill fill` does.
"""

from __future__ import annotations

from typing import Any

from bench import Bench
from bookkeeping import say
from tables import table

import tagfill
from tagfill.contract import Ranks
from tagfill.curation.crossfit import cross_fit
from tagfill.metrics import expected_calibration_error
from tagfill.probabilities import Calibration, probabilities
from tagfill.progress import SILENT
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel, gather_predictions

METHODS = ("an", "auto")
FOLDS, EPOCHS = 5, 10


def measure(bench: Bench) -> dict[str, Any]:
    """Calibration errors on the test split, and labels per image that the probabilities say."""
    bench.features("eval")
    bench.material.made("blind", without_validation, of="single")
    folds, epochs = (2, 2) if bench.quick else (FOLDS, EPOCHS)
    found = {method: scores(bench, method, folds, epochs) for method in METHODS}
    truth = bench.material.open("full").labels("test")
    per_image = float(truth.positives.sum() / len(truth))
    return {"setting": {"folds": folds, "epochs": epochs}, "labels_per_image": per_image, "methods": found}


def without_validation(single: tagfill.Dataset) -> tagfill.Dataset:
    """The dataset with its validation photos set aside."""
    splits = single.split_of_images()
    splits[splits == "val"] = "aside"
    return single.with_splits(splits).replace(folder=None)


def scores(bench: Bench, method: str, folds: int, epochs: int) -> dict[str, dict[str, float]]:
    """Of the plain sigmoid, and of both calibrations."""
    found: dict[str, dict[str, float]] = {}
    for source, name in (("measured", "single"), ("estimated", "blind")):
        say(f"{method}, {source}")
        folder, cache = bench.work / "runs" / f"calibration-{method}-{source}", bench.work / "features" / "eval"
        data, run = bench.material.open(name), Run(folder / "run")
        if not (run.description_path.exists() and run.finished):
            run = tagfill.train(data, method=method, features=cache, epochs=epochs, out=run.folder, force=True)
        if source == "estimated":
            scored = cross_fit(
                run.folder, data, "train", folds=folds, out=folder / "folds", features=cache,
                jobs=bench.processes, workers=0, progress=SILENT,
            )  # fmt: skip
            calibration = next(scored).calibration
            tagfill.models.set_calibration(run.model_folder, calibration)
        model = LoadedModel.open(run.folder, data, features=cache)
        assert model.model.calibration is not None
        assert model.model.calibration.source == source
        found[source] = told(model, model.model.calibration)
        found[f"raw, {source}"] = told(model, None)
    return found


def told(model: LoadedModel, calibration: Calibration | None) -> dict[str, float]:
    """Calibration error in percent and labels per image on the test split."""
    test = gather_predictions(model.predict("test"), Ranks(), len(model.dataset.classes))
    p = probabilities(test.scores, calibration)
    return {"ECE": 100 * expected_calibration_error(p, test.labels), "labels_per_image": float(p.sum(1).mean())}


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    names = {
        "raw, measured": "sigmoid of the scores, trained with validation",
        "measured": "calibration measured on validation",
        "raw, estimated": "sigmoid of the scores, trained without validation",
        "estimated": "calibration estimated from tags alone",
    }
    rows = [
        [f"`{method}`", title, f"{found[key]['ECE']:.2f}", f"{found[key]['labels_per_image']:.2f}"]
        for method, found in results["methods"].items()
        for key, title in names.items()
    ]
    setting = results["setting"]
    return f"""Training begins with one positive label per image. Models are trained twice with default settings on
features of whole images, {setting["epochs"]} epochs, one seed: with the validation split, on which training measures
the [calibration](../predicting.md#calibrated-probabilities), and without it, where it is estimated from the scores of
{setting["folds"]} models that were each trained without a part of the photos. ECE is the expected calibration error
on the test split, in percent. Test photos have {results["labels_per_image"]:.2f} labels each; the last column is the
sum of the probabilities.

{table(["method", "probabilities", "ECE", "labels per image"], rows)}"""
