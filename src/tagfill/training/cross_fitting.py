"""Choose a method or the number of epochs without complete labels, by cross-fitting on the labels that are known.

The labeled training images are divided into folds. For each fold, a recipe is trained without its images, and after
each epoch these are ranked for each class. An image with a known tag should come before one without:

    score of an epoch = area under the ROC curve of the known tags among all held-out images, averaged over the folds

If tags are missing at random, this is a linear function of the area for complete labels, so both have the same best
epoch and the same best method; the mAP of known tags is no such function.

**Methods** (`compare_methods`) are compared by the score of the last epoch, fold by fold. A rival has to beat the first
one by more than the standard error of the difference. A guest joins the better one if the sum of both, each
standardized, ranks better than the better one alone, again by more than the standard error.

**Epochs** (`cross_fit_epochs`): the final model is trained on all images for the number of epochs with the best score,
a mean over three epochs. This costs about as much as training the model twice more. With ten epochs, the chosen epoch
is no better than the last one; with many, methods memorize which tags are missing, and the choice wins most of the loss
back (`docs/benchmarks/epochs.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.contract import Ranks
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.evidence import copy_evidence
from tagfill.metrics import GatheredPredictions, roc_auc
from tagfill.progress import Progress
from tagfill.rng import generator
from tagfill.training import auto
from tagfill.training.evaluation import LoadedModel, can_validate, gather_predictions, read_validation_labels
from tagfill.training.recipe import Recipe
from tagfill.training.run import resume, start
from tagfill.training.run_folder import Run

FOLDS = 3
_LEAST_TAGS = 50  # too few to compare epochs


def cross_fit_epochs(
    dataset: Dataset, recipe: Recipe, folder: str | Path, *, device: str = "auto", workers: int = 0, progress: Progress
) -> Recipe:
    """The recipe with the best number of epochs up to its own; unchanged if validation can choose the epoch.

    Args:
        dataset: the data.
        recipe: with one stage; of the method `auto`, the first method that is trained decides.
        folder: for the runs of the folds, in which a second call finds what an interrupted one left.
        device: to train on.
        workers: processes that decode images.
        progress: shows the runs, and receives a sentence about the choice.
    """
    if can_validate(dataset, recipe.val_labels):
        progress.say("Epochs are chosen on the validation split, so there is no need to cross-fit.")
        return recipe
    if len(recipe.stages) > 1:
        raise TagfillError("Epochs can be chosen for a recipe with one stage only; leave out --cross-fit-epochs.")
    labels = dataset.labels("train")
    if (tags := int(labels.positives.sum())) < _LEAST_TAGS:
        raise TagfillError(f"{tags} known tags are too few to choose a number of epochs; leave out --cross-fit-epochs.")
    own = recipe
    if recipe.method == auto.AUTO:
        choice = auto.choose(dataset, recipe)
        own = auto.member_recipe(choice.recipe, auto.trained(choice.members)[0])
    curves = _curves(dataset, own, Path(folder), device, workers, progress)
    epochs = choose_epoch(curves)
    mean = curves.mean(0)
    progress.say(
        f"{epochs} of {len(mean)} epochs are trained: held-out images with a known tag come before others in "
        f"{mean[epochs - 1]:.1f} % of all cases, and after the last epoch in {mean[-1]:.1f} %."
    )
    stage = recipe.stages[0].model_copy(update={"epochs": epochs})
    return recipe.model_copy(update={"stages": (stage,)})


@dataclass(frozen=True)
class MethodComparison:
    """How well methods rank held-out images.

    Attributes:
        best: the method to take.
        scores: AUC of the known tags in percent, by method and fold.
        guest: a method that joins it; None if there is none, or if it does not help.
    """

    best: str
    scores: Mapping[str, tuple[float, ...]]
    guest: str | None = None

    @property
    def taken(self) -> tuple[str, ...]:
        """The methods to train."""
        return (self.best, *filter(None, [self.guest]))

    def __str__(self) -> str:
        means = ", ".join(f"{name} {np.mean(found):.2f}" for name, found in self.scores.items())
        verb = "is" if self.guest is None else "are"
        return f"By cross-fitting (AUC of known tags in percent: {means}), {' and '.join(self.taken)} {verb} taken."


def compare_methods(
    dataset: Dataset,
    recipes: Mapping[str, Recipe],
    folder: Path,
    *,
    guest: str | None = None,
    device: str = "auto",
    workers: int = 0,
    progress: Progress,
) -> MethodComparison:
    """Compare methods by the known tags of images that they were not trained on.

    Args:
        dataset: the data.
        recipes: of the methods; the first is taken unless another is clearly better.
        folder: for the runs of the folds, in which a second call finds what an interrupted one left.
        guest: one of these methods, which joins the best of the others if that helps.
        device: to train on.
        workers: processes that decode images.
        progress: shows the runs.
    """
    scores = {
        name: tuple(_curves(dataset, recipe, folder / name, device, workers, progress)[:, -1].tolist())
        for name, recipe in recipes.items()
    }
    best = choose_method({name: found for name, found in scores.items() if name != guest})
    if guest is None:
        return MethodComparison(best, scores)
    alone, both = _scores_of_sum(folder / best, folder / guest)
    joins = beats(both, alone)
    return MethodComparison(best, {**scores, f"{best} with {guest}": both}, guest if joins else None)


def _scores_of_sum(first: Path, second: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """AUC of the known tags in percent, by fold: of one method, and of the sum of its logits and those of another."""
    found = []
    for fold in range(FOLDS):
        ours, theirs = (_held_out(folder / f"fold-{fold}") for folder in (first, second))
        both = _standardized(ours.scores) + _standardized(theirs.scores)
        found.append([100 * float(np.nanmean(roc_auc(logits, ours.labels))) for logits in (ours.scores, both)])
    alone, together = zip(*found, strict=True)
    return alone, together


def _held_out(folder: Path) -> GatheredPredictions:
    """Logits of the best epoch and known tags of the images that a fold leaves out."""
    run, data = Run(folder / "run"), Dataset.open(folder / "data")
    model = LoadedModel.open(run, data, features=run.recipe.final_features)
    gathered = gather_predictions(model.predict("val"), Ranks(), len(data.classes))
    read_validation_labels(gathered, data, "tags")
    return gathered


def _standardized(logits: NDArray[np.floating]) -> NDArray[np.floating]:
    found: NDArray[np.floating] = (logits - logits.mean(0)) / np.maximum(logits.std(0), 1e-9)
    return found


def choose_method(scores: Mapping[str, tuple[float, ...]]) -> str:
    """The method with the best mean, if it clearly beats the first.

    Args:
        scores: of each method and fold, at least two folds.

    >>> choose_method({"wan": (90.0, 91.0), "ll-r": (90.1, 90.9)})
    'wan'
    >>> choose_method({"wan": (90.0, 91.0), "ll-r": (90.5, 91.6)})
    'll-r'
    """
    first = next(iter(scores))
    best = max(scores, key=lambda name: np.mean(scores[name]))
    return best if beats(scores[best], scores[first]) else first


def beats(scores: Sequence[float], others: Sequence[float]) -> bool:
    """Whether scores are higher by more than the standard error of the paired difference."""
    gains = np.subtract(scores, others)
    return bool(gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)))


def choose_epoch(scores: NDArray[np.floating]) -> int:
    """The best epoch, from 1, by the mean of three neighboring ones; of equal ones the first.

    Args:
        scores: folds×epochs.

    >>> choose_epoch(np.array([[0.1, 0.5, 0.6, 0.5, 0.2]]))
    3
    """
    mean = np.pad(np.asarray(scores, dtype=np.float64).mean(0), 1, mode="edge")
    return int(np.argmax(mean[:-2] + mean[1:-1] + mean[2:])) + 1


def _curves(
    dataset: Dataset, recipe: Recipe, folder: Path, device: str, workers: int, progress: Progress
) -> NDArray[np.float64]:
    """AUC of the known tags of held-out images in percent: folds×epochs."""
    labeled = dataset.split("train")[dataset.labels("train").positives_per_image() > 0]
    order = generator(recipe.seed, "epoch folds").permutation(len(labeled))
    curves = []
    for fold in range(FOLDS):
        progress.say(f"cross-fitting {recipe.method}, fold {fold + 1} of {FOLDS}")
        held_out = labeled[order[fold::FOLDS]]
        curves.append(_curve(dataset, recipe, held_out, folder / f"fold-{fold}", device, workers, progress))
    return np.array(curves)


def _curve(
    dataset: Dataset,
    recipe: Recipe,
    held_out: NDArray[np.int64],
    folder: Path,
    device: str,
    workers: int,
    progress: Progress,
) -> list[float]:
    """AUC of the known tags of held-out images in percent, after each epoch of a model trained without them."""
    run = Run(folder / "run")
    settings: dict[str, Any] = {"device": device, "workers": workers, "progress": progress}
    if run.begun:
        run = resume(run.folder, **settings)
    else:
        splits = dataset.split_of_images()
        splits[splits == "val"] = "unused"
        splits[held_out] = "val"
        data = dataset.with_splits(splits).replace(folder=None).save(folder / "data")
        copy_evidence(dataset, folder / "data")
        changes = {"dataset": str((folder / "data").absolute()), "val_labels": "tags", "select": "mAP"}
        run = start(data, recipe.model_copy(update=changes), out=run.folder, force=True, **settings)
    return [line["val_AUC"] for line in run.metrics()]
