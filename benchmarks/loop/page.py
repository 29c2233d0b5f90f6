"""The page of the benchmark and its figure, from its results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tagfill.experiments.drawing import TEXT, colour, new_figure, svg_file


def page(results: dict[str, Any]) -> tuple[str, bytes]:
    """The page as Markdown, and the figure."""
    machine, settings, hours = results["machine"], results["settings"], results["hours"]
    scores = {
        order: np.array([[one["mAP"] for one in curve] for curve in curves])
        for order, curves in results["orders"].items()
    }
    labels = {
        order: np.array([[one["labels"] for one in curve] for curve in curves])
        for order, curves in results["orders"].items()
    }
    rows = [
        f"| {hour:g} | "
        + " | ".join(f"{scores[o][:, n].mean():.2f} ± {_spread(scores[o][:, n]):.2f}" for o in scores)
        + " | "
        + " | ".join(f"{labels[o][:, n].mean():,.0f}" for o in labels)
        + " |"
        for n, hour in enumerate(hours)
    ]
    verdicts = [_verdict(order, scores[order][:, 1:] - scores["random"][:, 1:]) for order in ("suggested", "planned")]
    text = f"""# Train, suggest, review, train again

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine of {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

Scenes with one known label an image, cached features, method `{settings["method"]}`, {settings["epochs"]} epochs,
{settings["seeds"]} seeds. A simulated reviewer decides a suggestion in {settings["seconds"]:g} seconds and is wrong in
{100 * settings["wrong"]:g} % of them. Decisions pass through the desk and the log of the review page and become rows;
then a new model is trained, and chooses what comes next, by {settings["folds"]}-fold scores. *Suggested* takes what
`tagfill suggest` ranks first, *planned* what `tagfill plan` chooses (likely and rare), *random* unknown pairs in random
order. Hours are the reviewer's. Full labels give {np.mean(results["full"]):.2f}.

![Test mAP against hours of review](../images/loop.svg)

| hours | {" | ".join([*(f"mAP, {o}" for o in scores), *(f"labels found, {o}" for o in scores)])} |
|---:|{"---:|" * (2 * len(scores))}
{chr(10).join(rows)}

{chr(10).join(verdicts)}
"""
    return text, _figure(results, scores)


def _verdict(order: str, ahead: np.ndarray) -> str:
    return (
        f"- *{order}* is ahead of *random* in {int((ahead > 0).sum())} of {ahead.size} comparisons of the same seed "
        f"and hours, by {ahead.mean():.2f} points in the mean (smallest {ahead.min():.2f}, largest {ahead.max():.2f})."
    )


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _figure(results: dict[str, Any], scores: dict[str, np.ndarray]) -> bytes:
    figure, axes = new_figure(6.0, 3.6)
    for position, (order, values) in enumerate(scores.items()):
        axes.plot(results["hours"], values.mean(0), color=colour(position), marker="o", label=f"{order} order")
        axes.fill_between(
            results["hours"], values.min(0), values.max(0), color=colour(position), alpha=0.2, linewidth=0
        )
    axes.axhline(float(np.mean(results["full"])), color=TEXT, linewidth=1, linestyle=":", label="full labels")
    axes.set_xlabel("hours of review")
    axes.set_ylabel("test mAP")
    axes.legend()
    axes.grid(True)
    return svg_file(figure)
