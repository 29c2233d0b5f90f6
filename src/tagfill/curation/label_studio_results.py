"""Predictions as results of Label Studio: choices and rectangles in the words of a project's configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.formats.label_studio_config import ABSENT, CANNOT_TELL, OTHERS, LabelingConfig
from tagfill.images.decode import open_header, read_orientation
from tagfill.metrics.localization import bilinear_weights

_MAP_SIDE = 64  # class maps are enlarged to this for boxes
_BOX_SHARE = 0.5  # of the range of a class map; what is above belongs to the box


def choices(config: LabelingConfig, tags: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """The results of checkboxes and radio buttons.

    Args:
        config: of the project.
        tags: present classes with their scores.
    """
    for control in config.controls:
        if control.kind != "choices" or control.name in (ABSENT, CANNOT_TELL, OTHERS):
            continue
        if control.label is not None:
            chosen = {control.label: "present"} if control.label in tags else {}
        else:
            chosen = {label: control.words[label] for label in tags if label in control.words}
            if not control.multiple and chosen:
                best = max(chosen, key=lambda label: tags[label])
                chosen = {best: chosen[best]}
        if chosen:
            yield {
                "from_name": control.name,
                "to_name": control.image,
                "type": "choices",
                "value": {"choices": list(dict.fromkeys(chosen.values()))},
                "score": round(min(tags[label] for label in chosen), 6),
                "meta": {"scores": {label: round(tags[label], 6) for label in chosen}},
            }


def rectangles(
    config: LabelingConfig, tags: Mapping[str, float], maps: Mapping[str, NDArray[np.float32]], size: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    """The results of rectangles: a box around the strongest part of the class map of each tag.

    Args:
        config: of the project.
        tags: present classes with their scores.
        maps: the class map of each class.
        size: width and height of the upright image.
    """
    for control in config.controls:
        if control.kind != "rectanglelabels":
            continue
        for label in (label for label in tags if label in control.words):
            box = peak_box(maps[label])
            if box is not None:
                left, top, width, height = (100 * side for side in box)
                place = {"x": left, "y": top, "width": width, "height": height, "rotation": 0}
                yield {
                    "from_name": control.name,
                    "to_name": control.image,
                    "type": "rectanglelabels",
                    "original_width": size[0],
                    "original_height": size[1],
                    "image_rotation": 0,
                    "value": {**place, "rectanglelabels": [control.words[label]]},
                    "score": round(tags[label], 6),
                }


def upright_size(name: str, content: bytes) -> tuple[int, int]:
    """Width and height of an image file as a browser shows it."""
    header = open_header(name, content)
    return read_orientation(header).size(*header.size)


def peak_box(class_map: NDArray[np.floating]) -> tuple[float, float, float, float] | None:
    """The box around the part of a class map that is connected with its peak and above half of its range.

    Args:
        class_map: H×W.

    Returns:
        Left, top, width and height, relative to the image; None for a map without a peak.

    >>> peak_box(np.array([[0, 0, 0, 0], [0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 0, 0]]))
    (0.5, 0.25, 0.5, 0.5)
    """
    down, across = (bilinear_weights(side, _MAP_SIDE) for side in class_map.shape)
    large = down @ class_map.astype(np.float64) @ across.T
    least, most = large.min(), large.max()
    if not most > least:
        return None
    above = large - least >= _BOX_SHARE * (most - least)
    start = tuple(int(place) for place in np.unravel_index(np.argmax(large), large.shape))
    found, waiting = {start}, [start]
    while waiting:
        row, column = waiting.pop()
        for place in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            inside = 0 <= place[0] < _MAP_SIDE and 0 <= place[1] < _MAP_SIDE
            if inside and place not in found and above[place]:
                found.add(place)
                waiting.append(place)
    rows, columns = zip(*found, strict=True)
    left, top, right, bottom = min(columns), min(rows), max(columns) + 1, max(rows) + 1
    return left / _MAP_SIDE, top / _MAP_SIDE, (right - left) / _MAP_SIDE, (bottom - top) / _MAP_SIDE
