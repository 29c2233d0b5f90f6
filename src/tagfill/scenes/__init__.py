"""The embedded dataset: rendered pictogram scenes with exact boxes and masks.

Twenty pictograms in five groups, one to eight per picture, of any size, color and tilt, partly hidden by each other. It
needs no download, is the same on every machine, and is fully labeled, so that partial labels can be simulated from it
and compared with the truth.
"""

from tagfill.scenes.compose import Instance, Scene
from tagfill.scenes.glyphs import CLASSES, GROUPS, HIERARCHY
from tagfill.scenes.make import contact_sheet, make, render

__all__ = ["CLASSES", "GROUPS", "HIERARCHY", "Instance", "Scene", "contact_sheet", "make", "render"]
