"""Model folders: `model.safetensors` holds the weights, `model.json` everything else that a classifier consists of.

In a folder that was written for a model hub, the latter is called `config.json`, as is usual there.

Reading checks all of it, and says in one sentence what is wrong with a folder that was damaged or edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tagfill.errors import TagfillError, first_problem
from tagfill.io import atomic_write, recover_folder, replace_folder, sha256_of_strings, write_json
from tagfill.models.backbone import Preprocessing
from tagfill.probabilities import Calibration, lowest_logits, probabilities

HUB_DESCRIPTION = "config.json"  # instead of model.json, in the layout of model hubs

_MAX_SIDE = 8192  # pixels of an input
_REMEDY = "save the model again or use another copy of its folder"


class ModelDescription(BaseModel):
    """The content of `model.json`.

    Attributes:
        backbone: timm's name, or a name in `BACKBONES`.
        head: a name in `HEADS`.
        head_options: all options of the head.
        classes: names, in the order of the logits.
        classes_identity: hash of the class names.
        preprocessing: of pixels.
        thresholds: per class, the probability from which it is predicted present; None if not chosen.
        calibration: turns logits into probabilities; None for the plain sigmoid, as in models of version 0.1.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    backbone: str
    head: str
    head_options: dict[str, Any]
    classes: tuple[str, ...]
    classes_identity: str
    preprocessing: Preprocessing
    thresholds: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        height, width = self.preprocessing.size
        if not (0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE):
            raise ValueError(f"its input has {height} × {width} pixels, and 1 to {_MAX_SIDE} on each side are possible")
        return self

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if self.classes_identity != sha256_of_strings(self.classes):
            raise ValueError("its classes are not those that the model was saved with (their hash differs)")
        if self.thresholds is not None and len(self.thresholds) != len(self.classes):
            raise ValueError(f"it has {len(self.thresholds)} thresholds for {len(self.classes)} classes")
        if self.calibration is not None and self.calibration.width != len(self.classes):
            raise ValueError(f"its calibration has {self.calibration.width} classes instead of {len(self.classes)}")
        if self.calibration is not None and not self.calibration.savable:
            raise ValueError("its calibration was not fitted, or gives lower probabilities to higher scores")
        return self

    @classmethod
    def create(cls, classes: tuple[str, ...], **fields: Any) -> ModelDescription:
        """Describe a model.

        Args:
            classes: class names, of which the hash is computed.
            **fields: the other fields.

        Raises:
            TagfillError: if thresholds are not one probability per class, or the calibration does not fit.
        """
        try:
            return cls(classes=classes, classes_identity=sha256_of_strings(classes), **fields)
        except ValidationError as error:
            raise TagfillError(f"The model cannot be saved: {first_problem(error)}.") from None


def write_model_folder(folder: Path, description: ModelDescription, state: dict[str, Tensor]) -> None:
    """Write a model folder atomically."""
    new = folder.with_name(f".{folder.name}.new")
    new.mkdir(parents=True, exist_ok=True)
    with atomic_write(new / "model.safetensors", sync=False) as file:
        file.write(save({name: value.contiguous() for name, value in state.items()}))
    write_json(new / "model.json", description.model_dump(), sync=False)
    replace_folder(new, folder)


def set_calibration(
    folder: str | Path, calibration: Calibration | None, *, thresholds: Sequence[float] | None = None
) -> None:
    """Replace the calibration of a saved model, atomically.

    Args:
        folder: a model folder.
        calibration: turns logits into probabilities; None for the plain sigmoid.
        thresholds: of each class, as probabilities of the new calibration. By default the saved ones are converted, so
            that the same labels stay present.

    Example:
        >>> set_calibration("filled/model", estimates.calibration)  # doctest: +SKIP
    """
    folder = Path(folder)
    saved = read_description(folder)
    if thresholds is None and saved.thresholds is not None:
        lowest = lowest_logits(saved.thresholds, saved.calibration)
        thresholds = probabilities(lowest[None], calibration)[0].tolist()
    changed = {"calibration": calibration, "thresholds": None if thresholds is None else tuple(thresholds)}
    fields = {name: getattr(saved, name) for name in ModelDescription.model_fields if name != "classes_identity"}
    write_json(description_path(folder), ModelDescription.create(**{**fields, **changed}).model_dump())


def description_path(folder: Path) -> Path:
    """The path of `model.json`, or of `config.json` in a folder that has only that."""
    path = folder / "model.json"
    return folder / HUB_DESCRIPTION if not path.is_file() and (folder / HUB_DESCRIPTION).is_file() else path


def read_description(folder: Path) -> ModelDescription:
    """Read and check the `model.json` or `config.json` of a folder."""
    recover_folder(folder)
    path = description_path(folder)
    if not path.is_file():
        raise TagfillError(f"{folder} is not a model folder: it has no model.json.")
    try:
        return ModelDescription.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TagfillError(f"{path} is damaged: {first_problem(error)}; {_REMEDY}.") from None


def read_folder_weights(folder: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read the weights of a folder, whose names and shapes must be those of `expected`."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise TagfillError(f"{folder} has a {description_path(folder).name} but no model.safetensors; {_REMEDY}.")
    try:
        state = load_file(path)
    except SafetensorError:
        raise TagfillError(f"{path} is damaged: it is cut short or not a safetensors file; {_REMEDY}.") from None
    for name in sorted(expected.keys() | state.keys()):
        found, wanted = (tuple(tensors[name].shape) if name in tensors else None for tensors in (state, expected))
        if found != wanted:
            raise TagfillError(
                f"{path} does not fit the model that {description_path(folder).name} describes: {name} is "
                f"{_shape(found)} in the file and {_shape(wanted)} in the model; {_REMEDY}."
            )
    return state


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(map(str, shape)) or "a number"
