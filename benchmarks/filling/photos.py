"""Tables of the VOC 2012 benchmark other than single positives, if they were run.

<!-- numbers: budgets I;SP;SP + PatchCluster -->
<!-- numbers: whole an;en+scl;full -->
<!-- numbers: heads -->
<!-- numbers: calibration auto;an -->
"""

from __future__ import annotations

from filling.results import gain, mean, results, table


def budgets(arguments: str, top: str) -> str:
    """Tags, points and boxes at equal cost: one column per budget, and mAP-loc if it was scored."""
    found = results("voc12-c")
    if found is None:
        return "Not measured on photos yet."
    entries = {name: found["entries"][name] for name in arguments.split(";") if name in found["entries"]}
    percents = sorted({percent for entry in entries.values() for percent in entry}, key=float)
    head = ["entry", *(f"mAP-cls, {percent} %" for percent in percents), *(f"mAP-loc, {p} %" for p in percents)]
    rows = [
        [name, *_cells(entry, "test", percents), *_cells(entry, "loc", percents)] for name, entry in entries.items()
    ]
    legend = f"""[VOC 2012]({top}benchmarks/voc12.md): photos; budgets are shares of the cost of complete labels;
means over {found["setting"]["seeds"]} seeds. I are tags, SP and SB points and boxes on one instance, AP and AB on
all."""
    return f"{table(head, rows)}\n\n{legend}"


def whole(arguments: str, top: str) -> str:
    """One positive per image: the head alone and the whole network."""
    found = results("voc12-d1")
    if found is None:
        return ""
    names = [name for name in arguments.split(";") if name in found["whole"]]
    rows = [
        [f"`{name}`", *(cell for part in ("head", "whole") for cell in _beside(found[part], name))] for name in names
    ]
    legend = f"""[VOC 2012]({top}benchmarks/voc12.md): photos of {found["setting"]["side"]} pixels, one positive each;
the head on frozen features, then the whole network (one seed)."""
    head = ["method", "head alone, mAP", "gain over `an`", "whole network, mAP", "gain over `an`"]
    return f"{table(head, rows)}\n\n{legend}"


def scratch(arguments: str, top: str) -> str:
    """Scenes with one positive per image, a whole network from random weights."""
    found = results("voc12-d2")
    if found is None:
        return ""
    rows = [
        [f"`{name}`", *_beside(found["methods"], name)] for name in arguments.split(";") if name in found["methods"]
    ]
    legend = f"""[Scenes of {found["setting"]["side"]} pixels]({top}benchmarks/voc12.md), one positive each, a network
trained from random weights with real crops for {found["setting"]["epochs"]} epochs, {found["setting"]["seeds"]} seeds;
chance level is {found["chance"]:.1f}."""
    return f"{table(['method', 'from random weights, mAP', 'gain over `an`'], rows)}\n\n{legend}"


def calibration(arguments: str, top: str) -> str:
    """Calibration error and number of labels that probabilities say, with and without calibration."""
    found = results("voc12-g")
    if found is None:
        return ""
    rows = []
    for name in arguments.split(";"):
        told = found["methods"][name]
        for source, title in (("measured", "measured on validation"), ("estimated", "estimated, without validation")):
            raw, calibrated = told[f"raw, {source}"], told[source]
            cells = [f"{each['ECE']:.1f} %, {each['labels_per_image']:.2f}" for each in (raw, calibrated)]
            rows.append([f"`{name}`", title, *cells])
    legend = f"""Expected calibration error on the test photos of [VOC 2012]({top}benchmarks/voc12.md), and labels per
photo that the probabilities add up to; {found["labels_per_image"]:.2f} are true. Trained with one tag per photo, one
seed."""
    return f"{table(['method', 'calibration', 'without it', 'with it'], rows)}\n\n{legend}"


def heads(arguments: str, top: str) -> str:
    """Heads on the same features: score, size and cost."""
    found = results("voc12-f")
    if found is None:
        return ""
    names = arguments.split(";") if arguments else list(found["heads"])
    ways = list(found["heads"][names[0]])
    rows = []
    for name in names:
        cost = found["costs"].get(name)
        told = ["–"] * 2 if cost is None else [f"{cost['parameters']:,}", f"{cost['images a second']:,.0f}"]
        scores = (found["heads"][name].get(way) for way in ways)
        rows.append([name, *(mean(values) if values else "–" for values in scores), *told])
    legend = f"""[VOC 2012]({top}benchmarks/voc12.md), frozen features of whole photos; all labels, and one positive
each with three methods. One layer: {found["setting"]["epochs"]} epochs, {found["setting"]["seeds"]} seeds. `query`:
{found["setting"]["epochs of query"]} epochs, one seed. Images per second are for training on one core."""
    return f"{table(['head', *ways, 'parameters', 'images per second'], rows)}\n\n{legend}"


def _cells(entry: dict[str, dict[str, list[float]]], key: str, percents: list[str]) -> list[str]:
    return [mean(entry[percent][key]) if key in entry.get(percent, {}) else "–" for percent in percents]


def _beside(scores: dict[str, list[float]], name: str) -> tuple[str, str]:
    return mean(scores[name]), "–" if name == "an" else gain(scores[name], scores["an"])
