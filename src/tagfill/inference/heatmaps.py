"""Pictures of class maps over their images: `FOLDER/<image>/<class>.jpg`.

The view of evaluation is the whole image, so a map belongs to all of it, and is laid over the image as it was taken and
not over what the network saw of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from tagfill.files import replacing
from tagfill.images import fitted, overlay
from tagfill.inference.listing import ImageList

_SIDE = 640  # of a picture, the longer one


@dataclass(frozen=True)
class Heatmaps:
    """Where pictures of class maps go, and which.

    Attributes:
        folder: of all pictures.
        classes: positions of classes; None draws those that are present.
    """

    folder: Path
    classes: tuple[int, ...] | None = None

    def draw(
        self,
        images: ImageList,
        number: int,
        names: tuple[str, ...],
        maps: NDArray[np.floating],
        present: NDArray[np.bool_],
    ) -> None:
        """Draw the maps of one image.

        Args:
            images: the list.
            number: of the image in it.
            names: of all classes.
            maps: L×H×W.
            present: L, which classes reach their thresholds.
        """
        wanted = np.flatnonzero(present).tolist() if self.classes is None else self.classes
        if not wanted:
            return
        image = fitted(*images.place(number), _SIDE)
        for label in wanted:
            with replacing(self.folder / picture_path(images.name(number), names[label]), sync=False) as file:
                overlay(image, maps[label]).save(file, format="JPEG", quality=90)


def picture_path(image: str, label: str) -> PurePosixPath:
    """Where the picture of an image and a class lies below the folder of pictures, never outside of it.

    >>> picture_path("../photos/1.jpg", "cat/dog").as_posix()
    'photos/1.jpg/cat_dog.jpg'
    """
    parts = [_safe(part) for part in re.split(r"[/\\]+", image) if part not in ("", ".", "..")]
    return PurePosixPath(*parts, f"{_safe(label)}.jpg")


def _safe(text: str) -> str:
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", text).strip(". ") or "_"
