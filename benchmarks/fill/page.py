"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

RULES = {
    "fill": "`tagfill fill`",
    "own scores": "the model's own scores, mean at the target",
    "an, 0.5": "`an`, scores of at least 0.5",
}


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, target = results["machine"], results["target"]
    return f"""---
orphan: true
---
# Filling in photos with one tag each

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

Each photo keeps one of its tags, drawn at random; there is no validation split. `tagfill fill` adds tags with its
defaults and `--keep precision={target:g}`, and the complete tags say which are right. Numbers are means over
{draws(results)} draws of tags, with the standard deviation of a draw. *Found* is the share of all missing tags.
The size of the input, the members of `auto`, the ImageNet prior and the constants of the
[estimates](../api/curation.md) were chosen while looking at draws of these photos, so this is no independent test of
them, except for the photos *kept apart*, which were drawn afterward and looked at once.

{chr(10).join(rules(results))}

The second rule takes the scores of the same model on the photos that it was trained on for probabilities. The third
is the simplest that one would write: unknown tags are absent, and a score of 0.5 decides. Asking about pairs at
random finds {chance(results)} of the missing tags with as many questions as `fill` adds tags.

What `fill` says about itself, before anybody has looked:

{chr(10).join(claims(results))}
{sizes(results)}"""


def draws(results: dict[str, Any]) -> str:
    counts = sorted({len(found) for found in results["cases"].values()})
    return " or ".join(map(str, counts))


def rules(results: dict[str, Any]) -> list[str]:
    lines = ["| photos | rule | added | right | found |", "|---|---|---:|---:|---:|"]
    for name, draws in results["cases"].items():
        for rule, title in RULES.items():
            right = [100 * d["rules"][rule]["right"] / max(d["rules"][rule]["added"], 1) for d in draws]
            found = [100 * d["rules"][rule]["right"] / d["missing"] for d in draws]
            added = mean(d["rules"][rule]["added"] for d in draws)
            lines.append(
                f"| {name}, {draws[0]['photos']:,} | {title} | {added:,.0f} | {spread(right)} | {spread(found)} |"
            )
    return lines


def claims(results: dict[str, Any]) -> list[str]:
    lines = [
        "| photos | expected right | right | expected missing | missing | difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, draws in results["cases"].items():
        said = mean(100 * (d["expected_precision"] or 0) for d in draws)
        right = mean(100 * d["rules"]["fill"]["right"] / max(d["rules"]["fill"]["added"], 1) for d in draws)
        expected, missing = (mean(d[key] for d in draws) for key in ("expected_missing", "missing"))
        off = mean(100 * (d["expected_missing"] / d["missing"] - 1) for d in draws)
        lines.append(f"| {name} | {said:.0f} % | {right:.0f} % | {expected:,.0f} | {missing:,.0f} | {off:+.0f} % |")
    return lines


def sizes(results: dict[str, Any]) -> str:
    if not results.get("sizes"):
        return ""
    lines = ["| photos | pixels | added | right | found |", "|---|---:|---:|---:|---:|"]
    for name, measured in results["sizes"].items():
        for size, one in sorted(measured.items(), key=lambda item: int(item[0])):
            rule = one["rules"]["fill"]
            right, found = 100 * rule["right"] / max(rule["added"], 1), 100 * rule["right"] / one["missing"]
            lines.append(f"| {name} | {size} | {rule['added']:,} | {right:.1f} % | {found:.1f} % |")
    rows = chr(10).join(lines)
    return f"""
The size of the input, measured at commit `{results["sizes_commit"]}` with the first draw of tags. The network was
trained at 224 pixels, and 320 is the default:

{rows}
"""


def chance(results: dict[str, Any]) -> str:
    shares = [
        f"{100 * mean(d['rules']['fill']['added'] / d['unknown'] for d in draws):.1f} % ({name})"
        for name, draws in results["cases"].items()
    ]
    return ", ".join(shares)


def spread(values: list[float]) -> str:
    return f"{mean(values):.1f} %" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
