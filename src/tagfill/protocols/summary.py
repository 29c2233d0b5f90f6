"""What a simulation did, for people and for programs."""

from __future__ import annotations

from typing import Any

from tagfill.annotations import Dataset
from tagfill.errors import DatasetError


def summary(data: Dataset) -> dict[str, Any]:
    """The record of a simulated dataset, with shares that are easy to judge.

    Args:
        data: the result of a protocol, in memory or opened from its folder.

    Returns:
        Name, seed, parameters, source, hash, the numbers of images, and under `kept` what training images still know.

    Example:
        >>> from tagfill.protocols import summary
        >>> summary(part)["kept"]["positives"]  # doctest: +SKIP
        600
    """
    if data.protocol is None or "kept" not in data.protocol:
        raise DatasetError(f"{data.name} was not simulated; it has no protocol in its dataset.yaml.")
    kept = dict(data.protocol["kept"])
    labels, images = kept["positives"] + kept["negatives"], data.protocol["images"]["train"]
    kept["share"] = labels / max(labels + kept["unknown"], 1)
    kept["positives_per_image"] = kept["positives"] / max(images, 1)
    return {**data.protocol, "kept": kept}


def describe(data: Dataset) -> str:
    """The same in a few lines of text."""
    facts = summary(data)
    kept, images = facts["kept"], facts["images"]
    options = ", ".join(f"{name}={value}" for name, value in {**facts["parameters"], "seed": facts["seed"]}.items())
    lines = [
        f"{facts['name']} ({options}) of {facts['source']}",
        "images: " + ", ".join(f"{name} {count:,}" for name, count in images.items()),
        f"kept for training: {kept['positives']:,} positives, {kept['negatives']:,} negatives; "
        f"{kept['unknown']:,} unknown ({100 * kept['share']:.3g} % known)",
        f"training images with a label: {kept['images']:,} of {images['train']:,}",
        f"annotation time: {kept['seconds']:,.0f} s",
    ]
    return "\n".join(lines)
