"""A recipe: everything that decides the result of a run, in one flat file that is read top to bottom.

Where a run puts its files, how often it saves and what it shows are not part of a recipe, because they do not change
the result. Learning rates are pure functions of the step, so resuming needs no state of a scheduler.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tagfill.errors import TagfillError
from tagfill.images import input_size
from tagfill.training.optimizers import Optimizer

TOP_LR, TOP_HEAD = 1e-4, 10.0  # learning rate above a cached stage, and by how much that of the head is larger
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is installed


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Schedule(_Section):
    """How the learning rate changes within a stage, as a factor on the rate of the optimizer.

        constant   1
        cosine     ½ (1 + cos π u)                              u: share of the stage that is done after the warm-up
        step       factorᵐ                                      m: milestones (epochs) passed
        one-cycle  rises from 1/25 to 1 in the first `rise`, then falls to 1e-4/25, both along half a cosine

    A warm-up increases it linearly from zero over the first epochs.
    """

    name: Literal["constant", "cosine", "step", "one-cycle"] = "constant"
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    milestones: tuple[int, ...] = ()  # of `step`: epochs after which the rate falls
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1  # of `step`: by which the rate falls
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of `one-cycle`: share of the stage

    def at(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """The factor for a step, counted from 0 over the whole stage.

        >>> [round(Schedule(name="cosine").at(step, 5, 2), 2) for step in (0, 5, 9)]
        [1.0, 0.5, 0.02]
        """
        warmup = self.warmup_epochs * steps_per_epoch
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(epochs * steps_per_epoch - warmup, 1)
        if self.name == "cosine":
            return _half_cosine(1.0, 0.0, done)
        if self.name == "step":
            epoch = step // steps_per_epoch
            return float(self.factor ** sum(epoch >= milestone for milestone in self.milestones))
        if self.name == "one-cycle":
            low, end = 1 / 25, 1e-4 / 25
            if done < self.rise:
                return _half_cosine(low, 1.0, done / self.rise)
            return _half_cosine(1.0, end, (done - self.rise) / (1 - self.rise))
        return 1.0


def _half_cosine(start: float, stop: float, share: float) -> float:
    return stop + (start - stop) * (1 + math.cos(math.pi * share)) / 2


class Start(_Section):
    """What a stage starts from.

    `best` is the best epoch of the previous stage and `last` its end. A previous backbone comes from the best epoch if
    the head does.
    """

    backbone: Literal["pretrained", "previous"] = "pretrained"
    head: Literal["new", "best", "last"] = "new"
    memory: Literal["new", "best", "last"] = "new"


class Stopping(_Section):
    """When a stage ends before its last epoch."""

    patience: int | None = Field(None, ge=1)  # epochs without a new best one
    drop: float | None = Field(None, gt=0)  # points of validation mAP below the best


class Stage(_Section):
    """Some epochs with one optimizer over one set of weights."""

    name: str = "main"
    input: Literal["cache", "images"] = "images"
    train: Literal["head", "top", "all"] = "head"  # top: what lies above a stage of the backbone, and the head
    freeze: tuple[Literal["stem", "batch-norm"], ...] = ()  # parts of a backbone that trains which do not train
    epochs: int = Field(10, ge=1)
    method: str | None = None  # replaces the method of the run
    options: dict[str, dict[str, Any]] | None = None  # replaces the options of the run
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    clip_norm: float | None = Field(None, gt=0)
    accumulate: int = Field(1, ge=1)  # micro-batches per batch; losses that rank images do so within each
    average: float | None = Field(None, gt=0, lt=1)  # decay of the weight average, which is then validated and saved
    labeled_share: float | None = Field(None, gt=0, le=1)  # of each batch, from images with any label
    epoch_over: Literal["all", "labeled"] = "all"  # images that an epoch visits once; labeled if their share is 1
    stopping: Stopping = Stopping()
    crop_scale: tuple[float, float] | None = (0.25, 1.0)
    short_side: tuple[int, int] | None = None  # resize to a random short side and crop the image size; no crop_scale
    flip: bool = True  # mirror half of the views
    vertical_flip: bool = False  # turn half of the views upside down
    strong: bool = False  # RandAugment and Cutout after crop and flips
    randaugment: Literal["torchvision", "pytorch-randaugment"] = "torchvision"  # of strong views: whose operations
    start: Start = Start()

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, content: Any) -> Any:
        """Accept the name of a setting in version 0.1."""
        if isinstance(content, dict) and "labelled_share" in content:
            content = {**content, "labeled_share": content["labelled_share"]}
            del content["labelled_share"]
        return content


class MemoryOptions(_Section):
    """Where per-image state is kept, and how much of it is allowed."""

    storage: Literal["ram", "disk"] = "ram"
    budget_gb: float = Field(8.0, gt=0)


class Recipe(_Section):
    """All settings of a run."""

    dataset: str
    method: str
    options: dict[str, dict[str, Any]] = {}
    expected_positives: float | None = Field(None, gt=0)
    backbone: str = "tf_efficientnet_lite0"
    pretrained: bool | str = "bundled"
    head: str = "cam"
    head_options: dict[str, Any] = {}
    image_size: int | tuple[int, int] | None = None  # side of a square, or height and width, also as 224x320
    features: str | None = None
    at: str | None = None  # the stage of the backbone above which `train: top` trains; None takes that of the cache
    batch_size: int = Field(16, ge=1)  # images per step, over all processes and micro-batches
    seed: int = Field(0, ge=0)
    threads: int = Field(1, ge=1)
    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of the network; losses are always in float32
    compile: Literal["inductor", "aot_eager"] | None = None  # backend of torch.compile, for backbone and head
    select: Literal["mAP", "last"] = "mAP"  # the best epoch: the one with the best validation mAP, or the last
    val_labels: Literal["clean", "observed", "tags"] = "clean"  # observed, tags: the others are read as absent
    max_bad_images: float = Field(0.01, ge=0, le=1)  # share of images that may fail to decode
    memory: MemoryOptions = MemoryOptions()
    record: tuple[Literal["decisions", "scores", "heatmaps"], ...] = ()  # for analyses; does not change the result
    stages: list[Stage] = [Stage()]

    @field_validator("image_size", mode="before")
    @classmethod
    def _check_image_size(cls, size: Any) -> Any:
        try:
            return None if size is None else input_size(size)
        except TagfillError as error:
            raise ValueError(str(error).removesuffix(".")) from None

    @field_validator("compile", mode="before")
    @classmethod
    def _default_compiler(cls, backend: Any) -> Any:
        return ("inductor" if backend else None) if isinstance(backend, bool) else backend

    @field_validator("record", mode="before")
    @classmethod
    def _split_record(cls, record: Any) -> Any:
        return [word.strip() for word in record.split(",")] if isinstance(record, str) else record

    @field_validator("stages")
    @classmethod
    def _check_stages(cls, stages: list[Stage]) -> list[Stage]:
        if not stages:
            raise ValueError("a run needs at least one stage")
        if len({stage.name for stage in stages}) < len(stages):
            raise ValueError("each stage needs a name of its own")
        for number, stage in enumerate(stages):
            if stage.input == "cache" and stage.train == "all":
                raise ValueError(
                    f"stage '{stage.name}' cannot train a whole backbone on cached features; set train: top, or "
                    "input: images"
                )
            if stage.train == "top" and "stem" in stage.freeze:
                raise ValueError(f"stage '{stage.name}' trains only what lies above the stem; leave out freeze: stem")
            if stage.input == "cache" and (stage.strong or stage.vertical_flip):
                raise ValueError(
                    f"stage '{stage.name}' cannot augment cached features; cache such views, or set input: images"
                )
            if stage.short_side is not None and not 0 < stage.short_side[0] <= stage.short_side[1]:
                raise ValueError(
                    f"short_side of stage '{stage.name}' is a range of numbers of pixels, such as [256, 480]"
                )
            if stage.short_side is not None and stage.input == "cache":
                raise ValueError(
                    f"stage '{stage.name}' cannot crop cached features; cache such views, or set input: images"
                )
            if stage.epoch_over == "labeled" and stage.labeled_share is None:
                raise ValueError(f"stage '{stage.name}' has epochs over labeled images; set labeled_share too")
            if stage.freeze and stage.train == "head":
                raise ValueError(f"stage '{stage.name}' trains no part of the backbone, so there is nothing to freeze")
            if number == 0 and stage.start != Start():
                raise ValueError(f"stage '{stage.name}' is the first and has nothing to start from")
        return stages

    def method_of(self, stage: Stage) -> tuple[str, dict[str, dict[str, Any]]]:
        """Name and options of the method of a stage: its own, or those of the run for the parts of its method.

        >>> recipe = Recipe(dataset="photos", method="en+scl", options={"en": {"expected": 2}, "scl": {"weight": 0.1}})
        >>> recipe.method_of(Stage(method="en"))
        ('en', {'en': {'expected': 2}})
        >>> recipe.method_of(Stage(method="an", options={}))
        ('an', {})
        """
        method = stage.method or self.method
        if stage.options is not None:
            return method, stage.options
        left_out = set(self.method.split("+")) - set(method.split("+"))
        return method, {name: options for name, options in self.options.items() if name not in left_out}

    def epochs_before(self, stage: int) -> int:
        """Epochs of all stages before the one at a position in the list."""
        return sum(earlier.epochs for earlier in self.stages[:stage])

    @property
    def final_features(self) -> str | None:
        """The feature cache that the last stage trains on; None if it trains on images."""
        return self.features if self.stages[-1].input == "cache" else None

    def hash(self) -> str:
        """A hash of everything that decides the result, except the data, which have identities of their own."""
        content = self.model_dump(mode="json", exclude={"dataset", "features", "record"})
        for name in ("at", "compile"):  # runs from before these settings keep their hashes
            if content[name] is None:
                del content[name]
        for stage in content["stages"]:
            stage["labelled_share"] = stage.pop("labeled_share")  # the name in 0.1, so that its runs keep their hashes
            for name in ("epoch_over", "short_side", "randaugment"):  # settings that runs of 0.1 do not have
                if stage[name] == Stage.model_fields[name].default:
                    del stage[name]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """The recipe as YAML, with every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def build_recipe(
    settings: Mapping[str, Any],
    where: str = "the settings",
    *,
    features: str | os.PathLike[str] | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    train: str | None = None,
    overrides: Iterable[tuple[str, Any]] = (),
) -> Recipe:
    """Build a recipe from the settings of a user.

    Without `stages` there is one stage, on cached features if there are any and on images otherwise.

    Args:
        settings: fields of a recipe.
        where: the settings come from, for errors.
        features: a feature cache or its folder.
        epochs: of every stage.
        lr: learning rate of every stage.
        train: what every stage trains; see `override`.
        overrides: further settings by their paths, which have priority.

    >>> build_recipe({"dataset": "photos", "method": "an"}, overrides=[("optimizer.lr", 0.1)]).stages[0].optimizer.lr
    0.1
    """
    content = copy.deepcopy(dict(settings))
    if features is not None:
        content["features"] = str(Path(features).absolute())
    stages = content.setdefault("stages", [{"input": "cache" if content.get("features") else "images"}])
    if epochs is not None:
        for stage in stages:
            stage["epochs"] = epochs
    if train is not None:
        override(content, "train", train)
    if lr is not None:
        for stage in stages:
            stage["optimizer"] = {**stage.get("optimizer", {}), "lr": lr}
    return make_recipe(with_overrides(content, overrides), where)


