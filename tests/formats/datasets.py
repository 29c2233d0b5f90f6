"""Small datasets for format tests, and what a dataset says in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records, table

quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

NAMES = st.text("abZ7,;\"'éЖ猫 _", min_size=1, max_size=6).map(str.strip).filter(bool)
PLAIN_NAMES = st.text("abcZ07é猫", min_size=1, max_size=6)


def dataset(
    labels: dict[str, dict[str, bool | None]],
    classes: tuple[str, ...],
    *,
    root: Path = Path(),
    splits: dict[str, str] | None = None,
    size: tuple[int, int] | None = None,
) -> Dataset:
    """A dataset with image-level rows; `labels` maps images to what is known about them."""
    width, height = size or (None, None)
    images = [
        {"image": image, "split": (splits or {}).get(image, "train"), "width": width, "height": height}
        for image in labels
    ]
    rows = [
        {"image": image, "label": label, "present": present, "source": "test"}
        for image, its in labels.items()
        for label, present in its.items()
    ]
    columns = {name: [record[name] for record in images] for name in IMAGES_SCHEMA.names}
    return Dataset("test", root, classes, table(columns, IMAGES_SCHEMA), from_records(rows))


@st.composite
def label_states(
    draw: st.DrawFn,
    states: tuple[Any, ...] = (True, False, None, "unknown"),
    names: st.SearchStrategy[str] = NAMES,
    splits: tuple[str, ...] = ("train", "val", "test"),
    suffix: str = ".jpg",
    min_classes: int = 1,
) -> Dataset:
    """Datasets of a few images whose labels are in some of the states; "unknown" is no row at all."""
    classes = tuple(sorted(draw(st.sets(names, min_size=min_classes, max_size=4))))
    images = [name + suffix for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))]
    labels = {}
    for image in images:
        drawn = {label: draw(st.sampled_from(states)) for label in classes}
        labels[image] = {label: state for label, state in drawn.items() if state != "unknown"}
    return dataset(labels, classes, splits={image: draw(st.sampled_from(splits)) for image in images})


def known_labels(data: Dataset) -> dict[str, dict[str, bool | None]]:
    """What is decided about each image: present, absent or cannot tell; unknown labels are left out."""
    decided: dict[str, dict[str, bool | None]] = {image: {} for image in data.names()}
    labels = data.labels()
    for image, label, value in zip(labels.images(), labels.classes, labels.values, strict=True):
        state = {1: True, 0: False, -1: None}[int(value)]
        decided[data.names()[int(image)]][data.classes[int(label)]] = state
    return decided


def splits(data: Dataset) -> dict[str, str]:
    """The split of each image."""
    return dict(zip(data.names(), data.images["split"].to_pylist(), strict=True))


def rows(data: Dataset, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the annotation rows, in their order."""
    return [tuple(row[name] for name in columns) for row in data.rows().to_pylist()]
