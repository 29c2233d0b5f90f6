"""The page about feature caches and heads, generated from its results."""

from __future__ import annotations

from typing import Any

FASTER, LARGER = 1.5, 0.01
TARGETS = {"linear": 50, "cam, boost": 30, "tscam": 30}  # a query head is a network in itself
MEANING = {
    "ordinary": "the plain script",
    "again": "the same again, as a control",
    "channels_last": "+ channels last in memory",
    "kept_memory": "+ freed memory is kept",
    "inference_mode": "+ `inference_mode` instead of `no_grad`",
    "bytes": "+ pixels transferred as bytes, normalized in the main process",
    "one_call": "+ crop and resize in one call, reduced JPEG decoding",
    "tagfill": "**Tagfill**",
}


def page(results: dict[str, Any]) -> str:
    machine, extraction, size = results["machine"], results["extraction"], results["size"]
    ours = extraction["table"]["tagfill"]
    larger = size["bytes"] / size["stated_bytes"] - 1
    kind = "rendered scenes with grain, JPEGs of 800×600" if results["photos"]["rendered"] else "of a given folder"
    return f"""---
orphan: true
---
# Feature caches and heads

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}) in {results["minutes"]:.0f} minutes.
The variants are processes that take turns, one round each, in a new order every time; ratios are computed within a
round, and the tables show medians over rounds. Rates and times are for this machine and mean little elsewhere.

## Extraction

`{results["backbone"]}` at {results["side"]} px, {results["photos"]["count"]} photos per round ({kind}), batches of 32,
one torch thread and one worker process, {extraction["rounds"]} rounds. The plain script is a `DataLoader` with
Pillow, torchvision's bicubic `Resize`, `ToTensor` and `Normalize`, timm's `forward_features` under `no_grad`, and
`np.save` of maps in half precision and of their means; each `+` changes one thing. A round of Tagfill ends when
the cache is on disk, synced and hashed.

| | images per second | speedup | range | CPU time speedup | peak memory |
|---|---:|---:|---:|---:|---:|
{extraction_rows(extraction["table"])}

The control shows the measurement error: a row that differs from 1 by no more than the control means nothing. Tagfill
extracts {ours["faster"]:.2f} times as fast as the plain script ({verdict(ours["faster"] >= FASTER)} the target of
{FASTER}).

## Size of a cache

The stated size of a view of an image is {size["stated_bytes"]:,} bytes ({size["dtype"]} maps, pooled features,
geometry). {size["views"]} views take {size["bytes"]:,.0f} bytes each, counting all files: {larger:+.2%}
({verdict(larger <= LARGER)} the target of {LARGER:.0%}; the excess shrinks with the number of images).

## Training a head

Tagfill's training with the method `an`, {results["classes"]} classes, batches of {results["batch"]}, one thread: on
images through the frozen backbone (one worker process decodes), compared with the same head on a cache. `linear`
reads pooled features, the others maps. The `query` head has no target: its transformer is most of its cost, with a
cache or without.

| head | images per second | cached, per second | speedup | range | target | peak memory, images | cached |
|---|---:|---:|---:|---:|---|---:|---:|
{training_rows(results["training"])}

## Cost of heads

Forward and backward over the same maps of 7×7 cells and 1,280 channels, batches of {results["batch"]},
{results["classes"]} classes, one thread, {results["heads"]["rounds"]} rounds of 20 steps; times are per step. Memory
is the memory of the process beyond features and weights.

| head | forward | relative to `linear` | backward | relative to `linear` | memory |
|---|---:|---:|---:|---:|---:|
{head_rows(results["heads"]["table"])}

`linear` and `cam` average the features first if maps are not needed; `cam` with a boost, and every head that computes
maps, classifies each cell.
"""


def extraction_rows(table: dict[str, Any]) -> str:
    rows = (
        f"| {MEANING.get(name, name)} | {own['per_second']:.1f} | {own['faster']:.2f} "
        f"| {own['least']:.2f}–{own['most']:.2f} | {own['cpu_faster']:.2f} | {own['peak_mb']:,.0f} MB |"
        for name, own in table.items()
    )
    return "\n".join(rows)


def training_rows(table: dict[str, Any]) -> str:
    rows = []
    for name, own in table.items():
        images, cache = own["table"]["images"], own["table"]["cache"]
        target = TARGETS.get(name)
        reached = "–" if target is None else f"{target}, {verdict(cache['faster'] >= target)}"
        rows.append(
            f"| {name} | {images['per_second']:.1f} | {cache['per_second']:,.0f} | {cache['faster']:,.0f} "
            f"| {cache['least']:,.0f}–{cache['most']:,.0f} | {reached} "
            f"| {own['peak_mb']['images']:,.0f} MB | {own['peak_mb']['cache']:,.0f} MB |"
        )
    return "\n".join(rows)


def head_rows(table: dict[str, Any]) -> str:
    rows = (
        f"| {name} | {own['forward_ms']:.2f} ms | {own['forward_times']:.2f} × | {own['backward_ms']:.2f} ms "
        f"| {own['backward_times']:.2f} × | {own['peak_mb']:,.0f} MB |"
        for name, own in table.items()
    )
    return "\n".join(rows)


def verdict(holds: bool) -> str:
    return "within" if holds else "missing"
