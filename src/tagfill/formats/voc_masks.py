"""The masks of PASCAL VOC: palette images whose pixels are numbers of objects or of classes.

In SegmentationObject, pixels of value k belong to the k-th object of the XML file; in SegmentationClass, to the k-th
class in alphabetical order. 0 is background and 255 is void.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tagfill.errors import DatasetError
from tagfill.formats import masks
from tagfill.formats.masks import RunLengths
from tagfill.formats.voc_files import Photo

_VOID = 255


def read(folder: Path, identity: str, photo: Photo, classes: tuple[str, ...]) -> dict[int, RunLengths]:
    """The masks of an image's objects, by their position; those without a mask are left out.

    An object whose pixels are of another class, which happens in a few images, has no mask either. Where there is no
    image of objects, the only object of its class gets the pixels of the class.
    """
    kinds = _pixels(folder / "SegmentationClass" / f"{identity}.png")
    numbers = _pixels(folder / "SegmentationObject" / f"{identity}.png")
    if kinds is not None and numbers is not None and kinds.shape != numbers.shape:
        raise DatasetError(f"The masks of {identity} in SegmentationClass and SegmentationObject differ in size.")
    found = {}
    labels = [thing.label for thing in photo.things]
    for number, label in enumerate(labels):
        code = classes.index(label) + 1
        if numbers is not None:
            its = numbers == number + 1
            shown = kinds[its & (kinds != _VOID)] if kinds is not None else np.array([code])
            agrees = shown.size and np.bincount(shown).argmax() == code
        else:
            its = kinds == code if kinds is not None and labels.count(label) == 1 else np.zeros((1, 1), dtype=bool)
            agrees = True
        if agrees and its.any():
            found[number] = masks.from_pixels(its)
    return found


def _pixels(path: Path) -> NDArray[np.uint8] | None:
    if not path.is_file():
        return None
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.mode not in ("P", "L"):
                raise DatasetError(f"{path} is not a palette image with a number for each pixel.")
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from None
