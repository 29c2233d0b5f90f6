"""Which methods suit which labels: six ways in which labels of the scenes can be missing, three paired seeds.

Writes benchmarks/results/missing.json and docs/benchmarks/missing.md. Every method trains a `cam` head on the same
cached features with the same settings; a seed draws the known labels, the order of images and the initial weights alike
for all. One process, one thread.

    python benchmarks/missing/run.py                 ten minutes; goes on where it stopped
    python benchmarks/missing/run.py --minutes 4     a part of it; the last part writes the files
    python benchmarks/missing/run.py --seeds 1 --epochs 2 --out runs/look    a look, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from page import page
from ways import ENTRIES, WAYS, Entry, Way

import tagfill
from tagfill.errors import TagfillError

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("missing", ("training", "loading", "models", "memory", "methods", "losses", "scenes", "protocols"))
SIZES = {"train": 600, "val": 200, "test": 400}
SEEDS, EPOCHS = 3, 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/missing"), help="where scores and datasets are kept")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "scores.json"
    scores: dict[str, float | str] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    end = time.monotonic() + 60 * given.minutes
    for key, way, name, seed in jobs(given.seeds):
        if key in scores:
            continue
        if time.monotonic() > end:
            say(f"{len(scores)} runs are done; call again to go on")
            return
        scores[key] = train(way, ENTRIES[name], seed, given)
        kept.write_text(json.dumps(scores, indent=1), encoding="utf-8")
        say(f"{key}: {scores[key]}")
    results = {
        **RECORD.begin(),
        "sizes": SIZES,
        "epochs": given.epochs,
        "seeds": given.seeds,
        "ways": {way: gathered(scores, way, given.seeds) for way in WAYS},
    }
    if (given.seeds, given.epochs) == (SEEDS, EPOCHS):
        RECORD.write(results, page(results))
    else:
        print(json.dumps(results, indent=2))


def jobs(seeds: int) -> Iterator[tuple[str, str, str, int]]:
    """What is trained, under which key: all of one seed before the next."""
    for seed in range(seeds):
        for way in WAYS:
            for name in ENTRIES:
                yield f"{way} | {name} | {seed}", way, name, seed


def gathered(scores: dict[str, float | str], way: str, seeds: int) -> dict[str, Any]:
    """Scores of a way by entry; of those that refuse its labels, the sentence."""
    found = {name: [scores[f"{way} | {name} | {seed}"] for seed in range(seeds)] for name in ENTRIES}
    refused = {name: str(values[0]) for name, values in found.items() if any(isinstance(v, str) for v in values)}
    return {"scores": {name: values for name, values in found.items() if name not in refused}, "refused": refused}


def train(way: str, entry: Entry, seed: int, given: argparse.Namespace) -> float | str:
    """Test mAP in percent; or the sentence with which the method refuses the labels."""
    data = tagfill.scenes.make(**SIZES, groups=WAYS[way].groups)
    cache = tagfill.features(data)
    part = data if entry.complete else drawn(data, WAYS[way], given.out / f"{way}-{seed}".replace(" ", "-"), seed)
    settings: dict[str, Any] = {"head_options": entry.head, "options": entry.options}
    settings = {name: value for name, value in settings.items() if value}
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = tagfill.train(
                part, method=entry.method, features=cache, epochs=given.epochs, seed=seed, out=folder, **settings
            )
        except TagfillError as error:
            return str(error)
        return 100 * tagfill.evaluate(run, data, split="test", features=cache.folder).mean


def drawn(data: tagfill.Dataset, way: Way, folder: Path, seed: int) -> tagfill.Dataset:
    """The training labels that are known, drawn once."""
    if not (folder / "dataset.yaml").exists():
        tagfill.protocols.PROTOCOLS[way.protocol](data, **way.options, seed=1200 + seed).save(folder)
    return tagfill.Dataset.open(folder)


if __name__ == "__main__":
    main()
