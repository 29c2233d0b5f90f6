"""The page about decoders of photos, generated from its results."""

from __future__ import annotations

from statistics import median
from typing import Any

PER_SECOND = 8  # photos of 12 megapixels on one core
WORTH = 1.2  # times as fast as Pillow: from there on, a library is worth another dependency


def page(results: dict[str, Any]) -> str:
    machine, photos = results["machine"], results["photos"]
    kind = "rendered scenes with grain, quality 90" if photos["rendered"] else "of a given folder"
    missing = "".join(f" Not available here: {name}." for name in results["missing"])
    return f"""---
orphan: true
---
# Decoding photos

Written by `{results["command"]}` at commit `{results["commit"]}` on a machine with {machine["cores"]} cores
({machine["system"]}, Python {machine["python"]}, Pillow {machine["pillow"]} with
libjpeg-turbo {machine["libjpeg-turbo"]}, torchvision {machine["torchvision"]}) that was also doing other work.

{photos["count"]} JPEGs of {photos["megapixels"]:.0f} megapixels and {photos["megabytes"]:.1f} MB on average ({kind}),
CPU time of one thread. Decoders take turns in a new order each round; numbers are medians over
{len(results["milliseconds"]["Pillow"])} rounds, and ratios are within a round. "Reduced" decodes a quarter
of each side, which is what Tagfill does with such a photo for a view of 224 pixels.
The last column is the largest difference of a pixel's value (0 to 255) from Pillow's.{missing}

| decoder | ms per photo | photos per second | relative to Pillow | range | difference |
|---|---:|---:|---:|---:|---:|
{chr(10).join(row(results, name) for name in results["milliseconds"])}

Reduced rows are relative to Pillow's reduced row. The row "Tagfill" reads the file, checks it, decodes it reduced and
resizes it to 224 pixels; `Pillow again` is the control.

{verdict(results)}
"""


def ratios(results: dict[str, Any], name: str) -> list[float]:
    """How many times as fast as Pillow at the same size, in each round."""
    base = "Pillow, reduced" if name.endswith("reduced") else "Pillow"
    pairs = zip(results["milliseconds"][base], results["milliseconds"][name], strict=True)
    return [theirs / own for theirs, own in pairs]


def row(results: dict[str, Any], name: str) -> str:
    taken, faster = median(results["milliseconds"][name]), ratios(results, name)
    difference = results["difference"].get(name)
    return (
        f"| {name} | {taken:.1f} | {1000 / taken:.1f} | {median(faster):.2f} | {min(faster):.2f}–{max(faster):.2f} "
        f"| {'–' if difference is None else difference} |"
    )


def verdict(results: dict[str, Any]) -> str:
    speed = 1000 / median(results["milliseconds"]["Tagfill"])
    target = (
        f"Tagfill makes views of {speed:.1f} photos per second on one core "
        f"({held(speed >= PER_SECOND)} the target of {PER_SECOND})."
    )
    others = [name for name in results["milliseconds"] if not name.startswith(("Pillow", "Tagfill"))]
    reduced = [name for name in others if name.endswith("reduced")]
    if not reduced:
        return target
    best = max(reduced, key=lambda name: median(ratios(results, name)))
    faster = median(ratios(results, best))
    library = best.partition(",")[0]
    whole = median(ratios(results, library))
    advice = f"From {WORTH} times on, it would be worth a dependency."
    if faster < WORTH:
        advice = f"""Tagfill has no extra for it: less than {WORTH} times for large photos is not worth a second
decoder of untrusted files."""
    return f"""{target}

The fastest other decoder for views is {library}: {faster:.2f} times as fast as Pillow, and {whole:.2f}
times at full size, which counts where photos are too small to be reduced. {advice}"""


def held(holds: bool) -> str:
    return "within" if holds else "missing"
