"""What all stages of a run share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tagfill.annotations import Dataset
from tagfill.errors import ImageError
from tagfill.training.devices import Devices
from tagfill.training.folder import Run
from tagfill.training.recipe import Recipe
from tagfill.training.validating import can_validate


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

    @cached_property
    def validated(self) -> bool:
        """Whether epochs have a validation mAP."""
        return can_validate(self.dataset, self.recipe.val_labels)

    @property
    def chosen_by_map(self) -> bool:
        """Whether the best epoch is that of the best validation mAP; else it is the last one."""
        return self.validated and self.recipe.select == "mAP"
