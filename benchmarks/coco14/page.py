"""The page of the benchmark, generated from its results: one section per table that was run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

TABLES = {
    "A": ("single_positives", "One positive label per photo"),
    "D": ("defaults", "The default method"),
    "T": ("top", "Training the top of the network"),
    "S": ("sizes", "How many photos ROLE needs"),
    "B": ("partial", "Other shares of the labels"),
    "R": ("resources", "Time and memory"),
}

BESIDE_A = ("D", "T")
"""Tables that show rows of table A beside their own."""

HEAD = """# COCO 2014 at its real size

All 82,081 photos of COCO 2014 train that have a label of the 80 classes, squashed to 256×256 pixels, with complete
labels (2.9 per photo). COCO's validation photos were not available, so the photos are divided at random with a fixed
seed: 66,081 for training, 4,000 with complete labels for validation, 12,000 for testing. Numbers of papers are for the
official validation photos and fine-tuned networks: compare gains, not scores.

Features are those of `tf_efficientnet_lite0` at 224 px with ImageNet weights, of the whole photo only: no flips and no
crops, in training either. Each photo was decoded once: the output of an inner stage was cached, and the last features
were [computed from it](../features.md#from-an-inner-stage). ± after a mean is the standard deviation over seeds; after
a gain, which is paired by seed, it is the standard error of the mean.

    python benchmarks/coco14/run.py labels.csv.gz train2017"""

FIRST = """

This page is only a quick preview: few photos and epochs, one seed, no search of rates. Do not quote its numbers."""


def write(results: Path, folder: Path, quick: bool = False) -> None:
    """Write the page to a folder."""
    places = {name: results / f"coco14-{name.lower()}.json" for name in TABLES}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in places.items() if path.exists()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coco14.md").write_text(page(found, quick), encoding="utf-8")
    print(folder / "coco14.md")


def page(found: dict[str, dict[str, Any]], quick: bool = False) -> str:
    """The page as Markdown, of results by table."""
    parts = [HEAD + FIRST if quick else HEAD]
    for name, (module, title) in TABLES.items():
        if name in found:
            section = importlib.import_module(module).section
            text = section(found[name], found.get("A")) if name in BESIDE_A else section(found[name])
            parts += [f"## {title}", text, of(found[name])]
    lacking = [title for name, (_, title) in TABLES.items() if name not in found]
    if lacking:
        parts += ["## Not run yet", "\n".join(f"- {title}" for title in lacking)]
    return "\n\n".join(parts) + "\n"


def of(results: dict[str, Any]) -> str:
    """Where and how a table was made."""
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    return f"`{results['command']}` at commit {results['commit']}; {machine}."
