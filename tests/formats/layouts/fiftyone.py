"""A folder as FiftyOne 1.22 exports it, reduced to what matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def label(name: str | None, *, kind: str = "Classification", number: int = 1, **attributes: Any) -> dict[str, Any]:
    """One label of a field."""
    return {"_id": {"$oid": f"{number:024x}"}, "_cls": kind, "tags": [], "label": name, **attributes}


def classifications(*labels: dict[str, Any]) -> dict[str, Any]:
    """A field of several classifications."""
    return {"_cls": "Classifications", "classifications": list(labels)}


def detections(*labels: dict[str, Any]) -> dict[str, Any]:
    """A field of several boxes."""
    return {"_cls": "Detections", "detections": list(labels)}


def sample(path: str, *tags: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    """A sample of an image of 8×6 pixels."""
    size = {"_cls": "ImageMetadata", "size_bytes": 512, "mime_type": "image/jpeg", "width": 8, "height": 6}
    return {
        "_id": {"$oid": f"{number:024x}"},
        "filepath": path,
        "tags": list(tags),
        "_media_type": "image",
        "_rand": 0.25,
        "metadata": {**size, "num_channels": 3},
        "_dataset_id": {"$oid": "6afd92054ad108249a1417e2"},
        "created_at": {"$date": "2026-11-18T11:54:45.831Z"},
        "last_modified_at": {"$date": "2026-11-18T11:54:45.831Z"},
        **fields,
    }


def write_export(folder: Path, *samples: dict[str, Any], name: str = "shop", **metadata: Any) -> Path:
    """Write the two files."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "name": name,
        "version": "1.22.1",
        "media_type": "image",
        "info": {},
        "classes": {},
        "default_classes": [],
    }
    (folder / "metadata.json").write_text(json.dumps(document | metadata), encoding="utf-8")
    (folder / "samples.json").write_text(json.dumps({"samples": samples}), encoding="utf-8")
    return folder
