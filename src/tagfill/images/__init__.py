"""Decoding images and looking at them through recorded views."""

from tagfill.images.check import check
from tagfill.images.decode import decode
from tagfill.images.fitted import as_jpeg, fitted
from tagfill.images.geometry import Geometry
from tagfill.images.look import look, look_twice
from tagfill.images.overlay import overlay
from tagfill.images.roots import Root, open_root
from tagfill.images.sizes import input_size
from tagfill.images.views import CROP, EVAL, FLIP, STRONG, View, render

__all__ = [
    "CROP",
    "EVAL",
    "FLIP",
    "STRONG",
    "Geometry",
    "Root",
    "View",
    "as_jpeg",
    "check",
    "decode",
    "fitted",
    "input_size",
    "look",
    "look_twice",
    "open_root",
    "overlay",
    "render",
]
