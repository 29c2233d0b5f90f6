"""The page about training the top of a backbone, generated from its results."""

from __future__ import annotations

from typing import Any

TARGETS = {"tf_efficientnet_lite0": 4.0, "resnet50": 3.0}
MORE_MEMORY = 1500.0  # megabytes that the top may take in addition to a head
NAMES = {
    "plain": "plain script: lower stages frozen, decoded and computed in every epoch",
    "head": "head, from cached features",
    "top": "**top, from a cached stage**",
    "top, bfloat16": "the same in bfloat16 (`--set precision=bfloat16`)",
    "whole": "whole network, on images",
}


def page(results: dict[str, Any]) -> str:
    parts = [HEADING, *([rates(results["rates"])] if "rates" in results else [])]
    return "\n".join([*parts, *([storage(results["storage"])] if "storage" in results else [])])


HEADING = """---
orphan: true
---
# Training the top of a backbone

[`train: top`](../training.md#training-the-top-of-a-backbone) trains what lies above a cached stage of the backbone.
"""


def rates(results: dict[str, Any]) -> str:
    machine = results["machine"]
    text = f"""## Speed and memory

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}) that was also doing other work. Batches of
{results["batch"]}, 224 px, one torch thread, {results["photos"]} JPEGs of 800×600 per round; the plain script and the
whole network decode them in one more process. The variants are processes that take turns; ratios are within a round,
and the tables show medians over rounds. CPU time counts all processes and depends less on other work on the machine.
Memory is the peak of the training process.
"""
    return text + "".join(table(name, found) for name, found in results["backbones"].items())


def table(name: str, found: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {NAMES[kind]} | {own['per_second']:.1f} | {own['faster']:.2f} | {own['least']:.2f}–{own['most']:.2f} "
        f"| {own['cpu_faster']:.2f} | {own['peak_megabytes']:,.0f} |"
        for kind, own in found["table"].items()
    )
    top, head = found["table"]["top"], found["table"]["head"]
    more = top["peak_megabytes"] - head["peak_megabytes"]
    return f"""
### {name}, above `{found["at"]}`

{found["rounds"]} rounds; a cached view of the stage takes {found["bytes_per_view"]:,} bytes ({found["dtype"]}).

| | images per second | times the plain script | range | by CPU time | MB |
|---|---:|---:|---:|---:|---:|
{rows}

The top trains {top["faster"]:.1f} times as fast as the plain script ({verdict(top["faster"] >= TARGETS[name])} the
target of {TARGETS[name]:g}), and takes {more:,.0f} MB more than a head ({verdict(more <= MORE_MEMORY)} the target
of at most {MORE_MEMORY:,.0f}).
"""


def storage(results: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| `{case['backbone']}`, `{case['at']}` | {case['images']:,} | {case['float32']['mAP']:.2f} "
        f"| {difference(case, 'float16')} | {difference(case, 'uint8')} "
        f"| {100 * case['uint8']['change_of_pooled']:.2f} % |"
        for case in results["cases"].values()
    )
    return f"""## What 8 bits cost

Written by `{results["command"]}` at commit `{results["commit"]}`. The output of the stage is stored in single or half
precision or in 8 bits, the rest of the frozen backbone turns it into features, and a linear head is trained on those of
training photos of VOC 2012 with all labels and scored on as many validation photos. mAP is the mean of three seeds, in
percent; differences are between the same seeds, with their range. The last column is the change of the pooled features
by 8 bits (root mean square).

| stage | photos | mAP, single precision | half precision | 8 bits | change |
|---|---:|---:|---:|---:|---:|
{rows}
"""


def difference(case: dict[str, Any], kind: str) -> str:
    exact, own = case["float32"]["by_seed"], case[kind]["by_seed"]
    differences = [after - before for before, after in zip(exact, own, strict=True)]
    mean = sum(differences) / len(differences)
    return f"{mean:+.3f} ({min(differences):+.3f} to {max(differences):+.3f})"


def verdict(reached: bool) -> str:
    return "reaching" if reached else "missing"
