"""The section about budgets, generated from its results, and its figure."""

from __future__ import annotations

from statistics import mean
from typing import Any

from tables import gains, shown, table

FIGURE = "voc12-budgets.svg"
DRAWN = ("I", "SP", "SP + PatchCluster")
KINDS = ("I", "SP", "SB", "AP", "AB")

PUBLISHED = {
    "1": {"SP": (58.86 - 55.53, 36.54 - 29.96), "SB": (57.36 - 55.53, 33.53 - 29.96)},
    "2": {"SP": (63.29 - 60.57, 38.74 - 32.89), "SB": (61.45 - 60.57, 34.95 - 32.89)},
}
"""PatchML's table 1 on COCO: gains over I in mAP-cls and mAP-loc, by budget."""

PUBLISHED_ADDED = {
    "I + CSL-I": 60.71 - 60.68, "I + FixMatch": 61.35 - 60.68, "I + PatchCluster": 61.38 - 60.68,
    "SP + CSL-I": 63.41 - 63.41, "SP + CSL-P": 63.61 - 63.41, "SP + FixMatch": 63.25 - 63.41,
    "SP + PatchCluster": 65.1 - 63.41,
}  # fmt: skip
"""Its table 3 on COCO at 2 %: gains in mAP-cls over the same labels without what is added."""

Found = dict[str, dict[str, dict[str, list[float]]]]


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    setting, found = results["setting"], results["entries"]
    many = f"{setting['seeds']} {'seed' if setting['seeds'] == 1 else 'seeds'}"
    tried = " and ".join(f"{weight} ({score:.2f})" for weight, score in setting["tried"].items())
    return f"""A budget is a percentage of the cost of labeling every class in every training image. It buys random
pairs with the [protocol](../protocols.md#annotation-budget) `budget`: tags (I), or also a point or a box on one
instance of each present class (SP, SB) or on all of them (AP, AB), at the paper's costs. Points lie on masks if VOC
has them, otherwise near the center of boxes. A `cam` head is trained with `patchml` for {setting["epochs"]} epochs
over all training images, labeled or not, with Adam {setting["rate"]:g} (not searched), {many}; all entries share the
labels, order and initial weights of a seed. mAP-loc compares class maps with boxes. The weight of cells, `w_patch:
{setting["weight"]:g}`, was chosen by validation mAP of SP with the first seed at {setting["searched at"]} %, out of
{tried}; SB, AP and AB use it too. I has no locations and uses only its image loss, as in the paper. The paper's gains
are for a fine-tuned DeiT on COCO, where 1 % is 66,000 labels.

![mAP-cls and mAP-loc against hours of annotation](../images/{FIGURE})

{kinds(found)}

{against_the_paper(found)}### Points and boxes at equal counts

The same pairs of image and class with points and with boxes, as many as the budget buys with boxes.

{equal(found)}

### Additions to tags and to points

Test mAP-cls, and the gain over the same labels without the addition. CSL-I and CSL-P
are options of `patchml` (the latter with `k_patch: 25` and `patch_weights: [24, 1, 1]`, which keeps the
weight of a point); PatchCluster is `patchml+patchcluster`, for I with image features. FixMatch uses weak and strong
views, so it and its baseline have a separate cache, and half of each batch comes from labeled images. CSL-I was
measured with an earlier version, which also took unknown labels of photos without any known label for absent.

{added(found)}"""


def against_the_paper(found: Found) -> str:
    """A remark if tags beat points at every budget."""
    if any(mean(found["SP"][percent]["test"]) >= mean(tags["test"]) for percent, tags in found["I"].items()):
        return ""
    return """On these frozen features points lose to tags of the same cost in mAP-cls, although they gain in the paper
and, with the same code, on [rendered scenes](patches.md). A budget buys fewer points than tags, and validation chose
between only two weights of cells. Presumably a single layer on a frozen network gains little from locations, because
its cells have already seen most of the photo.

"""


def kinds(found: Found) -> str:
    """All kinds at all budgets, beside tags."""
    rows = []
    for percent, base in found["I"].items():
        for kind in KINDS:
            mine = found[kind][percent]
            paper = PUBLISHED.get(percent, {}).get(kind)
            rows.append([
                f"{percent} %, {mean(base['seconds']) / 3600:.2f} h", kind,
                *(f"{mean(mine[key]):,.0f}" for key in ("positives", "negatives")),
                shown(mine["test"]), "–" if kind == "I" else gains(mine["test"], base["test"]),
                shown(mine["loc"]), "–" if kind == "I" else gains(mine["loc"], base["loc"]),
                "–" if paper is None else f"{paper[0]:+.2f}, {paper[1]:+.2f}",
            ])  # fmt: skip
    columns = ["budget", "kind", "positives", "negatives", "mAP-cls", "gain over I", "mAP-loc", "gain over I",
               "gains in the paper"]  # fmt: skip
    return table(columns, rows)


def equal(found: Found) -> str:
    """Points on the pairs that were bought with boxes."""
    rows = []
    for percent, points in found["SP, as many as SB"].items():
        boxes = found["SB"][percent]
        labels = mean(points["positives"]) + mean(points["negatives"])
        row = [f"{percent} %", f"{labels:,.0f}"]
        for key in ("test", "loc"):
            row += [shown(boxes[key]), shown(points[key]), gains(points[key], boxes[key])]
        rows.append(row)
    columns = ["budget of boxes", "labels", "SB, mAP-cls", "SP, mAP-cls", "SP over SB", "SB, mAP-loc", "SP, mAP-loc",
               "SP over SB"]  # fmt: skip
    return table(columns, rows)


def added(found: Found) -> str:
    """Each addition at its budgets, beside what it was added to; by the seeds that all entries have."""
    rows = []
    for percent, fewest in found["I + CSL-I"].items():
        for kind in ("I", "SP"):
            names = [kind, f"{kind} + CSL-I", f"{kind} + CSL-P", f"{kind} + PatchCluster", f"{kind}, pairs",
                     f"{kind} + FixMatch"]  # fmt: skip
            scores = {name: found[name][percent]["test"][: len(fewest["test"])] for name in names if name in found}
            for name, mine in scores.items():
                base = f"{kind}, pairs" if name.endswith("FixMatch") else kind
                over = gains(mine, scores[base]) if "+" in name else "–"
                paper = f"{PUBLISHED_ADDED[name]:+.2f}" if name in PUBLISHED_ADDED else "–"
                rows.append([f"{percent} %", name, shown(mine), over, paper])
    return table(["budget", "entry", "mAP-cls", "gain", "gain in the paper at 2 %"], rows)


def figures(results: dict[str, Any]) -> dict[str, bytes]:
    """Both scores against hours."""
    from tagfill.figures import color, new_panels, svg_file

    figure, panels = new_panels(9.0, 3.4, columns=2)
    for panel, (key, title) in zip(panels, (("test", "mAP-cls"), ("loc", "mAP-loc")), strict=True):
        for position, name in enumerate(DRAWN):
            points = results["entries"][name].values()
            hours = [mean(point["seconds"]) / 3600 for point in points]
            values = [point[key] for point in points]
            panel.plot(hours, [mean(value) for value in values], color=color(position), marker="o", label=name)
            panel.fill_between(hours, [min(value) for value in values], [max(value) for value in values],
                               color=color(position), alpha=0.2, linewidth=0)  # fmt: skip
        panel.set_xlabel("hours of annotation")
        panel.set_ylabel(title)
        panel.grid(True)
    panels[0].legend()
    return {FIGURE: svg_file(figure)}
