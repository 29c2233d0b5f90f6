"""A Label Studio export as the server writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def result(kind: str, value: dict[str, Any], *, control: str = "tag", identity: str = "Dx_aB91ISN") -> dict[str, Any]:
    """One result of an annotation of a 200×100 image."""
    return {
        "original_width": 200,
        "original_height": 100,
        "image_rotation": 0,
        "value": value,
        "id": identity,
        "from_name": control,
        "to_name": "img",
        "type": kind,
        "origin": "manual",
    }


def annotation(*results: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What one person did in one task."""
    return {
        "id": 1001,
        "completed_by": 10,
        "result": list(results),
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2021-03-09T22:16:08.728353Z",
        "updated_at": changes.get("created_at", "2021-03-09T22:16:08.728378Z"),
        "lead_time": 4.5,
        "result_count": len(results),
        "task": 1,
        **changes,
    }


def task(image: str, *annotations: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """One image with its annotations."""
    return {
        "id": number,
        "annotations": list(annotations),
        "drafts": [],
        "predictions": [],
        "data": {"image": image},
        "meta": {},
        "created_at": "2021-03-09T21:52:49.513742Z",
        "project": 83,
    }


def write_export(path: Path, *tasks: dict[str, Any]) -> Path:
    """The file."""
    path.write_text(json.dumps(tasks, ensure_ascii=False), encoding="utf-8")
    return path
