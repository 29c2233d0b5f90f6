"""Decoding images and looking at them through recorded views."""

from tagfill.images.decode import decode
from tagfill.images.geometry import Geometry
from tagfill.images.views import CROP, EVAL, FLIP, View, render

__all__ = ["CROP", "EVAL", "FLIP", "Geometry", "View", "decode", "render"]
