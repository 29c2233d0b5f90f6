"""The page of the benchmark, generated from its results."""

from __future__ import annotations

from typing import Any

import numpy as np


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    machine, rows = results["machine"], results["cases"]
    short, long = results["short"], results["epochs"]
    gains = [
        [one["chosen"]["AUC"]["test"][at] - one[last] for at, last in ((1, "short"), (0, "long"), (0, "short"))]
        for case in rows
        for one in case["methods"]
    ]
    of_short, of_long, instead = np.transpose(gains)
    return f"""---
orphan: true
---
# The number of epochs without complete labels

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}).

Linear heads on frozen features are trained on photos with one tag each, for {long} epochs. After each epoch, the test
mAP is measured on other photos with complete labels. *AUC* and *mAP* are those of the known tags of held-out photos,
from {results["folds"]} folds; each chooses an epoch as `tagfill train --cross-fit-epochs` does, which uses the AUC.

Test mAP after {short} and {long} epochs, after the chosen one of {long} (its number in brackets), and after the best:

| data | photos | method | {short} epochs | {long} epochs | chosen by AUC | chosen by mAP | best |
|---|---:|---|---:|---:|---:|---:|---:|
{chr(10).join(line(case, one) for case in rows for one in case["methods"])}

- The choice among {long} epochs differs from the last one by {of_long.mean():+.1f} points on average
  ({of_long.min():+.1f} to {of_long.max():+.1f}): methods memorize which tags are missing. It differs from {short}
  epochs by {instead.mean():+.1f} ({instead.min():+.1f} to {instead.max():+.1f}); rendered scenes need
  more epochs than photos.
- The choice among {short} epochs differs from the last one by {of_short.mean():+.2f} points ({of_short.min():+.1f} to
  {of_short.max():+.1f}). So {short} epochs remain the default, without a choice.
- {agreement(rows)}
"""


def line(case: dict[str, Any], one: dict[str, Any]) -> str:
    """A row of the table."""
    chosen = [f"{one['chosen'][name]['test'][0]:.1f} ({one['chosen'][name]['epochs'][0]})" for name in ("AUC", "mAP")]
    best = f"{one['best']:.1f} ({one['best_epoch']})"
    cells = [f"{case['photos']:,}", f"`{one['method']}`", f"{one['short']:.1f}", f"{one['long']:.1f}", *chosen, best]
    return f"| {case['case']} | {' | '.join(cells)} |"


def agreement(rows: list[dict[str, Any]]) -> str:
    """How often the rules choose the method that is best on test photos."""
    right = {"AUC": 0, "mAP": 0}
    for case in rows:
        names = [one["method"] for one in case["methods"]]
        best = names[int(np.argmax([one["short"] for one in case["methods"]]))]
        for name in right:
            scores = [one["chosen"][name]["of_short"] for one in case["methods"]]
            right[name] += names[int(np.argmax(scores))] == best
    return (
        f"Among the methods of a draw, the AUC of known tags chooses the one that is best on test photos in "
        f"{right['AUC']} of {len(rows)} draws, their mAP in {right['mAP']}."
    )
