"""A model folder: `model.safetensors` with the weights, `model.json` with everything else that a classifier is made of.

Reading checks all of it, and says in one sentence what is wrong with a folder that was damaged or edited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tagfill.errors import TagfillError
from tagfill.io import atomic_write, recover_folder, replace_folder, sha256_of_strings, write_json
from tagfill.models.backbone import Preprocessing

_AFRESH = "save the model again or take another copy of its folder"


@dataclass(frozen=True)
class Description:
    """What `model.json` says.

    Attributes:
        backbone: timm's name.
        head: a name from `HEADS`.
        head_options: of the head, all of them.
        classes: names, in the order of the logits.
        preprocessing: of pixels.
        thresholds: of each class, the probability from which it is said to be present.
    """

    backbone: str
    head: str
    head_options: dict[str, Any]
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    thresholds: tuple[float, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the hash of the classes."""
        return {
            "backbone": self.backbone,
            "head": self.head,
            "head_options": self.head_options,
            "classes": list(self.classes),
            "classes_identity": sha256_of_strings(self.classes),
            "preprocessing": self.preprocessing.to_json(),
            "thresholds": None if self.thresholds is None else list(self.thresholds),
        }

    @classmethod
    def from_json(cls, content: Any, where: Path) -> Description:
        """Back from `to_json`, checked."""
        if not isinstance(content, dict):
            raise TagfillError(f"{where} is damaged: it holds no settings; {_AFRESH}.")
        _check_types(content, where)
        classes = tuple(content["classes"])
        if content["classes_identity"] != sha256_of_strings(classes):
            raise TagfillError(
                f"The classes in {where} are not those that the model was saved with: their hash differs; {_AFRESH}."
            )
        preprocessing = content["preprocessing"]
        if not _is_preprocessing(preprocessing):
            raise TagfillError(f"{where} is damaged: its preprocessing is not size, mean and std; {_AFRESH}.")
        thresholds = None if content["thresholds"] is None else tuple(content["thresholds"])
        check_thresholds(thresholds, len(classes), str(where))
        return cls(
            content["backbone"],
            content["head"],
            content["head_options"],
            classes,
            Preprocessing.from_json(preprocessing),
            thresholds,
        )


def check_thresholds(thresholds: tuple[float, ...] | None, classes: int, where: str) -> None:
    """Refuse thresholds that are not one probability a class."""
    if thresholds is None:
        return
    if len(thresholds) != classes:
        raise TagfillError(f"{where} has {len(thresholds)} thresholds for {classes} classes; give one for each class.")
    if not all(isinstance(value, (int, float)) and 0 <= value <= 1 for value in thresholds):
        raise TagfillError(f"{where} has thresholds that are not probabilities; give each between 0 and 1.")


def write(folder: Path, description: Description, state: dict[str, Tensor]) -> None:
    """Write a model folder, whole or not at all."""
    new = folder.with_name(f".{folder.name}.new")
    new.mkdir(parents=True, exist_ok=True)
    with atomic_write(new / "model.safetensors", sync=False) as file:
        file.write(save({name: value.contiguous() for name, value in state.items()}))
    write_json(new / "model.json", description.to_json(), sync=False)
    replace_folder(new, folder)


def read_description(folder: Path) -> Description:
    """What the `model.json` of a folder says."""
    recover_folder(folder)
    path = folder / "model.json"
    if not path.is_file():
        raise TagfillError(f"{folder} is not a model folder: it has no model.json.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise TagfillError(f"{path} is damaged: it is not valid JSON; {_AFRESH}.") from None
    return Description.from_json(content, path)


def read_weights(folder: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a folder, under the names and with the shapes of `expected` and no others."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise TagfillError(f"{folder} has a model.json but no model.safetensors; {_AFRESH}.")
    try:
        state = load_file(path)
    except SafetensorError:
        raise TagfillError(f"{path} is damaged: it is cut short or not a safetensors file; {_AFRESH}.") from None
    for name in sorted(expected.keys() | state.keys()):
        found, wanted = (tuple(tensors[name].shape) if name in tensors else None for tensors in (state, expected))
        if found != wanted:
            raise TagfillError(
                f"{path} is not of the model that model.json describes: {name} is {_shape(found)} there "
                f"and {_shape(wanted)} in the model; {_AFRESH}."
            )
    return state


def _shape(shape: tuple[int, ...] | None) -> str:
    return "lacking" if shape is None else "×".join(map(str, shape)) or "a number"


def _is_preprocessing(content: dict[str, Any]) -> bool:
    lengths = {"size": 2, "mean": 3, "std": 3}
    lists = content.keys() == lengths.keys() and all(isinstance(part, list) for part in content.values())
    return lists and all(
        len(content[name]) == length
        and all(isinstance(value, (int, float)) for value in content[name])
        and (name == "mean" or min(content[name]) > 0)
        for name, length in lengths.items()
    )


def _check_types(content: dict[str, Any], where: Path) -> None:
    kinds: dict[str, tuple[type, ...]] = {
        "backbone": (str,),
        "head": (str,),
        "head_options": (dict,),
        "classes": (list,),
        "classes_identity": (str,),
        "preprocessing": (dict,),
        "thresholds": (list, type(None)),
    }
    for key, kind in kinds.items():
        if key not in content:
            raise TagfillError(f"{where} lacks '{key}'; {_AFRESH}.")
        if not isinstance(content[key], kind):
            raise TagfillError(f"{where} is damaged: '{key}' is {content[key]!r}; {_AFRESH}.")
    if not all(isinstance(name, str) for name in content["classes"]):
        raise TagfillError(f"{where} is damaged: the classes are not all names; {_AFRESH}.")
