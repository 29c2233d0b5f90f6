"""Table A: one positive label per photo, on frozen features."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
from bench import Bench, Write
from jobs import Job
from tables import gain, shown, table

import tagfill
from tagfill.evidence import list_evidence
from tagfill.evidence.models import score_with_prior

ENTRIES = {
    "full": Job("full", "bce"),
    "an": Job("one-{seed}", "an"),
    "ll-r": Job("one-{seed}", "ll-r"),
    "role": Job("one-{seed}", "role"),
    "em": Job("one-{seed}", "em"),
    "wan": Job("one-{seed}", "wan"),
    "an-ls": Job("one-{seed}", "an-ls"),
    "epr": Job("one-{seed}", "epr"),
    "hill": Job("one-{seed}", "hill"),
    "splc": Job("one-{seed}", "splc"),
    "en": Job("one-{seed}", "en"),
    "em-apl": Job("one-{seed}", "em-apl"),
    "ll-ct": Job("one-{seed}", "ll-ct"),
    "ll-cp": Job("one-{seed}", "ll-cp"),
    "en+cl": Job("one-{seed}", "en+cl"),
    "gr": Job("one-{seed}", "gr"),
    "vlpl": Job("one-{seed}", "vlpl"),
    "evidence": Job("one-{seed}", "evidence"),
    "en+scl": Job("one-{seed}", "en+scl", head="cam"),
}
"""Every row, most important first."""

MAPS = {"en+scl": "en+cl"}
"""Rows that train on class maps, many times slower: last, only the first seed, with the rate of another row."""

PAPERS = {"spml-coco14": "BoostLU", "scl-coco14": "SCL"}
"""Recipes with the tables of COCO 2014 and one label per photo, by whole networks."""


def published_draw(data: tagfill.Dataset, drawn: dict[str, str]) -> tagfill.Dataset:
    """Keep the published label of each training photo."""
    from tagfill.labels import LabelMatrix
    from tagfill.protocols.simulate import assemble

    names = data.names()
    classes = np.array([data.classes.index(drawn[name]) for name in names], np.int32)
    starts, ones = np.arange(len(names) + 1, dtype=np.int64), np.ones(len(names), np.int8)
    kept = LabelMatrix(starts, classes, ones, len(data.classes))
    return assemble(data, "published-single-label", kept, seed=0, parameters={})


def dataset(bench: Bench, seed: int) -> str:
    """One label per training photo: the published draw for seed 0, ours for the others; with the ImageNet prior."""
    material = bench.material
    if seed == 0:
        name = material.made("one-0", lambda full: published_draw(full, material.drawn()))
    else:
        name = material.made(
            f"one-{seed}", lambda full: tagfill.protocols.dropped_positives(full, keep="one", seed=seed)
        )
    data = material.open(name)
    if not bench.finished and not list_evidence(data):
        score_with_prior(data, features=material.cache("end"))
    return name


def measure(bench: Bench, write: Write) -> None:
    """Search rates with the first seed, then train the other seeds; written after every row."""
    for seed in range(bench.seeds):
        dataset(bench, seed)
    rows: dict[str, dict[str, Any]] = {}
    chosen: dict[str, Job] = {}
    setting = {"epochs": bench.epochs, "batch": Job("", "").batch, "grid": bench.grid, "seeds": bench.seeds}
    order = [(seed, name) for seed in range(bench.seeds) for name in ENTRIES if name not in MAPS]
    for seed, name in [*order, *((0, name) for name in MAPS)]:
        entry = ENTRIES[name]
        job = replace(entry, data=entry.data.format(seed=seed), seed=seed, epochs=bench.epochs)
        if seed and name not in chosen:
            continue
        relative = chosen.get(name if seed else MAPS.get(name, ""))
        found = bench.tuned(job, None if relative is None else (relative.lr,))
        if found is None:
            continue
        job, scores = found
        chosen[name] = job
        if "refused" in scores:
            rows[name] = {"name": name, "lr": job.lr, "refused": scores["refused"]}
        else:
            row = rows.setdefault(name, {"name": name, "lr": job.lr})
            for key, value in scores.items():
                row.setdefault(key, []).append(value)
        write({"setting": setting, "rows": list(rows.values())})


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, rows = results["setting"], {row["name"]: row for row in results["rows"] if "test" in row}
    listed = sorted(rows.values(), key=lambda row: -mean(row["test"]))
    columns = [
        "method", "rate", "test mAP", "gain over `an`", "gap closed", "with boost at inference",
        "gain over `an` with it", "gap closed", *(f"gain in {paper}'s paper" for paper in PAPERS.values()),
    ]  # fmt: skip
    lines = [
        [f"`{row['name']}`", f"{row['lr']:g}", *cells(row, rows, "test"), *cells(row, rows, "boosted"),
         *(published(recipe, row["name"]) for recipe in PAPERS)]
        for row in listed
    ]  # fmt: skip
    refused = [f"- `{row['name']}`: {row['refused']}" for row in results["rows"] if "refused" in row]
    missing = [f"`{name}`" for name in ENTRIES if name not in {row["name"] for row in results["rows"]}]
    lacking = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    once = [f"`{row['name']}`" for row in listed if len(row["test"]) < setting["seeds"]]
    fewer = f" Only the first seed was run for {', '.join(once)}." if once else ""
    rates = " and ".join(f"{rate:g}" for rate in setting["grid"])
    draws = "drew and published" + (" for the first seed; for the others we drew it" if setting["seeds"] > 1 else "")
    parts = [
        f"""Each training photo has one known label, which Zhang et al. {draws}.
{setting["epochs"]} epochs with batches of {setting["batch"]} photos. Rates are the best of {rates} on validation, with
the first seed and without a boost; `en+scl` has that of `en+cl`. Scores are those of the epoch with the best validation
mAP. Methods have their defaults. The evidence of `vlpl` and `evidence` is the
[ImageNet prior](../evidence.md#scores-that-are-made-here), scores of the same frozen network. With boost: the
same models, whose class maps are boosted by 5 at inference. The boost helps complete labels too, so these scores are
compared with `full` and `an` with the same boost.
*Gap closed* is the share of the way from `an` without a boost (0 %) to the best use of complete labels (100 %), in both
columns.{fewer}{lacking}""",
        table(columns, lines),
        *refused,
    ]
    return "\n\n".join(parts)


def cells(row: dict[str, Any], rows: dict[str, Any], key: str) -> list[str]:
    """Score, gain over AN with the same inference, and share of the gap up to the best use of complete labels."""
    if "an" not in rows:
        return [shown(row[key]), "–", "–"]
    seeds = len(row[key])
    text = gain(row[key], rows["an"][key][:seeds], row["name"])
    if "full" not in rows:
        return [shown(row[key]), text, "–"]
    floor = mean(rows["an"]["test"][:seeds])
    best = max(mean(rows["full"][inference][:seeds]) for inference in ("test", "boosted"))
    return [shown(row[key]), text, f"{(mean(row[key]) - floor) / (best - floor):.0%}"]


def published(recipe: str, name: str) -> str:
    """The gain over AN in a paper."""
    from tagfill.experiments import recipes

    table = recipes.open_recipe(recipe).published
    assert table is not None
    reported = {row: value.reported for row, value in table.rows.items()}
    if name == "an" or reported.get(name) is None:
        return "–"
    return f"{reported[name] - reported['an']:+.2f}"
