"""Sections of pictures: class maps with the truth, and labels that models believe in although nobody confirmed them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tagfill.annotations import POSITIVE, UNKNOWN, Dataset
from tagfill.errors import TagfillError
from tagfill.experiments import examples, pictures
from tagfill.experiments.class_maps import class_maps
from tagfill.experiments.report.contents.looking import Look, Suspect, opened
from tagfill.experiments.report.contents.material import Entrant, Material
from tagfill.experiments.report.section import Gallery, Picture, Section
from tagfill.images import as_jpeg, fitted, open_root
from tagfill.loading import Locations

_SIDE = 240  # pixels of a picture's longest side
_MOST_COLUMNS = 9
Maps = tuple[NDArray[np.float32], NDArray[np.float32]]


def heatmaps(material: Material) -> Section | None:
    """The first images of some classes with what each model looks at; none where no head has class maps."""
    data, split = material.truth or material.data, material.split
    places = Locations.read(data, split)
    chosen = examples.pairs(data, split)
    index = np.array([image for image, _ in chosen], dtype=np.int64)
    found: dict[str, Maps] = {}
    for entrant in material.entrants[:_MOST_COLUMNS]:
        maps = _maps(entrant, material.data, split, index)
        if maps is not None:
            found[entrant.name] = maps
    if not found or not chosen:
        return None
    rows = []
    for position, (image, label) in enumerate(chosen):
        picture, name = photograph(data, split, image), data.classes[label]
        marks = places.of(np.array([image]))
        truth = pictures.outlined(picture, marks.box[marks.label == label])
        cells = [Picture(as_jpeg(truth), f"An image with {name} marked.")]
        for entrant_name, (values, shares) in found.items():
            over = pictures.overlay(picture, values[position, label])
            alt = f"The class map of {name} by {entrant_name}."
            cells.append(Picture(as_jpeg(over), alt, f"{shares[position, label]:.0%}"))
        rows.append((name, cells))
    words = (
        f"The first images of `{split}` that show a class, not chosen by how good the maps are. Bright is where a "
        "model sees the class; below it the probability that it gives to the class. Each map is stretched from its "
        "lowest to its highest value.",
    )
    gallery = Gallery("Class maps", "Boxes or dots mark the truth.", rows, ("truth", *found))
    return Section("maps", "Class maps", words, galleries=(gallery,))


def suspects(material: Material, looks: dict[str, Look]) -> Section | None:
    """Labels that the best model believes in most and nobody confirmed."""
    look, name = looks[material.best.name], material.best.name
    galleries = []
    if look.suspects:
        known = [one for one in look.suspects if one.truth != UNKNOWN]
        right = sum(one.truth == POSITIVE for one in known)
        judged = f" Of these {len(known)}, {right} are present in truth." if known else " The truth is not known."
        caption = f"Training labels that nobody looked at and `{name}` is surest of, one an image.{judged}"
        galleries.append(_tiles(material, "train", "Probably missing labels", caption, look.suspects))
    if look.mistakes:
        caption = (
            f"Labels of `{material.split}` that are said to be absent and `{name}` is surest of, one an image: its "
            "worst mistakes, or labels that are wrong."
        )
        galleries.append(_tiles(material, material.split, "Said to be absent", caption, look.mistakes[:6]))
    if not galleries:
        return None
    return Section("suspects", "Probably missing labels", galleries=tuple(galleries))


def _tiles(material: Material, split: str, name: str, caption: str, chosen: Sequence[Suspect]) -> Gallery:
    data = material.truth or material.data
    places = Locations.read(data, split)
    tiles = []
    for one in chosen:
        label, marks = data.classes[one.label], places.of(np.array([one.index]))
        picture = pictures.outlined(photograph(data, split, one.index), marks.box[marks.label == one.label])
        right = None if one.truth == UNKNOWN else one.truth == POSITIVE
        told = "" if right is None else ", in truth present" if right else ", in truth absent"
        alt = f"The image {data.names(data.split(split)[[one.index]])[0]}, in which {label} is suspected."
        tiles.append(Picture(as_jpeg(picture), alt, f"{label}, {one.probability:.1%}{told}", right))
    return Gallery(name, caption, [("", tiles)])


def photograph(data: Dataset, split: str, position: int) -> Image.Image:
    """An image of a split, no larger than it is shown."""
    return fitted(open_root(data.root), data.names(data.split(split)[[position]])[0], _SIDE)


def _maps(entrant: Entrant, data: Dataset, split: str, index: NDArray[np.int64]) -> Maps | None:
    """Class maps and probabilities of some images, or nothing of a head that has none."""
    trained = opened(entrant, data, maps=True)
    try:
        trained.model.check_use(maps=True)
    except TagfillError:
        return None
    return class_maps(trained, split, index)
