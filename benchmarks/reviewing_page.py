"""Curves of reviewed labels as a table, in words and as a figure, from results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

Curves = dict[str, np.ndarray]


def curves(results: dict[str, Any], key: str) -> Curves:
    """Of each order: seeds × rounds."""
    return {
        order: np.array([[one[key] for one in curve] for curve in of_seeds])
        for order, of_seeds in results["orders"].items()
    }


def reviewed(results: dict[str, Any]) -> str:
    """mAP and labels found after so many hours, by order."""
    scores, labels = curves(results, "mAP"), curves(results, "labels")
    rows = [
        f"| {hour:g} | "
        + " | ".join(f"{scores[o][:, n].mean():.2f} ± {_spread(scores[o][:, n]):.2f}" for o in scores)
        + " | "
        + " | ".join(f"{labels[o][:, n].mean():,.0f}" for o in labels)
        + " |"
        for n, hour in enumerate(results["hours"])
    ]
    return f"""| hours | {" | ".join([*(f"mAP, {o}" for o in scores), *(f"labels found, {o}" for o in scores)])} |
|---:|{"---:|" * (2 * len(scores))}
{chr(10).join(rows)}"""


def verdicts(results: dict[str, Any]) -> str:
    """How far each order is ahead of the random one."""
    scores = curves(results, "mAP")
    found = []
    for order in [order for order in scores if order != "random"]:
        ahead = scores[order][:, 1:] - scores["random"][:, 1:]
        found.append(
            f"- *{order}* is ahead of *random* in {int((ahead > 0).sum())} of {ahead.size} comparisons of the same "
            f"seed and hours, by {ahead.mean():.2f} points in the mean (smallest {ahead.min():.2f}, largest "
            f"{ahead.max():.2f})."
        )
    return "\n".join(found)


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def figure(results: dict[str, Any]) -> bytes:
    """Test mAP against hours of review."""
    from tagfill.figures import TEXT, color, new_figure, svg_file

    drawn, axes = new_figure(6.0, 3.6)
    hours = results["hours"]
    for position, (order, values) in enumerate(curves(results, "mAP").items()):
        axes.plot(hours, values.mean(0), color=color(position), marker="o", label=f"{order} order")
        axes.fill_between(hours, values.min(0), values.max(0), color=color(position), alpha=0.2, linewidth=0)
    axes.axhline(float(np.mean(results["full"])), color=TEXT, linewidth=1, linestyle=":", label="full labels")
    axes.set_xlabel("hours of review")
    axes.set_ylabel("test mAP")
    axes.legend()
    axes.grid(True)
    return svg_file(drawn)
