"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

import numpy as np
from reviewing_page import reviewed, verdicts


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, settings = results["machine"], results["settings"]
    return f"""# Train, suggest, review, train again

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

Scenes with one known label per image, cached features, method `{settings["method"]}`, {settings["epochs"]} epochs,
{settings["seeds"]} seeds. A simulated reviewer decides a suggestion in {settings["seconds"]:g} seconds and is wrong in
{100 * settings["wrong"]:g} % of the cases. Decisions go through the session and the log of the review page and become
rows; then a new model is trained and selects the next suggestions by {settings["folds"]}-fold scores. *Suggested*
uses the order of `tagfill suggest`, *planned* the choice of `tagfill plan` (likely and rare), *random* unknown pairs
in random order. Hours are review time. Full labels reach {np.mean(results["full"]):.2f}.

![Test mAP against hours of review](../images/loop.svg)

{reviewed(results)}

{verdicts(results)}
"""
