"""What a file of predictions depends on; kept beside it, so that work which was interrupted goes on with the same.

While the work is under way the plan lies in the folder of parts, `OUT.parts/plan.json`. Afterwards it stays beside the
results as `OUT.json`, with the counts and all that a reader of them may ask: classes, thresholds, hashes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.files import write_json

_PART_IMAGES, _PART_ROWS = 4096, 2**21  # a part has no more of either
_WORDS = {
    "model": "another model",
    "images": "another list of images",
    "count": "another list of images",
    "classes": "other classes",
    "thresholds": "other thresholds",
    "top_k": "another --top-k",
    "heatmaps": "other --heatmaps or --classes",
    "batch_size": "another --batch-size",
}


@dataclass(frozen=True)
class Plan:
    """Everything that decides what the results will be.

    Attributes:
        model: its identity.
        images: hash of the list of images.
        count: how many those are.
        classes: names.
        thresholds: of each class.
        top_k: how many labels of an image are kept; None keeps all.
        heatmaps: folder and classes of the pictures of class maps, if they are drawn.
        batch_size: last bits of scores depend on it.
    """

    model: str
    images: str
    count: int
    classes: tuple[str, ...]
    thresholds: tuple[float, ...]
    top_k: int | None
    heatmaps: dict[str, Any] | None
    batch_size: int

    @property
    def labels_per_image(self) -> int:
        """How many labels of an image are kept."""
        return min(self.top_k or len(self.classes), len(self.classes))

    @property
    def part_size(self) -> int:
        """Images of a part."""
        return max(1, min(_PART_IMAGES, _PART_ROWS // self.labels_per_image))

    @property
    def parts(self) -> list[range]:
        """The images of each part."""
        return [range(at, min(at + self.part_size, self.count)) for at in range(0, self.count, self.part_size)]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        values = asdict(self)
        return {**values, "classes": list(self.classes), "thresholds": list(self.thresholds)}

    def check(self, other: dict[str, Any], out: Path) -> None:
        """Refuse to go on with work that was begun with other settings."""
        for name, value in self.to_json().items():
            if other.get(name) != value:
                raise TagfillError(
                    f"The predictions of {out} were made with {_WORDS[name]}; choose another --out, or give --force to "
                    "make them anew."
                )


def read(path: Path) -> dict[str, Any] | None:
    """What a plan on disk says; None where there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise TagfillError(f"{path} is damaged: it is not valid JSON; give --force to predict anew.") from None
    return content


def write(path: Path, plan: Plan, **more: Any) -> None:
    """Keep a plan, with counts once they are known."""
    write_json(path, {**more, **plan.to_json()})
