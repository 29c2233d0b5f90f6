"""The page about training speed, generated from its results."""

from __future__ import annotations

from typing import Any

FASTER, OVERHEAD, POOLED_OVERHEAD = 1.3, 0.05, 0.25
MEANING = {
    "ordinary": "the plain script",
    "again": "the same again, as a control",
    "channels_last": "+ channels last in memory",
    "kept_memory": "+ freed memory is kept",
    "out_of_place": "+ activations out of place",
    "uint8": "+ pixels transferred as bytes, normalized in the main process",
    "one_call": "+ crop and resize in one call, reduced JPEG decoding",
    "tagfill": "**Tagfill**",
}


def page(results: dict[str, Any]) -> str:
    machine, images = results["machine"], results["images"]
    ours = images["table"]["tagfill"]
    cost, pooled = (longer(results["overhead"][name]) for name in ("images", "pooled features"))
    rendered = results["photos"]["rendered"]
    kind = "rendered scenes with grain, JPEGs of 800×600 at quality 90" if rendered else "of a given folder"
    return f"""---
orphan: true
---
# Training speed

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}) that was also doing other work, in
{results["minutes"]:.0f} minutes. The variants are processes that take turns, one round each, in a
new order every time; ratios are computed within a round, and the tables show medians over rounds. Rates are for this
machine under that load and mean little elsewhere.

## Images, end to end

`tf_efficientnet_lite0` at 224 px, all layers, batches of {results["batch"]}, float32, one torch thread and one
worker process, {results["photos"]["count"]} photos per round ({kind}),
{images["rounds"]} rounds. The plain script is a `DataLoader` with Pillow, torchvision's `RandomResizedCrop`, flip,
`ToTensor` and `Normalize`, with Adam and `BCEWithLogitsLoss`; each `+` changes one thing. CPU time counts all
processes and depends less on other work on the machine.

| | images per second | speedup | range | CPU time speedup |
|---|---:|---:|---:|---:|
{lines(images["table"])}

{control(images)}
Tagfill trains {ours["faster"]:.2f} times as fast as the plain script ({verdict(ours["faster"] >= FASTER)} the target
of {FASTER}). None of these changes what is computed, except that Tagfill resizes bicubically and the script
bilinearly, and that sums in another memory layout differ in their last bits.

Creating one view, in milliseconds of CPU time:

| photo | plain script | Tagfill | ratio |
|---|---:|---:|---:|
{decoding(results["decoding"])}

A JPEG is decoded at a fraction of its size only if that leaves at least twice the pixels that the view needs, which is
the case for large photos.

## Overhead of the engine

The training loop compared with a loop of torch without anything around it, one thread. On images: forward, backward
and step over the same tensors in memory. On pooled features of one view, batches of {results["batch"]}, 80 classes: a
linear layer with Adam and `BCEWithLogitsLoss` that gathers each batch from one matrix in memory, against `an` on a
feature cache on disk.{measured(results, "overhead")}

| | rounds | bare loop, per second | engine, per second | overhead | range |
|---|---:|---:|---:|---:|---:|
{overheads(results["overhead"])}

On images the overhead is {cost:+.1%} ({verdict(cost < OVERHEAD)} the target of {OVERHEAD:.0%}). On pooled features,
where a step is a matrix product of a fraction of a millisecond, it is {pooled:+.1%}
({verdict(pooled < POOLED_OVERHEAD)} the target of {POOLED_OVERHEAD:.0%}).

## Cached features

1,000 images, 80 classes, the `cam` head, batches of {results["batch"]}, one thread, features of two views read from
disk.{measured(results, "cached")}

| method | reads | samples per second | relative to images |
|---|---|---:|---:|
{cached(results)}

A method that needs class maps reads 49 times as many features per image.

## Checkpoints

A save is synced and checksummed. It is compared with writing and syncing one file of random bytes of the same size.
Resuming is everything from the call to the first step, in a process with all imports done.

| method | images × classes | per-image state | checkpoint | save | relative to a plain write | resume |
|---|---:|---:|---:|---:|---:|---:|
{saves(results["checkpoints"])}

ROLE's table and moments are in the checkpoint; the heatmaps of `en+scl` are in a file beside it, of which a checkpoint
holds only the checksum.

## Two processes

Batches of {results["batch"]} photos over all processes, no workers, one thread each,
{results["processes"]["rounds"]} rounds.

| processes | images per second | speedup | range |
|---|---:|---:|---:|
{lines(results["processes"]["table"], cpu=False)}

This is not a promise: two processes share two cores with all other work on the machine.
"""


def measured(results: dict[str, Any], section: str) -> str:
    """When a section was measured, if that was later than the rest."""
    commit = results.get("commits", {}).get(section)
    return "" if commit is None else f" Measured at commit `{commit}`."


def control(images: dict[str, Any]) -> str:
    """What the control rows show."""
    if images.get("bases", 1) == 1:
        return """The control shows the measurement error: a row that differs from 1 by no more than the control
means nothing."""
    return """The base is the mean of the script's two turns in a round. These two rows show the measurement
error: a row that differs from 1 by no more than they do means nothing."""


def lines(table: dict[str, Any], *, cpu: bool = True) -> str:
    rows = (
        f"| {MEANING.get(name, name)} | {own['per_second']:.1f} | {own['faster']:.2f} "
        f"| {own['least']:.2f}–{own['most']:.2f} |" + (f" {own['cpu_faster']:.2f} |" if cpu else "")
        for name, own in table.items()
    )
    return "\n".join(rows)


def decoding(table: list[dict[str, Any]]) -> str:
    rows = (
        f"| {row['size']} | {row['ordinary']:.1f} | {row['tagfill']:.1f} | {row['ordinary'] / row['tagfill']:.2f} |"
        for row in table
    )
    return "\n".join(rows)


def longer(comparison: dict[str, Any]) -> float:
    return float(1 / comparison["table"]["engine"]["faster"] - 1)


def overheads(table: dict[str, Any]) -> str:
    rows = (
        f"| {name} | {own['rounds']} | {own['table']['bare']['per_second']:,.0f} "
        f"| {own['table']['engine']['per_second']:,.0f} "
        f"| {longer(own):+.1%} | {1 / own['table']['engine']['most'] - 1:+.1%} – "
        f"{1 / own['table']['engine']['least'] - 1:+.1%} |"
        for name, own in table.items()
    )
    return "\n".join(rows)


def cached(results: dict[str, Any]) -> str:
    images = results["images"]["table"]["tagfill"]["per_second"]
    rows = (
        f"| `{name}` | {'maps' if 'scl' in name else 'pooled'} | {own['per_second']:,.0f} "
        f"| {own['per_second'] / images:,.0f} |"
        for name, own in results["cached"]["table"].items()
    )
    return "\n".join(rows)


def saves(table: list[dict[str, Any]]) -> str:
    rows = (
        f"| `{row['method']}` | {row['images']:,} × {row['classes']:,} | {row['state_mb']:.1f} MB "
        f"| {row['checkpoint_mb']:.1f} MB | {row['save_seconds']:.2f} s "
        f"| {row['save_seconds'] / row['write_seconds']:.1f} × | {row['resume_seconds']:.1f} s |"
        for row in table
    )
    return "\n".join(rows)


def verdict(holds: bool) -> str:
    return "within" if holds else "missing"
