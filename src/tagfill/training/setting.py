"""What all stages of a run share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagfill.annotations import Dataset
from tagfill.errors import ImageError
from tagfill.training.devices import Devices
from tagfill.training.folder import Run
from tagfill.training.recipe import Recipe


@dataclass
class Setting:
    """What all stages of a run share."""

    run: Run
    recipe: Recipe
    dataset: Dataset
    devices: Devices
    workers: int
    expected_positives: float | None
    on_bad_image: Callable[[ImageError], None]
