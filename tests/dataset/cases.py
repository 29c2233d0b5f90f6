"""Small datasets shared by tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tagfill.dataset import IMAGES_SCHEMA, Dataset, from_records

CLASSES = ("cat", "dog", "animal", "007", "a, b", 'say "hi"', "two\nlines", "größe", "no")


def at(second: int) -> datetime:
    """A time; larger numbers are later."""
    return datetime.fromtimestamp(1_700_000_000 + second, tz=UTC)


def row(label: str = "cat", present: bool | None = True, image: str = "a.jpg", **columns: Any) -> dict[str, Any]:
    return {"image": image, "label": label, "present": present, "kind": "image", **columns}


def image(name: str = "a.jpg", split: str = "train", **columns: Any) -> dict[str, Any]:
    return {"image": name, "split": split, **columns}


def dataset(
    *rows: dict[str, Any],
    images: list[dict[str, Any]] | None = None,
    classes: tuple[str, ...] = CLASSES,
    **attributes: Any,
) -> Dataset:
    listed = [image("a.jpg"), image("b.jpg"), image("c.jpg", "val")] if images is None else images
    return Dataset(
        name="small",
        root=Path("pictures"),
        classes=classes,
        images=from_records(listed, IMAGES_SCHEMA),
        annotations=from_records(list(rows)),
        **attributes,
    )


def varied() -> Dataset:
    """Each column filled and empty, each kind of row, and text that needs quoting."""
    return dataset(
        row("007", None, flags=[], source=""),
        row("a, b", False, flags=["crowd", 'with "quotes", and\nmore'], source="Zoë", time=at(0), seconds=0.1),
        row('say "hi"', kind="point", x=0.1, y=1 / 3, time=at(1).replace(microsecond=1)),
        row("two\nlines", kind="box", x=0.5, y=0.5, w=0.25, h=1e-7, source=" leading and trailing "),
        row("größe", kind="mask", x=0.5, y=0.5, w=1.0, h=1.0, rle=b"0d0", rle_height=6, rle_width=8, image="b.jpg"),
        row("cat", kind="point", x=float("nan"), y=-0.0, source="null", image="b.jpg"),
        row("no", False, image="b.jpg", time=at(0).replace(year=1960), flags=[""]),
        images=[image("a.jpg", "train", width=640, height=480), image("b.jpg", "train"), image("ü/c d.jpg", "0012")],
        hierarchy=(("cat", "animal"), ("dog", "animal")),
        protocol={"name": "simulated", "seed": 3},
    )
