"""Safe decoding of image files into RGB pixels."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from tagfill.errors import ImageError

FORMATS = ("JPEG", "PNG", "WEBP")
MAX_PIXELS = 64_000_000


def decode(root: Path, name: str, *, shrink_to: int | None = None) -> Image.Image:
    """The first frame of an image as RGB, upright as its EXIF orientation says.

    Args:
        root: the image root.
        name: path below the root, the image's identity.
        shrink_to: the shortest side that will be needed; large JPEGs are then decoded at a fraction of their size.

    Raises:
        ImageError: if the file is missing, damaged, too large, or not a JPEG, PNG or WebP.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(root / name, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(
                        name, f"{image.width}×{image.height} pixels, more than the limit of {MAX_PIXELS:,}"
                    )
                if shrink_to is not None:
                    image.draft("RGB", (shrink_to, shrink_to))
                image.load()
                return ImageOps.exif_transpose(image).convert("RGB")
    except FileNotFoundError:
        raise ImageError(name, f"there is no such file below {root}") from None
    except UnidentifiedImageError:
        raise ImageError(name, f"not a readable image; {', '.join(FORMATS)} files are read") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(name, f"cannot be decoded ({error})") from None
