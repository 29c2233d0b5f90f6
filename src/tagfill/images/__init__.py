"""Decoding images and looking at them through recorded views."""

from tagfill.images.decode import decode
from tagfill.images.display import as_jpeg, fitted, overlay
from tagfill.images.geometry import Geometry
from tagfill.images.roots import Root, open_root
from tagfill.images.views import CROP, EVAL, FLIP, STRONG, View, check_images, input_size, look, look_twice, render

__all__ = [
    "CROP",
    "EVAL",
    "FLIP",
    "STRONG",
    "Geometry",
    "Root",
    "View",
    "as_jpeg",
    "check_images",
    "decode",
    "fitted",
    "input_size",
    "look",
    "look_twice",
    "open_root",
    "overlay",
    "render",
]
