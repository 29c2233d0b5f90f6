"""Points and tags at equal cost on scenes.

<!-- numbers: points 10 I;SP;SP, PatchCluster -->
<!-- numbers: budget-defaults -->
"""

from __future__ import annotations

from filling.results import gain, mean, results, table


def points(arguments: str, top: str) -> str:
    """Entries at one budget, in percent of the cost of all labels, compared with tags."""
    budget, _, entries = arguments.partition(" ")
    found = results("patches")
    if found is None:
        return ""
    study = found["run"]
    scores = study["budgets"][budget]
    floor = scores["I"]
    rows = [
        [
            name,
            *(
                cell
                for key in ("cls", "loc_boxes")
                for cell in (mean(scores[name][key]), "–" if name == "I" else gain(scores[name][key], floor[key]))
            ),
        ]
        for name in entries.split(";")
    ]
    return f"""{table(["entry", "mAP-cls", "gain over I", "mAP-loc", "gain over I"], rows)}

[Scenes]({top}benchmarks/patches.md): {study["sizes"]["train"]} images, {budget} % of the cost of complete labels,
{study["seeds"]} seeds; I are tags, SP a point on one instance of each present class, at equal annotation time.
Gains are paired by seed, ± is the standard error of their mean."""


def budget_defaults(arguments: str, top: str) -> str:
    """Tags and points by `tagfill budget` with its defaults."""
    found = results("patches")
    if found is None or "defaults" not in found:
        return ""
    study = found["defaults"]
    floor = study["scores"]["I"]
    rows = [
        [
            name,
            *(
                cell
                for key in ("cls", "loc")
                for cell in (mean(scores[key]), "–" if name == "I" else gain(scores[key], floor[key]))
            ),
        ]
        for name, scores in study["scores"].items()
    ]
    return f"""{table(["kind", "mAP-cls", "gain over I", "mAP-loc", "gain over I"], rows)}

[Scenes]({top}benchmarks/patches.md#the-command-with-its-defaults): {study["sizes"]["train"]} images,
{study["budget"]:g} % of the cost of complete labels, {study["seeds"]} seeds, mAP-loc against masks. Gains are paired by
seed, ± is the standard error of their mean."""
