"""Safe decoding of image files into upright RGB pixels."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from tagfill.images.colours import to_rgb
from tagfill.images.folder import FolderRoot
from tagfill.images.header import blaming, open_header
from tagfill.images.orientation import orientation_of
from tagfill.images.roots import Root

_SPARE = 2  # a reduced image keeps so many times the pixels that are needed along a side


class EncodedImage:
    """An image whose header is read, and whose pixels can be decoded once it is known how many are needed.

    Attributes:
        name: the image's identity.
        width: of the upright image.
        height: of the upright image.
    """

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._image = open_header(name, content)
        with blaming(name):
            if isinstance(self._image, PngImageFile):
                self._image.load()  # the orientation may come after the pixels, and damage must not pass for none
            self._orientation = orientation_of(self._image)
            self.width, self.height = self._orientation.size(*self._image.size)

    def decode(self, shrink_to: tuple[float, float] | None = None) -> Image.Image:
        """The first frame as upright RGB; to be called once.

        Args:
            shrink_to: width and height that the whole image needs to have. A JPEG is then decoded at a half, a quarter
                or an eighth of its size, if that leaves twice as many pixels each way and divides both sides
                without a rest: relative coordinates stay exact.

        Raises:
            ImageError: if the file is damaged.
        """
        with blaming(self.name):
            image = self._image
            if shrink_to is not None and isinstance(image, JpegImageFile):
                width, height = image.size
                step = _reduction(image.size, self._orientation.size(*shrink_to))
                image.draft(None, (width // step, height // step))
            image.load()
            return self._orientation.turn(to_rgb(image))


def open_image(root: Root | Path, name: str) -> EncodedImage:
    """Read an image file and look at its header.

    Args:
        root: the image root, or the folder that it is.
        name: path below the root, the image's identity.

    Raises:
        ImageError: if the file is missing, too large, or not a JPEG, PNG or WebP.
    """
    return EncodedImage(name, (FolderRoot(root) if isinstance(root, Path) else root).read(name))


def decode(root: Root | Path, name: str, *, shrink_to: tuple[float, float] | None = None) -> Image.Image:
    """The first frame of an image as RGB, upright as its EXIF orientation says.

    Transparency is laid on white; 16 bits are scaled to 8.

    Args:
        root: the image root, or the folder that it is.
        name: path below the root, the image's identity.
        shrink_to: width and height that the whole image needs to have; large JPEGs are then decoded at a fraction of
            their size. For a view of a part of the image that is more than the size of the view.

    Raises:
        ImageError: if the file is missing, damaged, larger than 64 megapixels, or not a JPEG, PNG or WebP.

    Example:
        `decode(open_root("photos"), "0001.jpg", shrink_to=(448, 448))` of a JPEG of 4032×3024 has 2016×1512 pixels.
    """
    return open_image(root, name).decode(shrink_to)


def _reduction(size: tuple[int, int], needed: tuple[float, float]) -> int:
    """The largest of 8, 4, 2 and 1 that a JPEG of `size` can be reduced by.

    >>> _reduction((4032, 3024), (224, 224)), _reduction((4032, 3024), (448, 448)), _reduction((4032, 3023), (9, 9))
    (4, 2, 1)
    """
    for step in (8, 4, 2):
        if all(side % step == 0 and side >= step * _SPARE * need for side, need in zip(size, needed, strict=True)):
            return step
    return 1
