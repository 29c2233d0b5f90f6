"""The method `auto`: methods that suit what is known about the training images, combined into one model.

    labels are complete                bce, lda-soft and lda-cells
    tags only, hardly any absent label wan, lda, lda-soft and lda-cells
    otherwise                          csl, lda-soft and lda-cells

`bce`, `wan` and `csl` train a `cam` head with their defaults. `lda`, `lda-soft` and `lda-cells` are linear
discriminants on the same features, which are computed in seconds (`tagfill.training.discriminant`). The heads become
the members of one `ensemble` head, standardized on training images, with BoostLU and competing classes at inference.
`docs/choosing.md` says what these choices rest on.

With tags only, the sum gets the level and spread of the logits of `em`, another head, trained only for this purpose:
those of `wan` and of discriminants cannot be compared between classes, and which tags are added depends on that.

Where our benchmarks find two methods equally good, `wan` and `ll-r`, or `csl` and `ignore`, both are cross-fitted on
what is known, and the better one is taken (`tagfill.training.cross_fitting`). If the dataset has tags only and evidence
of other taggers, the method `evidence` is cross-fitted too, and becomes a further member if that helps.

A head other than `cam`, and a backbone that trains, cannot be combined: then the first method is trained alone.

Labels that follow from a hierarchy count as known, and images without any label teach `lda-soft`. Points, boxes and
masks count as tags of their images. The reason for a choice names these, and classes with few tags.

The run folder of `auto` holds a run per trained method in `members/`, and the combined model in `best/`. Discriminants
are computed when the members are combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagfill import methods
from tagfill.contract import Ranks
from tagfill.data import FeatureCache, FeatureSource, PixelSource, Source
from tagfill.data.manifest import Manifest
from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError
from tagfill.evidence import list_evidence
from tagfill.images import EVAL
from tagfill.metrics import average_precision
from tagfill.models import Classifier, EnsembleHead, combine
from tagfill.options import check_options
from tagfill.training.discriminant import DISCRIMINANTS, LDA, LDA_CELLS, LDA_SOFT, fit_discriminants, tags_only
from tagfill.training.evaluation import (
    LoadedModel,
    can_validate,
    choose_decisions,
    gather_predictions,
    read_validation_labels,
)
from tagfill.training.recipe import Recipe
from tagfill.training.run_folder import Run

AUTO = "auto"
BOOST = 5.0  # of BoostLU, at inference
STATISTICS_IMAGES = 2000  # training images that standardize the members' logits
SCALE_OF_TAGS_ONLY = "em"
FEW_TAGS = 5  # of a class, below which its model can hardly be good
RIVALS = {"wan": "ll-r", "csl": "ignore"}  # which of two is better depends on the data
EVIDENCE = "evidence"  # a method that joins the others where a dataset has evidence
_LEAST_COMPARED, _MOST_COMPARED = 200, 20_000  # known tags, and images, between which rivals are compared
COMPETE = 0.2  # of the classes in a cell, at inference
TAGS_ONLY = ("wan", LDA, LDA_SOFT, LDA_CELLS)
WITH_NEGATIVES, COMPLETE = ("csl", LDA_SOFT, LDA_CELLS), ("bce", LDA_SOFT, LDA_CELLS)


@dataclass(frozen=True)
class Choice:
    """What `auto` decided.

    Attributes:
        recipe: all settings, with the members in `options.auto.members`.
        members: methods in order, those to train first.
        reason: one or two sentences for the user.
        rival: a method that may be better than the first member here; cross-fitting can tell.
        guest: a method that joins the members if cross-fitting says that it helps.
    """

    recipe: Recipe
    members: tuple[str, ...]
    reason: str
    rival: str | None = None
    guest: str | None = None

    def candidates(self) -> dict[str, Recipe]:
        """Recipes of the first member, its rival and the guest."""
        names = (self.members[0], *filter(None, [self.rival, self.guest]))
        return {name: member_recipe(self.recipe, name) for name in names}

    def settled(self, first: Sequence[str], why: str) -> Choice:
        """The choice with these first members."""
        members = (*first, *self.members[1:])
        own = {**self.recipe.options[AUTO], "members": list(members)}
        recipe = self.recipe.model_copy(update={"options": {**self.recipe.options, AUTO: own}})
        return Choice(recipe, members, f"{self.reason} {why}")


def trained(members: Sequence[str]) -> list[str]:
    """The members that are trained; the others are computed."""
    return [name for name in members if name not in DISCRIMINANTS]


def auto_options(*, members: Sequence[str] = (), scale: str | None = None) -> tuple[str, ...]:
    """Options of `auto`.

    Args:
        members: methods to combine, which may include `lda`, `lda-soft` and `lda-cells`; none lets `auto` choose.
        scale: a further method, whose logits give the combined ones their level and spread; none takes those of the
            members.
    """
    for name in [*trained(members), *([] if scale is None else [scale])]:
        methods.create(name)
    if members and not trained(members):
        raise TagfillError(
            "options.auto.members needs a method that is trained, such as wan, beside the discriminants."
        )
    return tuple(dict.fromkeys([*trained(members), *members]))


def check_method(recipe: Recipe) -> None:
    """Raise for a method or an option that does not exist."""
    if recipe.method == AUTO:
        _given_members(recipe)
    else:
        for stage in recipe.stages:
            methods.create(*recipe.method_of(stage))


def choose(dataset: Dataset, recipe: Recipe) -> Choice:
    """Choose methods, head and boost for a recipe whose method is `auto`.

    Settings that the recipe gives are kept. A recipe that was chosen before stays as it is.

    Args:
        dataset: the data to train on.
        recipe: with the method `auto`.
    """
    members, reason = _given_members(recipe), "Methods are those given in options.auto.members."
    scale, rival, guest = given_scale(recipe), None, None
    if not members:
        members, reason = _suitable(dataset)
        if _can_compare(dataset, recipe):
            rival = RIVALS.get(members[0])
            guest = EVIDENCE if members == TAGS_ONLY and list_evidence(dataset) else None
        reason = " ".join([reason, *_remarks(dataset, members)])
        scale = SCALE_OF_TAGS_ONLY if scale is None and members == TAGS_ONLY else scale
    if len(members) > 1 and (problem := _cannot_combine(recipe)):
        members, reason = members[:1], f"{reason} {problem}, so only {members[0]} is trained."
    head_options = dict(recipe.head_options)
    if recipe.head == "cam" and "boost" not in head_options:
        head_options |= {"boost": BOOST, "boost_train": False}
        reason = f"{reason} Class maps are boosted at inference (BoostLU, α = {BOOST:g})."
    options = {**recipe.options, AUTO: {"members": list(members)}}
    if scale is not None and len(members) > 1:
        options[AUTO]["scale"] = scale
    settings = recipe.model_copy(update={"options": options, "head_options": head_options})
    return Choice(settings, members, reason, rival, guest)


def _can_compare(dataset: Dataset, recipe: Recipe) -> bool:
    """Whether comparing methods by cross-fitting is cheap and can tell them apart."""
    labels = dataset.labels("train")
    cheap = recipe.final_features is not None and len(recipe.stages) == 1 and _cannot_combine(recipe) is None
    return cheap and len(labels) <= _MOST_COMPARED and labels.positives.sum() >= _LEAST_COMPARED


def _given_members(recipe: Recipe) -> tuple[str, ...]:
    return auto_options(**check_options(auto_options, recipe.options.get(AUTO, {}), "method 'auto'"))


def given_scale(recipe: Recipe) -> str | None:
    """The method whose logits give those of the ensemble their level and spread."""
    scale: str | None = recipe.options.get(AUTO, {}).get("scale")
    return scale


def _suitable(dataset: Dataset) -> tuple[tuple[str, ...], str]:
    """Methods for what is known about the training images, and why."""
    labels = dataset.labels("train")
    if labels.complete():
        return COMPLETE, f"All labels of the training images are known, so auto combines {_listed(COMPLETE)}."
    if not labels.positives.sum():
        raise TagfillError(f"No label of the training images of {dataset.name} is known to be present; annotate some.")
    if tags_only(labels):
        few = "Few labels are" if labels.negatives.any() else "No label is"
        return TAGS_ONLY, f"{few} known to be absent, so auto combines {_listed(TAGS_ONLY)}."
    share = labels.known.sum() / (len(labels) * labels.width)
    combined = _listed(WITH_NEGATIVES)
    return WITH_NEGATIVES, f"{share:.1%} of the labels are known, absent ones too, so auto combines {combined}."


def _listed(members: Sequence[str]) -> str:
    return f"{', '.join(members[:-1])} and {members[-1]}"


def _remarks(dataset: Dataset, members: Sequence[str]) -> list[str]:
    """What else is known about the training images, and what it is used for."""
    labels, remarks = dataset.labels("train"), list[str]()
    if dataset.hierarchy:
        remarks.append("Labels that follow from the hierarchy count as known.")
    unlabeled = len(labels.unannotated())
    if unlabeled and LDA_SOFT in members:
        remarks.append(f"{unlabeled / len(labels):.0%} of the images have no label; lda-soft learns from these too.")
    kinds = (part["kind"].cast(pa.string()) for part in dataset.scan(["kind"]))
    if points := sum(pc.sum(pc.equal(kind, "point")).as_py() or 0 for kind in kinds):
        remarks.append(f"{points:,} points count as tags; --method patchml learns where they are.")
    if few := int((labels.positives < FEW_TAGS).sum()):
        remarks.append(f"{few} of {labels.width} classes are known to be present in fewer than {FEW_TAGS} images.")
    return remarks


def _cannot_combine(recipe: Recipe) -> str | None:
    """Why models of a recipe cannot be combined; None if they can."""
    if recipe.head != "cam":
        return f"Models with the {recipe.head} head cannot be combined"
    if any(stage.train != "head" for stage in recipe.stages):
        return "Models whose backbone trains cannot be combined"
    if _inner_stage(recipe) is not None:
        return "Models on a cache of an inner stage cannot be combined"
    return None


def _inner_stage(recipe: Recipe) -> str | None:
    """The stage of the backbone whose output the last stage trains on; None for images and for features at the end."""
    if recipe.final_features is None:
        return None
    manifest = Manifest.read(Path(recipe.final_features))
    return manifest.at if manifest.inner else None


def member_recipe(recipe: Recipe, member: str) -> Recipe:
    """The recipe of a member: its method, and no boost unless training boosts, so that pooled features suffice."""
    parts = {*member.split("+")}
    options = {name: values for name, values in recipe.options.items() if name in parts}
    trains_boosted = recipe.head_options.get("boost_train", True)
    head_options = recipe.head_options if recipe.head != "cam" or trains_boosted else {}
    return recipe.model_copy(update={"method": member, "options": options, "head_options": dict(head_options)})


def combine_runs(
    runs: Sequence[Run], dataset: Dataset, recipe: Recipe, folder: Path, scale: Run | None = None
) -> dict[str, Any]:
    """Combine finished runs and discriminants into one model folder.

    Args:
        runs: one per member that is trained.
        dataset: that they were trained on.
        recipe: of the combined run.
        folder: of the model.
        scale: a further run, whose logits give the combined ones their level and spread.

    Returns:
        The result of the run: how epochs were chosen, and the validation mAP if there is a validation split.
    """
    models = [Classifier.load(run.model_folder) for run in runs]
    boost = float(recipe.head_options.get("boost", 1.0))
    if computed := [name for name in _given_members(recipe) if name in DISCRIMINANTS]:
        source_of = partial(_source, dataset=dataset, recipe=recipe)
        models += fit_discriminants(computed, models[0], dataset, source_of, boost=boost, seed=recipe.seed)
    if recipe.head == "cam" and len(models) == 1:
        model = models[0].convert_head("cam", **recipe.head_options)
    elif len(models) == 1:
        model = models[0]
    else:
        model = combine(models, boost=boost, compete=COMPETE if boost != 1 else 0.0)
    assert model.backbone is not None
    inner = _inner_stage(recipe)
    loaded = LoadedModel(model if inner is None else model.above(inner), dataset, _source(model, dataset, recipe))
    if isinstance(model.head, EnsembleHead):
        if model.head.compete:
            model.head.standardize_cells(*_cell_statistics(model.head, loaded))
        logits = _member_logits(model.head, loaded)
        model.head.standardize(logits, None if scale is None else _scale_logits(scale, boost, loaded, recipe))
    first = runs[0].best
    result: dict[str, Any] = {"stage": first["stage"], "epoch": first["epoch"], "chosen_by": first["chosen_by"]}
    result["member_epochs"] = {run.folder.name: run.best["epoch"] for run in runs}
    if can_validate(dataset, recipe.val_labels):
        gathered = gather_predictions(loaded.predict("val"), Ranks(), len(dataset.classes))
        read_validation_labels(gathered, dataset, recipe.val_labels)
        model.calibration, model.thresholds = choose_decisions(gathered, recipe.val_labels)
        result["val_mAP"] = 100 * float(np.nanmean(average_precision(gathered.scores, gathered.labels)))
    model.save(folder)
    return result


def _source(model: Classifier, dataset: Dataset, recipe: Recipe) -> Source:
    """Cached features, or images."""
    if recipe.final_features is None:
        assert model.backbone is not None
        return PixelSource(dataset, model.backbone.preprocessing.size, EVAL, seed=0, on_bad=_skip)
    cache = FeatureCache.open(recipe.final_features, dataset)
    return FeatureSource(dataset, cache, maps=model.spatial, tokens=model.token, seed=0)


def _skip(error: ImageError) -> None:
    """Leave an image out; the runs of the members have counted and reported it."""


@torch.no_grad()
def _member_logits(head: EnsembleHead, loaded: LoadedModel) -> Tensor:
    """Logits of the members on training images: N×K×L."""
    return torch.cat([head.member_logits(features).cpu() for features in _statistics_features(head, loaded)])


@torch.no_grad()
def _cell_statistics(head: EnsembleHead, loaded: LoadedModel) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the members' scores over the cells of training images: K×L each."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for features in _statistics_features(head, loaded):
        scores = head.cell_scores(features).double().cpu().flatten(0, 2)
        count, total, squares = count + len(scores), total + scores.sum(0), squares + (scores**2).sum(0)
    mean = total / count
    return mean, (squares / count - mean**2).clamp(min=0).sqrt()


def _statistics_features(head: EnsembleHead, loaded: LoadedModel) -> Iterator[Tensor]:
    """Features of training images, in batches, where the head is."""
    device = head.mean.device
    for _, prediction in loaded.predict("train", _statistics_images(loaded.dataset)):
        assert prediction.features is not None
        yield prediction.features.to(device)


def _scale_logits(run: Run, boost: float, loaded: LoadedModel, recipe: Recipe) -> Tensor:
    """Logits of one head on training images, boosted as the members are: N×L."""
    model = Classifier.load(run.model_folder).convert_head("cam", boost=boost, boost_train=False)
    own = LoadedModel(model, loaded.dataset, _source(model, loaded.dataset, recipe))
    passes = own.predict("train", _statistics_images(loaded.dataset))
    return torch.cat([prediction.logits for _, prediction in passes])


def _statistics_images(dataset: Dataset) -> NDArray[np.int64]:
    """Positions of the training images that standardize logits."""
    size = len(dataset.split("train"))
    return np.arange(0, size, max(1, -(-size // STATISTICS_IMAGES)))