def make_recipe(content: dict[str, Any], where: str = "the recipe") -> Recipe:
    """Validate the plain values of a recipe.

    Raises:
        TagfillError: one sentence about the first value that is wrong.
    """
    try:
        return Recipe(**content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise _unknown_setting(where, place) from None
        raise TagfillError(
            f"In {where}, {place or 'one value'}: {first['msg'].removeprefix('Value error, ')}."
        ) from None


def _unknown_setting(where: str, place: str) -> TagfillError:
    """The error for a setting that does not exist, with the nearest one.

    >>> str(_unknown_setting("the settings", "learning_rate"))
    "In the settings, there is no setting 'learning_rate'; did you mean 'optimizer.lr'?"
    """
    path = re.sub(r"^stages\.\d+\.", "", place)
    known = {**_setting_paths(Recipe), **_setting_paths(Stage)}
    by_name = {name: known_path for known_path in known for name in (known_path, known_path.split(".")[-1])}
    by_name |= dict.fromkeys(("learning_rate", "optimizer.learning_rate"), "optimizer.lr")
    near = difflib.get_close_matches(path, by_name, n=1) or difflib.get_close_matches(path.split(".")[-1], by_name, n=1)
    hint = f"; did you mean '{by_name[near[0]]}'?" if near else f"; known are {', '.join(sorted(known))}."
    return TagfillError(f"In {where}, there is no setting '{path}'{hint}")


def _setting_paths(model: type[BaseModel], prefix: str = "") -> dict[str, None]:
    """Paths of all settings of a model, as `--set` takes them."""
    paths: dict[str, None] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            paths |= _setting_paths(kind, f"{prefix}{name}.")
        elif name not in ("stages", "dataset"):
            paths[f"{prefix}{name}"] = None
    return paths


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a YAML file."""
    return make_recipe(read_content(path), str(path))


def read_content(path: Path) -> dict[str, Any]:
    """Read the plain values of a YAML file."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except FileNotFoundError:
        raise TagfillError(f"There is no recipe {path}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TagfillError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise TagfillError(f"{path} holds no settings; a recipe is a list of 'name: value' lines.")
    return content


def with_overrides(content: Mapping[str, Any], overrides: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A copy of a recipe's plain content with some values set by their paths; see `override`."""
    changed = copy.deepcopy(dict(content))
    for path, value in overrides:
        override(changed, path, copy.deepcopy(value))
    return changed


def override(content: dict[str, Any], path: str, value: Any) -> None:
    """Set one value of a recipe's plain content by its path; a setting of stages is set in all of them.

    `train` set to `top` also freezes batch norms, and sets the learning rate to 10⁻⁴ and that of the head to ten times
    as much, except where a stage says otherwise.

    Args:
        content: the settings, changed in place.
        path: names joined by dots, as in `memory.storage` or `optimizer.lr`.
        value: to set.

    >>> content = {"method": "an", "stages": [{"name": "head"}, {"name": "everything"}]}
    >>> override(content, "optimizer.lr", 1e-4)
    >>> [stage["optimizer"] for stage in content["stages"]]
    [{'lr': 0.0001}, {'lr': 0.0001}]
    """
    *parents, last = path.split(".")
    first = (*parents, last)[0]
    of_stages = first not in Recipe.model_fields and first in Stage.model_fields
    targets: list[dict[str, Any]] = content.setdefault("stages", [{}]) if of_stages else [content]
    for target in targets:
        for key in parents:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise TagfillError(f"The setting '{path}' does not exist: '{key}' holds a single value.")
        target[last] = value
        if path == "train" and value == "top":
            target.setdefault("freeze", ["batch-norm"])
            target["optimizer"] = {"lr": TOP_LR, "head_multiplier": TOP_HEAD, **target.get("optimizer", {})}
