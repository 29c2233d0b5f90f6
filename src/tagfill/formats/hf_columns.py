"""Columns of a Hugging Face dataset: which one holds the photos, which ones hold labels, and what their codes mean.

Arrow and Parquet files that `datasets` wrote say it in the metadata of their schema:

    {"info": {"features": {"image": {"_type": "Image"},
                           "labels": {"_type": "Sequence", "feature": {"_type": "ClassLabel", "names": ["cup", …]}}}}}

Files of other programs have no such metadata. Then a column of bytes, or of `{bytes, path}`, holds photos, and columns
of text or of lists of text hold labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tagfill.errors import DatasetError

METADATA_KEY = b"huggingface"
STATES: dict[str, bool | None] = {"labels": True, "absent": False, "undecided": None}  # columns that Tagfill writes

_LISTS = ("Sequence", "List", "LargeList")  # what versions of `datasets` call a list


@dataclass(frozen=True)
class LabelColumn:
    """A column of labels.

    Attributes:
        name: of the column.
        names: of the classes, if the column holds their numbers; None if it holds names.
    """

    name: str
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Columns:
    """What is read from a table.

    Attributes:
        image: the column of photos.
        labels: by state: True is present, False absent, None undecided.
    """

    image: str
    labels: dict[bool | None, LabelColumn]


def find_columns(
    schema: pa.Schema, features: Mapping[str, Any], where: object, *, image: str | None, label: str | None
) -> Columns:
    """Find the columns of photos and labels.

    Args:
        schema: of the table.
        features: as the metadata describe them; see `features_of`.
        where: the file, for messages.
        image: the column of photos, if the user named it.
        label: the column of present labels, if the user named it.

    Raises:
        DatasetError: a named column is missing or of another type, or several could be meant.
    """
    for name in filter(None, (image, label)):
        if name not in schema.names:
            raise DatasetError(f"{where} has no column '{name}'; it has {', '.join(schema.names)}.")
    photos = [name for name in schema.names if _holds_photos(schema.field(name).type, features.get(name))]
    found = {name: column for name in schema.names if (column := _label_column(name, schema, features)) is not None}
    if image is not None and image not in photos:
        raise DatasetError(f"{where}: column '{image}' does not hold photos; it is of type {schema.field(image).type}.")
    if label is not None and label not in found:
        raise DatasetError(
            f"{where}: column '{label}' does not hold names of classes, or numbers whose names are known; it is of "
            f"type {schema.field(label).type}."
        )
    photo = image or _only(photos, where, "photos", "image_column")
    present = label or ("labels" if "labels" in found else None)
    if present is None:
        coded = [name for name, column in found.items() if column.names is not None]
        present = _only(coded or list(found), where, "labels", "label_column")
    others: dict[bool | None, LabelColumn] = {
        state: found[name] for name, state in STATES.items() if state is not True and name in found
    }
    return Columns(photo, {True: found[present], **others})


def features_of(schema: pa.Schema) -> dict[str, Any]:
    """The description of columns in the metadata of a schema; empty if there is none."""
    try:
        info = json.loads((schema.metadata or {})[METADATA_KEY])["info"]
        features = info["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def schema_with_features(classes: Sequence[str]) -> pa.Schema:
    """The schema of the tables that Tagfill writes: photos, and a list of classes for each state."""
    coded = {"_type": "Sequence", "feature": {"_type": "ClassLabel", "names": list(classes)}}
    features = {"image": {"_type": "Image"}, **dict.fromkeys(STATES, coded)}
    fields = [pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))]
    fields += [pa.field(name, pa.list_(pa.int64())) for name in STATES]
    return pa.schema(fields, metadata={METADATA_KEY: json.dumps({"info": {"features": features}})})


def _holds_photos(kind: pa.DataType, feature: Any) -> bool:
    if isinstance(feature, dict):
        return feature.get("_type") == "Image"
    if pa.types.is_struct(kind):
        return {kind.field(at).name for at in range(kind.num_fields)} == {"bytes", "path"}
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _label_column(name: str, schema: pa.Schema, features: Mapping[str, Any]) -> LabelColumn | None:
    names = _names_of(features.get(name))
    if names is not None:
        return LabelColumn(name, names)
    kind = schema.field(name).type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return LabelColumn(name, None) if is_text else None


def _names_of(feature: Any) -> tuple[str, ...] | None:
    """The names of a column of numbers of classes, or of lists of them."""
    if isinstance(feature, list) and len(feature) == 1:  # how old versions write a list
        feature = feature[0]
    elif isinstance(feature, dict) and feature.get("_type") in _LISTS:
        feature = feature.get("feature")
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None
    names = feature.get("names")
    return tuple(map(str, names)) if isinstance(names, list) else None


def _only(names: list[str], where: object, what: str, option: str) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise DatasetError(f"{where} has no column of {what}; name it with {option}=.")
    listed = ", ".join(names)
    raise DatasetError(f"{where} has several columns that could hold {what}: {listed}; choose with {option}=.")
