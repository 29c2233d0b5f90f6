"""The page of the benchmark, generated from its results: one section per table that was run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

TABLES = {
    "A": ("single_positives", "One positive label per image"),
    "B1": ("fractions_of_positives", "A fraction of the positives, and about as many negatives"),
    "B2": ("groups", "Groups of classes as parents"),
    "B3": ("missing", "Other kinds of partial labels"),
    "C": ("budgets", "Tags, points and boxes for the same hours"),
    "D1": ("end_to_end", "The whole network"),
    "D2": ("from_scratch", "Scenes, from random weights"),
    "E": ("loop", "Suggest, review, train again"),
    "F": ("heads", "Heads"),
    "G": ("calibration", "Probabilities of new photos"),
}

HEAD = """---
orphan: true
---
# VOC 2012: real photos

The complete PASCAL VOC 2012 (5,717 and 5,823 photos, resized to a short side of 224), split as in the published
single-positive protocol with its seed 1200: 4,574 training images, 1,143 validation images with complete labels, and
the official val split, 5,823 images, for testing. Unless stated otherwise, heads are trained on cached features of
`tf_efficientnet_lite0` at 224 px with ImageNet weights: the whole image, its mirror image and two crops of each
training image. Learning rates were chosen from the same small grid for all entries, on validation, with the first seed;
scores are those of the epoch with the best validation mAP. Seeds determine the order of images, views and initial
weights. ± after a mean is the standard deviation over seeds; after a gain, which is paired by seed, it is the
standard error of the mean.

A small frozen backbone is not the fine-tuned ResNet of the papers: compare gains with their numbers, not absolute
scores."""

FIRST = """

This page is only a quick preview: a third of the photos, fewer views and epochs, one seed, no search of rates. Do not
quote its numbers."""


def write(results: Path, folder: Path, quick: bool = False) -> None:
    """Write the page to a folder, and its figures to `images` next to that folder."""
    places = {name: results / f"voc12-{name.lower()}.json" for name in TABLES}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in places.items() if path.exists()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "voc12.md").write_text(page(found, quick), encoding="utf-8")
    for name, picture in pictures(found).items():
        (folder.parent / "images").mkdir(exist_ok=True)
        (folder.parent / "images" / name).write_bytes(picture)
    print(folder / "voc12.md")


def page(found: dict[str, dict[str, Any]], quick: bool = False) -> str:
    """The page as Markdown, of results by table."""
    head = HEAD + FIRST if quick else HEAD
    return "\n\n".join([head, *(section(name, results) for name, results in found.items())]) + "\n"


def pictures(found: dict[str, dict[str, Any]]) -> dict[str, bytes]:
    """Figures by file name, of the tables that have any."""
    modules = {name: importlib.import_module(TABLES[name][0]) for name in found}
    drawing = {name: module.figures for name, module in modules.items() if hasattr(module, "figures")}
    return {file: picture for name, draw in drawing.items() for file, picture in draw(found[name]).items()}


def section(name: str, results: dict[str, Any]) -> str:
    """One table and the source of its numbers."""
    module, title = TABLES[name]
    machine = results["machine"]
    origin = (
        f"Written by `{results['command']}` at commit `{results['commit']}` on a machine with {machine['cores']} cores "
        f"({machine['system']}, Python {machine['python']}, torch {machine['torch']})."
    )
    for commit, rows in results.get("later", {}).items():
        origin += f"\nMeasured later, at commit `{commit}`: {', '.join(f'`{row}`' for row in rows)}."
    return f"## {name}. {title}\n\n{origin}\n\n{importlib.import_module(module).section(results)}"


if __name__ == "__main__":  # regenerate the page from existing results
    import sys

    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from bookkeeping import ROOT

    write(ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks")
