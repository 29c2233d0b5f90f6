"""The page about the papers' effects, generated from the runs so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import entries
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
    parts += ["## What holds", CONCLUDING, *(conclusion(paper, listed, found) for paper, listed in CLAIMS.items())]
    return "\n\n".join(parts) + "\n"


HEADING = """---
orphan: true
---
# The papers' effects with the top of a network trained

Most of our numbers on photos come from one layer on a frozen network. Here what lies above a cached stage is trained
too ([`train: top`](../training.md#training-the-top-of-a-backbone)), on [VOC 2012](voc12.md) with the same splits and
labels, from whole photos and their mirror images: Adam, ten times the rate for the head, batches of 16, batch norms
frozen, bfloat16, the best epoch by validation mAP. The columns *frozen* are those of a head alone, from
[VOC 2012](voc12.md), which also sees two crops of each photo and trains for more epochs. The rate above the stage is
1e-4; where several were tried (3e-5, 1e-4, 3e-4), validation chose with the first seed. Scores are test mAP in
percent; gains are paired by seed, ± is the standard error of their mean, and a gain without ± is that of one seed."""

CONCLUDING = """A claim holds if the mean gain has its sign and, with several seeds, exceeds its standard error. One
seed alone decides little. Gains are those with the top of EfficientNet-Lite0 trained."""

VERDICTS = ("holds", "does not hold", "too close to call")
NOT_MEASURED = "not measured with the top"


def origin(results: dict[str, Any]) -> str:
    machine, commits = results["machine"], sorted({run["commit"] for run in results["runs"]})
    return (
        f"Written by `{results['command']}` on a machine with {machine['cores']} cores ({machine['system']}, Python "
        f"{machine['python']}, torch {machine['torch']}); runs: {len(results['runs'])}, at "
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
    rate = rates_of(runs, row, at)[0]
    best = max([run for run in first if run["lr"] == rate] or first, key=lambda run: run["val"])
    return {run["seed"]: run[key] for run in own if (run["lr"], run["options"]) == (best["lr"], best["options"])}


def rates_of(runs: Runs, row: str, at: str) -> list[float]:
    """Rates that were tried for a row, or for the one that decides for it; the one that validation chose first."""
    deciding = entries.decides_rate(row, at)
    tried: dict[float, float] = {}
    for run in runs:
        if (run["row"], run["at"]) == deciding and run["seed"] == 0:
            tried[run["lr"]] = max(run["val"], tried.get(run["lr"], 0.0))
    return sorted(tried, key=lambda rate: -tried[rate]) or [entries.RATE]


def rate_of(runs: Runs, row: str, at: str = "") -> str:
    """The chosen rate, and how many were tried."""
    rates = rates_of(runs, row, at)
    return f"{rates[0]:g}" + (f", of {len(rates)}" if len(rates) > 1 else "")


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
    floor = chosen(runs, "an")
    rows = []
    names = dict.fromkeys(run["row"] for run in runs)
    for name in sorted(names, key=lambda name: -fmean(chosen(runs, name).values())):
        mine, head = chosen(runs, name), frozen_scores("1", name)
        rows.append([
            f"`{name}`", rate_of(runs, name), f"{len(mine)}", shown(mine), gain(mine, floor) if name != "an" else "–",
            shown(head), gain(head, frozen_scores("1", "an")) if name != "an" else "–",
            f"{AN[name]:+.2f}" if name in AN else "–",
        ])  # fmt: skip
    columns = ["method", "rate", "seeds", "test mAP", "gain over `an`", "frozen", "frozen, gain", "paper, gain"]
    boosted = {name: chosen(runs, f"{name}, boost at inference") for name in ("full", "an", "ll-r")}
    remark = (
        "`full` is trained with all labels. `an, float32` is `an` in single precision, to see what bfloat16 changes."
    )
    if all(boosted.values()):
        remark += (
            "\nA boost at inference changes `full` and `an` too: with it, the gap between them is "
            f"{gain(boosted['full'], boosted['an'])}, "
            f"and `ll-r` gains {gain(boosted['ll-r'], boosted['an'])} over `an`."
        )
    elif any(boosted.values()):
        remark += "\nA boost changes `full` and `an` too: compare entries with the same boost."
    missing = [f"`{entry.row}`" for entry in entries.single_positive(seed=0) if entry.row not in names]
    if missing:
        remark += f"\n\nNot run yet: {', '.join(missing)}."
    return f"{table(columns, rows)}\n\n{remark}"


def soft_exposure(runs: Runs) -> str:
    columns = list(dict.fromkeys(run["at"] for run in runs))
    rows, gains = [], []
    for name in dict.fromkeys(run["row"] for run in runs):
        row, over = [f"`{name}`"], [f"`{name}`"]
        for at in columns:
            row.append(shown(chosen(runs, name, at)))
            over.append(gain(chosen(runs, name, at), chosen(runs, "ne", at)) if name != "ne" else "–")
            head, base = (frozen_scores("2", method, at) for method in (name, "ne"))
            over.append(gain(head, base) if name != "ne" else "–")
        paper = f"{GRAPH[name] - GRAPH['ne']:+.2f}" if name != "ne" else "–"
        rows.append([*row, f"{max(len(chosen(runs, name, at)) for at in columns)}"])
        gains.append([*over, paper])
    both = [title for at in columns for title in (at, f"{at}, frozen")]
    searched = "The rate is 1e-4."
    if len(rates_of(runs, "ne", columns[0])) > 1:
        rates = "; ".join(f"`{name}` {chosen_rates(runs, name)}" for name in dict.fromkeys(run["row"] for run in runs))
        searched = f"Rates were searched at 10 %, which decides for 30 % and 50 % too, and in the hierarchy: {rates}."
    return f"""Test mAP. Percentages are fractions of the positives that are known, with 1 to 1.5 times as many
negatives; the hierarchy has VOC's four groups as parents, verified down to a random depth. {searched}

{table(["method", *columns, "seeds"], rows)}

Gains over `ne`, which leaves unknown labels out; the paper's are those of its knowledge graph.

{table(["method", *both, "paper"], gains)}"""


def chosen_rates(runs: Runs, name: str) -> str:
    """Of a method at the first fraction and in the hierarchy."""
    return " and ".join(f"{rates_of(runs, name, at)[0]:g}" for at in ("10 %", entries.HIERARCHY))


def points(runs: Runs) -> str:
    tried = [run for run in runs if run["row"].startswith("SP, weight")]
    weights = ", ".join(f"{run['row'].split()[-1]} ({run['val']:.2f})" for run in tried)
    weighed = "The weight of the cells is 1."
    if tried:
        weighed = f"Weights of the cells were tried for SP at 5 % (validation mAP):\n{weights}; the best is used."
    rows = []
    for at in sorted({run["at"] for run in runs}, key=lambda at: int(at.split()[0])):
        for name in ("I", "SP", "SB", "AP", "SP + PatchCluster", "SP + CSL-P"):
            if not (mine := chosen(runs, name, at)):
                continue
            row = [at, name, rate_of(runs, name, at), f"{len(mine)}"]
            for key in ("test", "loc"):
                own = chosen(runs, name, at, key)
                row += [shown(own), gain(own, chosen(runs, "I", at, key)) if name != "I" else "–"]
                head, tags = (frozen_scores("3", entry, at, key) for entry in (name, "I"))
                row.append(gain(head, tags) if name != "I" else "–")
            paper = OVER_TAGS.get(name) if at == "2 %" else None
            rows.append([*row, "–" if paper is None else f"{paper[0]:+.2f}, {paper[1]:+.2f}"])
    columns = ["budget", "entry", "rate", "seeds", "mAP-cls", "gain over I", "frozen, gain", "mAP-loc", "gain over I",
               "frozen, gain", "gains in the paper"]  # fmt: skip
    added = ", ".join(f"{name.removeprefix('SP + ')} {value:+.2f}" for name, value in OVER_POINTS.items())
    return f"""Budgets are percentages of the cost of labeling every class in every training photo; only photos with a
label are visited, and all of them with PatchCluster. {weighed} Over SP, the paper has at 2 %: {added}.

{table(columns, rows, left=2)}"""


def heads(runs: Runs) -> str:
    rows = []
    for at in dict.fromkeys(run["at"] for run in runs):
        for train in ("head", "top"):
            layer, query = (chosen(runs, f"{name}, {train}", at) for name in ("one layer", "query"))
            rows.append([at, "frozen" if train == "head" else "top trained", shown(layer), shown(query),
                         gain(query, layer), f"{min(len(layer), len(query))}"])  # fmt: skip
    return table(["labels", "network", "one layer", "query", "gain", "seeds"], rows, left=2)


def judged(claim: Claim, found: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """The verdict on a claim, and the gain here: with the top trained, or else with a head alone."""
    runs = [run for run in found.get(claim.table, {"runs": []})["runs"] if run["backbone"] == "lite0"]
    mine, base = (chosen(runs, row, claim.at, claim.key) for row in (claim.row, claim.base))
    if mine.keys() & base.keys():
        return VERDICTS[verdict(mine, base)], gain(mine, base)
    mine, base = (frozen_scores(claim.table, row, claim.at, claim.key) for row in (claim.row, claim.base))
    if mine.keys() & base.keys():
        return NOT_MEASURED, f"frozen: {gain(mine, base)}"
    return NOT_MEASURED, "–"


def conclusion(paper: str, listed: list[Claim], found: dict[str, dict[str, Any]]) -> str:
    """A table of a paper's claims, and a sentence: which hold here, which do not, and what was tried for those."""
    rows = []
    for claim in listed:
        outcome, here = judged(claim, found)
        paper_gain = "–" if claim.paper is None else f"{claim.paper:+.2f}"
        rows.append([f"{claim.text} {claim.place}".strip(), here, paper_gain, outcome])
    columns = ["claim", "gain here", "gain in the paper", "verdict"]
    return f"### {paper}\n\n{table(columns, rows)}\n\n**In one sentence**: {sentence(listed, found)}"


WORDS = {
    VERDICTS[0]: ("it holds that", "that", "and that"),
    VERDICTS[1]: ("it does not hold that", "that", "nor that"),
    VERDICTS[2]: ("it is too close to call whether", "whether", "and whether"),
    NOT_MEASURED: ("it was not measured whether", "whether", "or whether"),
}
"""What comes before the first claim of a verdict, before the next ones, and before the last."""


def sentence(listed: list[Claim], found: dict[str, dict[str, Any]]) -> str:
    """Which claims hold with the top trained, which do not, and what was tried for those."""
    groups: dict[str, list[Claim]] = {name: [] for name in (*VERDICTS, NOT_MEASURED)}
    for claim in listed:
        groups[judged(claim, found)[0]].append(claim)
    told = []
    for outcome, claims in groups.items():
        if claims:
            first, between, last = WORDS[outcome]
            tried = f" (tried: {attempts(listed, found)})" if outcome == VERDICTS[1] else ""
            *some, final = together(claims)
            listing = f"{f', {between} '.join(some)}, {last} {final}" if some else final
            told.append(f"{first} {listing}{tried}")
    text = "; ".join(told)
    return f"{text[:1].upper()}{text[1:]}."


def together(claims: list[Claim]) -> list[str]:
    """Claims in words, those that differ only in the column as one.

    >>> together([Claim("SE beats NE", "2", "se", "ne", at) for at in ("10 %", "30 %", "hierarchy")])
    ['SE beats NE at 10 %, at 30 % and in the hierarchy']
    """
    places: dict[str, list[str]] = {}
    for claim in claims:
        places.setdefault(claim.text, []).append(claim.place)
    listed = []
    for text, where in places.items():
        *some, last = where
        listed.append(f"{text} {', '.join(some)} and {last}" if some else f"{text} {last}".strip())
    return listed


def verdict(mine: Scores, base: Scores) -> int:
    """0 if a gain is positive, 1 if it is negative, 2 if it is smaller than the standard error of its mean.

    >>> verdict({0: 2.0}, {0: 1.0}), verdict({0: 2.0, 1: 0.0}, {0: 1.0, 1: 1.5})
    (0, 2)
    """
    gains = [mine[seed] - base[seed] for seed in mine.keys() & base.keys()]
    if len(gains) > 1 and abs(fmean(gains)) < stdev(gains) / math.sqrt(len(gains)):
        return 2
    return 0 if fmean(gains) > 0 else 1


def frozen_scores(number: str, row: str, at: str = "", key: str = "test") -> Scores:
    """Scores of a head alone, from the results of VOC 2012, by seed."""
    if number == "1":
        rows = (other_results("voc12-a") or {"rows": []})["rows"]
        return next((numbered(one["test"]) for one in rows if one["name"] == row and "test" in one), {})
    if number == "2":
        found = other_results("voc12-b2" if at == "hierarchy" else "voc12-b1") or {"methods": {}}
        own = found["methods"].get(row, {})
        return numbered((own if at == "hierarchy" else own.get(at.split()[0], {})).get("mAP", []))
    if number == "3":
        entries = (other_results("voc12-c") or {"entries": {}})["entries"]
        return numbered(entries.get(row, {}).get(at.split()[0], {}).get(key, []))
    heads = (other_results("voc12-f") or {"heads": {}})["heads"]
    name = {"one layer, head": "linear", "query, head": "query, no self-attention"}.get(row, "")
    return numbered(heads.get(name, {}).get({"all labels": "full", "one label": "AN"}[at], []))


def attempts(listed: list[Claim], found: dict[str, dict[str, Any]]) -> str:
    """What was varied in the runs behind these claims."""
    numbers = {claim.table for claim in listed}
    rows = {row for claim in listed for row in (claim.row, claim.base)}
    runs = [run for number in numbers if number in found for run in found[number]["runs"] if run["row"] in rows]
    rates = sorted({run["lr"] for run in runs if run["train"] == "top"})
    seeds = len({run["seed"] for run in runs})
    told = [
        f"{'rate' if len(rates) == 1 else 'rates'} {', '.join(f'{rate:g}' for rate in rates)} above the stage",
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}",
    ]
    weights = {run["row"].split()[-1] for number in numbers if number in found for run in found[number]["runs"]
               if run["row"].startswith("SP, weight")}  # fmt: skip
    if weights:
        told.append(f"weights of the cells {', '.join(sorted(weights, key=float))}")
    return ", ".join(told)
