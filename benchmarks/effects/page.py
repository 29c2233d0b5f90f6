"""The page about the papers' effects, generated from the runs so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from claims import AN, CLAIMS, GRAPH, OVER_POINTS, OVER_TAGS, Claim
from filling.results import results as other_results
from filling.results import table

TABLES = {
    "1": "One label per photo",
    "2": "Soft Exposure",
    "3": "Points and boxes",
    "4": "Query2Label's head",
}
NAMES = {"lite0": "EfficientNet-Lite0, above `blocks.5`", "resnet50": "ResNet-50, layer4"}

Runs = list[dict[str, Any]]
Scores = dict[int, float]
"""By seed."""


def page(found: dict[str, dict[str, Any]]) -> str:
    parts = [HEADING]
    for number, title in TABLES.items():
        if number in found:
            parts += [f"## {number}. {title}", origin(found[number]), *sections(number, found[number]["runs"])]
    parts += ["## What holds", CONCLUDING, *(sentence(paper, listed, found) for paper, listed in CLAIMS.items())]
    return "\n\n".join(parts) + "\n"


HEADING = """---
orphan: true
---
# The papers' effects with a network that answers

Most of our numbers on photos come from one layer on a frozen network. Here what lies above a cached stage is trained
too ([`train: top`](../training.md#training-the-top-of-a-backbone)), on [VOC 2012](voc12.md) with the same splits and
labels, from whole photos and their mirror images: Adam, ten times the rate for the head, batches of 16, batch norms
frozen, bfloat16, the best epoch by validation mAP. The columns *frozen* are those of a head alone, from
[VOC 2012](voc12.md), which also sees two crops of each photo and trains for more epochs. The rate above the stage is
1e-4; where the column says that several were tried (3e-5, 1e-4, 3e-4), validation chose with the first seed. Scores are
test mAP in percent; gains are paired by seed, ± is the standard error of their mean, and a gain without ± is that of
one seed."""

CONCLUDING = """A claim holds if the mean gain has its sign; in parentheses the gain here, its standard error if there
are several seeds, and the paper's gain if it prints one."""


def origin(results: dict[str, Any]) -> str:
    machine, commits = results["machine"], sorted({run["commit"] for run in results["runs"]})
    return (
        f"Written by `{results['command']}` on a machine with {machine['cores']} cores ({machine['system']}, Python "
        f"{machine['python']}, torch {machine['torch']}), {len(results['runs'])} runs at commits "
        f"{', '.join(f'`{commit}`' for commit in commits)}."
    )


def sections(number: str, runs: Runs) -> list[str]:
    """The tables of each backbone."""
    show = {"1": single_positive, "2": soft_exposure, "3": points, "4": heads}[number]
    parts = []
    for backbone in NAMES:
        if own := [run for run in runs if run["backbone"] == backbone]:
            parts += [f"### {NAMES[backbone]}", show(own)]
    return parts


def chosen(runs: Runs, row: str, at: str = "", key: str = "test") -> Scores:
    """Scores of a row with the rate and options that validation chose with the first seed, by seed."""
    own = [run for run in runs if (run["row"], run["at"]) == (row, at)]
    first = [run for run in own if run["seed"] == 0]
    if not first:
        return {}
    best = max(first, key=lambda run: run["val"])
    return {run["seed"]: run[key] for run in own if (run["lr"], run["options"]) == (best["lr"], best["options"])}


def rate_of(runs: Runs, row: str, at: str = "") -> str:
    """The chosen rate, and how many were tried."""
    tried = [run for run in runs if (run["row"], run["at"], run["seed"]) == (row, at, 0)]
    if not tried:
        return "–"
    best, many = max(tried, key=lambda run: run["val"])["lr"], len({run["lr"] for run in tried})
    return f"{best:g}" + (f", of {many}" if many > 1 else "")


def shown(values: Scores | Sequence[float]) -> str:
    """The mean over seeds.

    >>> shown({0: 1.0, 1: 2.0})
    '1.50'
    """
    listed = list(values.values() if isinstance(values, dict) else values)
    return f"{fmean(listed):.2f}" if listed else "–"


def gain(mine: Scores, base: Scores) -> str:
    """Paired by the seeds that both have.

    >>> gain({0: 3.0, 1: 4.0}, {0: 1.0, 1: 3.0}), gain({0: 1.0}, {})
    ('+1.50 ± 0.50', '–')
    """
    gains = [mine[seed] - base[seed] for seed in sorted(mine.keys() & base.keys())]
    if not gains or mine is base:
        return "–"
    error = f" ± {stdev(gains) / math.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
    return f"{fmean(gains):+.2f}{error}"


def numbered(values: Sequence[float]) -> Scores:
    return dict(enumerate(values))


def single_positive(runs: Runs) -> str:
    frozen = {row["name"]: numbered(row["test"]) for row in (other_results("voc12-a") or {"rows": []})["rows"]
              if "test" in row}  # fmt: skip
    floor = chosen(runs, "an")
    rows = []
    names = dict.fromkeys(run["row"] for run in runs)
    for name in sorted(names, key=lambda name: -fmean(chosen(runs, name).values())):
        mine, head = chosen(runs, name), frozen.get(name, {})
        rows.append([
            f"`{name}`", rate_of(runs, name), f"{len(mine)}", shown(mine), gain(mine, floor) if name != "an" else "–",
            shown(head), gain(head, frozen.get("an", {})) if name != "an" else "–",
            f"{AN[name]:+.2f}" if name in AN else "–",
        ])  # fmt: skip
    columns = ["method", "rate", "seeds", "test mAP", "gain over `an`", "frozen", "frozen, gain", "paper, gain"]
    return f"""{table(columns, rows)}

`full` is trained with all labels. A boost at inference changes `full` and `an` too: with it, the gap between them is
{gain(chosen(runs, "full, boost at inference"), chosen(runs, "an, boost at inference"))}, and `ll-r` gains
{gain(chosen(runs, "ll-r, boost at inference"), chosen(runs, "an, boost at inference"))} over `an`.
`an, float32` is `an` in single precision, to see what bfloat16 changes."""


def soft_exposure(runs: Runs) -> str:
    fractions, hierarchy = other_results("voc12-b1"), other_results("voc12-b2")
    columns = list(dict.fromkeys(run["at"] for run in runs))
    rows, gains = [], []
    for name in dict.fromkeys(run["row"] for run in runs):
        row, over = [f"`{name}`"], [f"`{name}`"]
        for at in columns:
            row.append(shown(chosen(runs, name, at)))
            over.append(gain(chosen(runs, name, at), chosen(runs, "ne", at)) if name != "ne" else "–")
            head, base = (_frozen_fraction(fractions, hierarchy, method, at) for method in (name, "ne"))
            over.append(gain(head, base) if name != "ne" else "–")
        paper = f"{GRAPH[name] - GRAPH['ne']:+.2f}" if name != "ne" else "–"
        rows.append([*row, f"{max(len(chosen(runs, name, at)) for at in columns)}"])
        gains.append([*over, paper])
    both = [title for at in columns for title in (at, f"{at}, frozen")]
    return f"""Test mAP. Percentages are fractions of the positives that are known, with 1 to 1.5 times as many
negatives; the hierarchy has VOC's four groups as parents, verified down to a random depth. The rate is 1e-4
unless several were tried.

{table(["method", *columns, "seeds"], rows)}

Gains over `ne`, which leaves unknown labels out; the paper's are those of its knowledge graph.

{table(["method", *both, "paper"], gains)}"""


def _frozen_fraction(fractions: Any, hierarchy: Any, name: str, at: str) -> Scores:
    if at == "hierarchy":
        return numbered(hierarchy["methods"][name]["mAP"]) if hierarchy and name in hierarchy["methods"] else {}
    found = fractions["methods"].get(name, {}) if fractions else {}
    return numbered(found.get(at.split()[0], {}).get("mAP", []))


def points(runs: Runs) -> str:
    frozen = (other_results("voc12-c") or {"entries": {}})["entries"]
    tried = [run for run in runs if run["row"].startswith("SP, weight")]
    weights = ", ".join(f"{run['row'].split()[-1]} ({run['val']:.2f})" for run in tried)
    rows = []
    for at in sorted({run["at"] for run in runs}, key=lambda at: int(at.split()[0])):
        for name in ("I", "SP", "SB", "AP", "SP + PatchCluster", "SP + CSL-P"):
            if not (mine := chosen(runs, name, at)):
                continue
            row, head = [at, name, f"{len(mine)}"], frozen.get(name, {}).get(at.split()[0], {})
            tags = frozen.get("I", {}).get(at.split()[0], {})
            for key in ("test", "loc"):
                own = chosen(runs, name, at, key)
                row += [shown(own), gain(own, chosen(runs, "I", at, key)) if name != "I" else "–"]
                row.append(gain(numbered(head.get(key, [])), numbered(tags.get(key, []))) if name != "I" else "–")
            paper = OVER_TAGS.get(name) if at == "2 %" else None
            rows.append([*row, "–" if paper is None else f"{paper[0]:+.2f}, {paper[1]:+.2f}"])
    columns = ["budget", "entry", "seeds", "mAP-cls", "gain over I", "frozen, gain", "mAP-loc", "gain over I",
               "frozen, gain", "gains in the paper"]  # fmt: skip
    added = ", ".join(f"{name.removeprefix('SP + ')} {value:+.2f}" for name, value in OVER_POINTS.items())
    return f"""Budgets are percentages of the cost of labeling every class in every training photo; only photos with a
label are visited. Weights of the cells that were tried for SP at 5 %, with their validation mAP: {weights}; the best is
used everywhere. Over SP, the paper has at 2 %: {added}.

{table(columns, rows, left=2)}"""


def heads(runs: Runs) -> str:
    rows = []
    for at in dict.fromkeys(run["at"] for run in runs):
        for train in ("head", "top"):
            layer, query = (chosen(runs, f"{name}, {train}", at) for name in ("one layer", "query"))
            rows.append([at, "frozen" if train == "head" else "top trained", shown(layer), shown(query),
                         gain(query, layer), f"{min(len(layer), len(query))}"])  # fmt: skip
    return table(["labels", "network", "one layer", "query", "gain", "seeds"], rows, left=2)


def sentence(paper: str, listed: list[Claim], found: dict[str, dict[str, Any]]) -> str:
    """One sentence: which of a paper's claims hold here, which do not, and what was tried for those."""
    holds, fails, missing = [], [], []
    for claim in listed:
        runs = [run for run in found.get(claim.table, {"runs": []})["runs"] if run["backbone"] == "lite0"]
        mine, base = (chosen(runs, row, claim.at, claim.key) for row in (claim.row, claim.base))
        seeds = mine.keys() & base.keys()
        if not seeds:
            missing.append(claim.text)
            continue
        paper_gain = "" if claim.paper is None else f"; paper {claim.paper:+.2f}"
        told = f"{claim.text} ({gain(mine, base)}{paper_gain})"
        (holds if fmean(mine[seed] - base[seed] for seed in seeds) > 0 else fails).append(told)
    parts = [
        f"{title} {', '.join(texts)}"
        for title, texts in (("holds here:", holds), ("does not:", fails), ("not measured:", missing))
        if texts
    ]
    tried = f"; tried: {attempts(listed, found)}" if fails else ""
    return f"**{paper}**: {'; '.join(parts)}{tried}."


def attempts(listed: list[Claim], found: dict[str, dict[str, Any]]) -> str:
    """What was varied in the runs behind these claims."""
    numbers = {claim.table for claim in listed}
    rows = {row for claim in listed for row in (claim.row, claim.base)}
    runs = [run for number in numbers if number in found for run in found[number]["runs"] if run["row"] in rows]
    rates = sorted({run["lr"] for run in runs if run["train"] == "top"})
    seeds = len({run["seed"] for run in runs})
    told = [f"rates above the stage {', '.join(f'{rate:g}' for rate in rates)}",
            f"{seeds} {'seed' if seeds == 1 else 'seeds'}"]  # fmt: skip
    weights = {run["row"].split()[-1] for number in numbers if number in found for run in found[number]["runs"]
               if run["row"].startswith("SP, weight")}  # fmt: skip
    if weights:
        told.append(f"weights of the cells {', '.join(sorted(weights, key=float))}")
    return ", ".join(told)
