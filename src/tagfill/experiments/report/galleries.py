"""Sections of photographs: class maps beside the truth, and labels that are probably missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from tagfill.data import Locations
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.experiments import pictures
from tagfill.experiments.report.model_scores import ModelScores, Suspect
from tagfill.experiments.report.report_data import ReportData
from tagfill.experiments.report.section import Gallery, Picture, Section
from tagfill.images import encode_jpeg, open_root, thumbnail
from tagfill.labels import POSITIVE, UNKNOWN

_SIDE = 240  # longest side of a picture, in pixels
_MAX_COLUMNS = 9
_MAX_MISTAKES = 6


def class_map_section(report: ReportData) -> Section | None:
    """Images of several classes with the class maps of each model; None if no head makes class maps."""
    data, split = report.truth or report.data, report.split
    locations = Locations.read(data, split)
    examples = pictures.choose_examples(data, split)
    index = np.array([image for image, _ in examples], dtype=np.int64)
    predictions = {}
    for method in report.methods[:_MAX_COLUMNS]:
        model = method.load_model(report.data, maps=True)
        try:
            model.model.check_use(maps=True)
        except TagfillError:
            continue
        predictions[method.name] = pictures.predict_class_maps(model, split, index)
    if not predictions or not examples:
        return None
    rows = []
    for position, (image, label) in enumerate(examples):
        photo, class_name = _photo(data, split, image), data.classes[label]
        marks = locations.of(np.array([image]))
        truth = pictures.draw_boxes(photo, marks.box[marks.label == label])
        cells = [Picture(encode_jpeg(truth), f"An image with {class_name} marked.")]
        for method_name, (maps, probabilities) in predictions.items():
            drawn = pictures.overlay_class_map(photo, maps[position, label])
            alt = f"The class map for {class_name} by {method_name}."
            cells.append(Picture(encode_jpeg(drawn), alt, f"{probabilities[position, label]:.0%}"))
        rows.append((class_name, cells))
    text = (
        f"The first images of `{split}` that show a new class, not selected by the quality of the maps. A model sees "
        "the class where its map is bright; the number is the predicted probability of the class. Each map is scaled "
        "from its lowest to its highest value.",
    )
    gallery = Gallery("Class maps", "Boxes or dots mark the true objects.", rows, ("truth", *predictions))
    return Section("maps", "Class maps", text, galleries=(gallery,))


def suspect_section(report: ReportData, scores: dict[str, ModelScores]) -> Section | None:
    """Labels that the best model is most confident about although they were not given."""
    name = report.best.name
    suspects, mistakes = scores[name].suspects, scores[name].mistakes
    galleries = []
    if suspects:
        known = [suspect for suspect in suspects if suspect.truth != UNKNOWN]
        right = sum(suspect.truth == POSITIVE for suspect in known)
        verdict = f"{right} of these {len(known)} are truly present." if known else "The true labels are not known."
        caption = f"Unknown training labels that `{name}` is most confident about, one per image. {verdict}"
        galleries.append(_suspect_gallery(report, "train", "Likely missing labels", caption, suspects))
    if mistakes:
        caption = (
            f"Labels of `{report.split}` that are annotated as absent although `{name}` is confident that they are "
            "present, one per image: its worst mistakes, or annotation errors."
        )
        gallery = _suspect_gallery(report, report.split, "Annotated as absent", caption, mistakes[:_MAX_MISTAKES])
        galleries.append(gallery)
    if not galleries:
        return None
    return Section("suspects", "Likely missing labels", galleries=tuple(galleries))


def _suspect_gallery(report: ReportData, split: str, name: str, caption: str, suspects: Sequence[Suspect]) -> Gallery:
    data = report.truth or report.data
    locations = Locations.read(data, split)
    tiles = []
    for suspect in suspects:
        label, marks = data.classes[suspect.label], locations.of(np.array([suspect.index]))
        boxes = marks.box[marks.label == suspect.label]
        picture = pictures.draw_boxes(_photo(data, split, suspect.index), boxes)
        right = None if suspect.truth == UNKNOWN else suspect.truth == POSITIVE
        verdict = "" if right is None else ", truly present" if right else ", truly absent"
        alt = f"Image {data.names(data.split(split)[[suspect.index]])[0]}, in which {label} is suspected."
        tiles.append(Picture(encode_jpeg(picture), alt, f"{label}, {suspect.probability:.1%}{verdict}", right))
    return Gallery(name, caption, [("", tiles)])


def _photo(data: Dataset, split: str, position: int) -> Image.Image:
    return thumbnail(open_root(data.root), data.names(data.split(split)[[position]])[0], _SIDE)
