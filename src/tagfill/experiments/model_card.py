"""A folder for a model hub: weights, their description, and a model card that says what the model can and cannot do.

    README.md            the card, beginning with the fields that the hub reads
    config.json          classes, backbone, head, preprocessing, thresholds, calibration
    model.safetensors    the weights

Every number of the card is computed when it is written: counts from the dataset, scores from photos of a split that was
not trained on. `tagfill predict` and `tagfill serve` take the folder like any other model folder.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.io import atomic_write, write_json
from tagfill.labels import POSITIVE
from tagfill.models.model_folder import HUB_DESCRIPTION, ModelDescription, read_description
from tagfill.progress import SILENT, Progress
from tagfill.training import Evaluation, Run, evaluate

_FEW = 20  # positives of a class, below which the card warns
_SPLITS = ("test", "val")  # whose scores are reported, the first one that has labels
_LISTED_FEW = 10


def write_model_card(
    run: str | Path,
    target: str | Path,
    *,
    dataset: Dataset | None = None,
    split: str | None = None,
    features: str | None = None,
    license_: str | None = None,
    workers: int = 0,
    progress: Progress = SILENT,
) -> Path:
    """Write a model and its card into a folder that can be uploaded to a hub.

    Args:
        run: a run folder, or a model folder.
        target: the folder to write; it must be empty or not exist.
        dataset: for scores; by default that of the run, if it is still there. Counts are always those of the run's.
        split: to score; by default `test`, or else `val`, if it has labels.
        features: a cache of the dataset's features to score with, instead of its photos.
        license_: of the model, as the hub spells it, such as `apache-2.0`.
        workers: threads that decode photos.
        progress: told about each photo that is scored.

    Returns:
        The path of the card.

    Raises:
        TagfillError: the folder is not empty, or the dataset is not that of the model.

    Example:
        >>> write_model_card("runs/photos", "photo-tagger", license_="apache-2.0")  # doctest: +SKIP
    """
    folder = Path(target)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TagfillError(f"{folder} already holds something; give an empty or new folder for the model card.")
    trained = Run.open(run) if (Path(run) / "run.json").is_file() else None
    model = Path(run) if trained is None else trained.model_folder
    description = read_description(model)
    trained_on = None if trained is None else _dataset_of(trained)
    scored_on = trained_on if dataset is None else dataset
    for one in (trained_on, scored_on):
        if one is not None and one.classes != description.classes:
            raise TagfillError(
                f"{one.name} does not have the classes of the model; give the dataset it was trained on."
            )
    scored = None
    if scored_on is not None and (chosen := split or _labeled_split(scored_on)) is not None:
        scored = evaluate(run, scored_on, split=chosen, features=features, workers=workers, progress=progress)
    name = None if scored_on is None else scored_on.name
    text = _card(
        folder.name, description, dataset if trained_on is None else trained_on, name, scored, trained, license_
    )
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model / "model.safetensors", folder / "model.safetensors")
    write_json(folder / HUB_DESCRIPTION, {"library_name": "tagfill", **description.model_dump(mode="json")})
    with atomic_write(folder / "README.md") as file:
        file.write(text.encode())
    return folder / "README.md"


def _dataset_of(run: Run) -> Dataset | None:
    folder = Path(run.recipe.dataset)
    return Dataset.open(folder) if (folder / "dataset.yaml").is_file() else None


def _labeled_split(dataset: Dataset) -> str | None:
    return next((name for name in _SPLITS if name in dataset.splits and len(dataset.labels(name).values)), None)


def _card(
    name: str,
    description: ModelDescription,
    dataset: Dataset | None,
    scored_on: str | None,
    scored: Evaluation | None,
    run: Run | None,
    license_: str | None,
) -> str:
    """The text of the card; `dataset` was trained on, and `scored_on` is the name of the one that was scored."""
    sections = [
        _front_matter(name, scored_on, scored, license_),
        f"# {name}\n\nTags photos with {len(description.classes):,} classes, of which any number may be present. "
        "Trained with Tagfill.",
        _use(name),
        _scores(scored),
        _classes(description, dataset, scored),
        _training_data(dataset),
        _calibration(description, scored),
        _training(description, run),
        _limits(description, dataset, scored),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(name: str, dataset: str | None, scored: Evaluation | None, license_: str | None) -> str:
    """The fields that the hub reads, in YAML; JSON strings are YAML strings."""
    lines = ["---", "library_name: tagfill", "pipeline_tag: image-classification"]
    if license_:
        lines.append(f"license: {json.dumps(license_)}")
    lines += ["tags:", "- multi-label-image-classification", "- partial-labels"]
    if scored is not None and dataset is not None and not math.isnan(scored.mean):
        lines += [
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            "  - task:",
            "      type: image-classification",
            "      name: Multi-label image classification",
            "    dataset:",
            f"      name: {json.dumps(dataset)}",
            f"      type: {json.dumps(dataset)}",
            f"      split: {json.dumps(scored.split)}",
            "    metrics:",
            "    - type: mAP",
            "      name: mean average precision",
            f"      value: {100 * scored.mean:.2f}",
        ]
    return "\n".join([*lines, "---"])


def _use(name: str) -> str:
    return (
        "## Use\n\n```sh\npip install tagfill\n"
        f"tagfill predict {name} photos --out predictions.csv\n```\n\n"
        f'```python\nimport tagfill\n\ntable = tagfill.predict("{name}", "photos")\n```\n\n'
        "The folder is the downloaded one, with `config.json` and `model.safetensors`."
    )


def _scores(scored: Evaluation | None) -> str:
    if scored is None:
        return (
            "## How well it works\n\n"
            "Not measured: there was no labeled test or validation split when this card was written."
        )
    entries = scored.images * len(scored.classes)
    known = int(scored.known.sum())
    rows = [
        ("mean average precision", _percent(scored.mean)),
        ("mean F1 at the thresholds", _percent(scored.counts.mean_f1)),
        ("overall F1 at the thresholds", _percent(scored.counts.overall_f1)),
        ("expected calibration error", _percent(scored.calibration_error)),
        ("photos", f"{scored.images:,}"),
        ("labels known", f"{known:,} of {entries:,} ({_percent(known / entries if entries else math.nan)} %)"),
    ]
    text = f"## How well it works\n\nOn the split `{scored.split}`, in percent:\n\n" + _table(["score", "value"], rows)
    if known < entries:
        text += (
            "\n\nLabels that are unknown in this split are left out. If they were not left unknown at random, the "
            "scores on all labels differ from these."
        )
    return text


def _classes(description: ModelDescription, dataset: Dataset | None, scored: Evaluation | None) -> str:
    positives = None if dataset is None else _positives(dataset)
    header = ["class", "threshold"]
    columns: list[Iterable[Any]] = [description.classes]
    thresholds = description.thresholds or [None] * len(description.classes)
    columns.append("–" if value is None else f"{value:.3f}" for value in thresholds)
    if scored is not None:
        header += ["average precision", "precision", "recall"]
        columns += [
            map(_percent, scored.average_precision),
            map(_percent, scored.counts.precision),
            map(_percent, scored.counts.recall),
        ]
    if positives is not None:
        header.append("photos known to show it in training")
        columns.append(f"{count:,}" for count in positives)
    return "## Classes\n\n" + _table(header, zip(*columns, strict=True))


def _training_data(dataset: Dataset | None) -> str:
    if dataset is None:
        return "## Training data\n\nThe dataset was not at hand when this card was written."
    rows = []
    for split in dataset.splits:
        labels = dataset.labels(split)
        entries = len(labels) * labels.width
        positives = int(np.count_nonzero(labels.values == POSITIVE))
        negatives = int(np.count_nonzero(labels.values == 0))
        unknown = _percent((entries - positives - negatives) / entries if entries else math.nan)
        rows.append((split, f"{len(labels):,}", f"{positives:,}", f"{negatives:,}", f"{unknown} %"))
    header = ["split", "photos", "labels present", "labels absent", "labels unknown"]
    return f"## Training data\n\n`{dataset.name}`, {len(dataset.classes):,} classes:\n\n" + _table(header, rows)


def _calibration(description: ModelDescription, scored: Evaluation | None) -> str:
    source = None if description.calibration is None else description.calibration.source
    sentence = {
        "measured": "Probabilities were calibrated on photos with complete labels.",
        "estimated": "Probabilities were calibrated from incomplete tags: how many tags are missing was estimated.",
    }.get(source or "", "Probabilities are the plain sigmoid of the scores; they are not calibrated.")
    if scored is not None and scored.calibration_from is not None:
        sentence += (
            f" On `{scored.split}` their expected error is {_percent(scored.calibration_error)} %, and it was "
            f"{_percent(scored.raw_calibration_error)} % before."
        )
    return f"## Calibration\n\n{sentence}"


def _training(description: ModelDescription, run: Run | None) -> str:
    height, width = description.preprocessing.size
    rows = [
        ("backbone", f"`{description.backbone}`"),
        ("head", f"`{description.head}`"),
        ("input", f"{height}×{width}"),
    ]
    if run is not None:
        recipe, facts = run.recipe, run.description()
        rows += [
            ("method", f"`{recipe.method}`"),
            ("weights at the start", f"`{recipe.pretrained}`"),
            ("epochs", " + ".join(str(stage.epochs) for stage in recipe.stages)),
            ("batch size", str(recipe.batch_size)),
            ("seed", str(recipe.seed)),
            ("recipe", f"`{facts['recipe_hash'][:12]}`"),
            ("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())),
        ]
    return "## How it was trained\n\n" + _table(["setting", "value"], rows)


def _limits(description: ModelDescription, dataset: Dataset | None, scored: Evaluation | None) -> str:
    points = [
        "It knows no other classes than those above, and it has not been tried on photos from another source.",
        "The weights at the start come from elsewhere; their license may restrict how this model can be used.",
    ]
    if dataset is not None and "train" in dataset.splits:
        labels = dataset.labels("train")
        if len(labels.values) < len(labels) * labels.width:
            points.append(
                "Some labels of the training photos are unknown. A class that was often left out where it was present "
                "gets probabilities that are too low, unless they were calibrated."
            )
        counts = _positives(dataset)
        few = [label for label, count in zip(dataset.classes, counts, strict=True) if count < _FEW]
        if few:
            listed = ", ".join(map(_cell, few[:_LISTED_FEW])) + (
                f" and {len(few) - _LISTED_FEW:,} more" if len(few) > _LISTED_FEW else ""
            )
            points.append(f"Classes with fewer than {_FEW} photos known to show them: {listed}. Do not rely on these.")
    if scored is None:
        points.append("Its quality has not been measured; check it on labeled photos before you use it.")
    elif scored.split == "val":
        points.append(
            "The scores are those of the validation split, which also chose the best epoch: they are optimistic."
        )
    if description.thresholds is None:
        points.append("No thresholds were chosen: a class counts as present from a probability of 0.5 on.")
    return "## Limits\n\n" + "\n".join(f"- {point}" for point in points)


def _positives(dataset: Dataset) -> list[int]:
    """Of each class, the number of training photos known to show it."""
    if "train" not in dataset.splits:
        return [0] * len(dataset.classes)
    labels = dataset.labels("train")
    counts: list[int] = np.bincount(labels.classes[labels.values == POSITIVE], minlength=labels.width).tolist()
    return counts


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(str(cell)) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    r"""Text that cannot end a cell of a table.

    >>> print(_cell("cup|mug"))
    cup\|mug
    """
    return " ".join(text.split()).replace("|", "\\|")


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
