"""Whether methods learn what they should, on scenes with one known label per image, five paired seeds.

Writes benchmarks/results/learning.json and docs/benchmarks/learning.md. Every method trains a `cam` head on the same
cached features with the same settings, none of them tuned; a seed draws the known labels, the order of images and the
initial weights alike for all methods, so that differences are paired.

    python benchmarks/learning/run.py                 all methods; half an hour on two cores, goes on where it stopped
    python benchmarks/learning/run.py --methods an,en,wan --seeds 2 --epochs 5    a look, printed and not written down
    python benchmarks/learning/run.py --methods se-l --add      measured again or added, all others stay as they were
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("learning", ("training", "data", "models", "memory", "methods", "losses", "scenes", "protocols"))
SIZES = {"train": 600, "val": 200, "test": 400}
CEILING = "full labels"


@dataclass(frozen=True)
class Entry:
    """What takes part: a method with its head's options; the ceiling trains on complete labels."""

    method: str
    head_options: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


def entries() -> dict[str, Entry]:
    """Every method by itself, the terms beside those that they are published with, and the boost.

    FixMatch is left out: it wants pairs of views, which this cache does not have.
    """
    from tagfill.methods import METHODS, TERMS

    boosted, at_inference = {"boost": 5.0}, {"boost": 5.0, "boost_train": False}
    found = {CEILING: Entry("bce", complete=True), "bce-ls, full labels": Entry("bce-ls", complete=True)}
    found |= {name: Entry(name) for name in METHODS if name not in {*TERMS, "fixmatch", "bce", "bce-ls"}}
    found |= {f"{base}+{term}": Entry(f"{base}+{term}") for term in ("cl", "scl") for base in ("an", "en", "ep", "epr")}
    found |= {f"{name} + boost": Entry(name, boosted) for name in ("an", "ll-r", "ll-ct", "ll-cp")}
    found |= {f"{name} + boost at inference": Entry(name, at_inference) for name in ("an", "ll-r")}
    found[f"{CEILING} + boost"] = Entry("bce", boosted, complete=True)
    found[f"{CEILING} + boost at inference"] = Entry("bce", at_inference, complete=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", help="only these, joined by semicolons or commas; writes no file without --add")
    parser.add_argument("--add", action="store_true", help="write them beside the results that there are")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("runs/learning"), help="where runs are kept")
    options = parser.parse_args()
    known = entries()
    joint = ";" if options.methods and ";" in options.methods else ","
    chosen = known if options.methods is None else {name: known[name] for name in options.methods.split(joint)}
    scores, failures = measure(chosen, options)
    results = {
        **RECORD.begin(),
        "sizes": SIZES,
        "epochs": options.epochs,
        "seeds": options.seeds,
        "failures": failures,
        "scores": scores,
    }
    if options.methods is not None:
        if not options.add:
            print(json.dumps(results, indent=2))
            return
        results = with_added(json.loads(RECORD.results.read_text(encoding="utf-8")), results)
    from page import page

    RECORD.write(results, page(results))


def with_added(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Earlier results with some entries replaced or added, and the commit at which those were measured."""
    same = ("sizes", "epochs", "seeds")
    assert all(before[key] == found[key] for key in same), "added entries need the same sizes, epochs and seeds"
    names, commit = sorted(found["scores"]), found["commit"]
    earlier = {at: [name for name in rows if name not in names] for at, rows in before.get("later", {}).items()}
    later = {at: rows for at, rows in earlier.items() if rows and at != commit}
    later[commit] = sorted({*earlier.get(commit, []), *names})
    return {**before, "scores": before["scores"] | found["scores"], "later": later}


def measure(chosen: dict[str, Entry], options: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Test mAP of each, a number a seed; and the sentence of each that refuses this data."""
    jobs = [(name, entry, seed) for seed in range(options.seeds) for name, entry in chosen.items()]
    prepare(options.seeds, options.out)
    scores: dict[str, list[float]] = {name: [] for name in chosen}
    failures: dict[str, str] = {}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        arguments = ([(entry, seed, options.epochs, str(options.out / f"{name.replace(' ', '-')}-s{seed}"))
                      for name, entry, seed in jobs])  # fmt: skip
        for number, ((name, _, seed), outcome) in enumerate(
            zip(jobs, pool.map(train, arguments), strict=True), start=1
        ):
            if isinstance(outcome, str):
                failures[name] = outcome
            else:
                scores[name].append(outcome)
            say(f"{number} of {len(jobs)}: {name}, seed {seed}: {outcome}")
    return {name: values for name, values in scores.items() if name not in failures}, failures


def prepare(seeds: int, out: Path) -> None:
    """The scenes, their features, and a single-positive version for each seed."""
    import tagfill

    data = tagfill.scenes.make(**SIZES)
    tagfill.features(data)
    for seed in range(seeds):
        if not (out / f"single-{seed}" / "dataset.yaml").exists():
            tagfill.protocols.single_positive(data, seed=1200 + seed).save(out / f"single-{seed}")


def train(arguments: tuple[Entry, int, int, str]) -> float | str:
    """Test mAP in percent of one run, made or found; or the sentence with which the method refuses."""
    entry, seed, epochs, folder = arguments
    import tagfill
    from tagfill.errors import TagfillError
    from tagfill.training import resume

    data = tagfill.scenes.make(**SIZES)
    part = tagfill.Dataset.open(Path(folder).parent / f"single-{seed}")
    cache = tagfill.features(data)
    dataset = data if entry.complete else part
    settings = {name: value for name, value in asdict(entry).items() if name in ("method", "head_options")}
    try:
        if (Path(folder) / "run.json").exists():
            run = resume(folder)
        else:
            run = tagfill.train(dataset, features=cache, epochs=epochs, seed=seed, out=folder, **settings)
    except TagfillError as error:
        return str(error)
    return 100 * tagfill.evaluate(run, data, split="test", features=cache.folder).mean


if __name__ == "__main__":
    main()
