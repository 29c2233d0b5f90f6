"""The page of the benchmark, generated from its results, and the section of one device, to be pasted."""

from __future__ import annotations

from typing import Any

TABLES = ("CUDA", "MPS", "CPU")
LOSS_TOLERANCE = 0.01  # relative difference from float32 on the CPU; convolutions of a GPU may use TF32


def page(found: dict[str, dict[str, Any]]) -> str:
    """The page as Markdown.

    Args:
        found: results by device, each a name in `TABLES`.
    """
    missing = [table for table in TABLES[:2] if table not in found]
    lacking = f"Nobody has run it on {' or '.join(missing)} yet.\n\n" if missing else ""
    sections = "\n".join(f"## {table}\n\n{section(results)}" for table, results in found.items())
    return f"""---
orphan: true
---
# What an accelerator does

`python benchmarks/accelerator/run.py` takes about ten minutes on a GPU, needs no download, and prints the tables below
for it. {lacking.strip()} Results are welcome: paste them into an issue, or send
`benchmarks/results/accelerator-cuda.json`. Without an accelerator the script ends with a sentence; `--device cpu` runs
it on the CPU, which shows that it works and nothing about accelerators.

{sections}"""


def section(results: dict[str, Any]) -> str:
    """The results of one device as Markdown."""
    machine = results["machine"]
    failed = failures(results)
    verdict = "Everything passed." if not failed else f"**Failed: {'; '.join(failed)}.**"
    return f"""`{results["command"]}` at commit `{results["commit"]}`: {results["name"]}, {machine["cores"]} cores,
{machine["system"]}, Python {machine["python"]}, torch {machine["torch"]}; {results["minutes"]} minutes. {verdict}

{resuming(results["resuming"])} {processes(results["processes"])}

{throughput(results["throughput"])}

{methods(results["methods"], compared="itself" if results["device"] == "cpu" else "float32 on the CPU")}
"""


def failures(results: dict[str, Any]) -> list[str]:
    """What did not pass, one sentence each."""
    found = []
    for name, outcome in results["methods"].items():
        if "error" in outcome:
            found.append(f"{name} raised {outcome['error']}")
        elif not outcome["finite"]:
            found.append(f"{name} is not finite")
        elif outcome["device"]["loss"] > LOSS_TOLERANCE:
            found.append(f"the loss of {name} differs by {outcome['device']['loss']:.1%}")
    resumed = results["resuming"]
    if "error" in resumed:
        found.append(f"resuming: {resumed['error']}")
    elif resumed["repeats"] and not resumed["same"]:
        found.append("a resumed run ended with other bytes")
    if "error" in results["processes"]:
        found.append(f"two processes: {results['processes']['error']}")
    rates = results["throughput"]["rates"]
    return found + [f"{name} raised {rate['error']}" for name, rate in rates.items() if "error" in rate]


def resuming(found: dict[str, Any]) -> str:
    """What the resumed run ended with."""
    if "error" in found:
        return f"Resuming: {found['error']}."
    if not found["killed"]:
        return "Resuming: the run ended before it could be killed."
    told = f"A run of `en+scl` that was killed after {found['after']} of 6 epochs and resumed ended with"
    if found["same"]:
        return f"{told} the same bytes as one that was not."
    why = "" if found["repeats"] else ", and so did the same run twice: kernels of this device do not repeat their sums"
    return f"{told} other bytes than one that was not{why}."


def processes(found: dict[str, Any]) -> str:
    """What two processes ended with."""
    if "skipped" in found:
        return f"Two processes were not run ({found['skipped']})."
    if "error" in found:
        return f"Two processes: {found['error']}."
    losses = [found[count]["loss"] for count in ("1", "2")]
    return f"The last loss of `en` is {losses[0]:.4f} with one process and {losses[1]:.4f} with two."


def throughput(found: dict[str, Any]) -> str:
    """Images per second."""
    rows = []
    for name, rate in found["rates"].items():
        if "error" in rate:
            rows.append(f"| {name} | failed | – |")
            continue
        memory = "–" if rate["peak_bytes"] is None else f"{rate['peak_bytes'] / 1e9:.1f} GB"
        rows.append(f"| {name} | {rate['images_per_second']:,.0f} | {memory} |")
    return "\n".join(
        [
            f"`an` with `{found['backbone']}` at {found['size']} pixels, {found['images']:,} photos, batches of 32.",
            f"The whole network trains on images, decoded by {found['workers']} workers; its top and its head on",
            "feature caches.",
            "",
            "| trains | images per second | memory |",
            "|---|---:|---:|",
            *rows,
        ]
    )


def methods(found: dict[str, Any], compared: str) -> str:
    """Distances of each method from the CPU in float32, with which float32 on the device is `compared`."""
    rows = []
    for name, outcome in found.items():
        if "error" in outcome:
            rows.append(f"| `{name}` | {outcome['error']} | | | |")
            continue
        cells = [f"{outcome[way][what]:.1e}" for way in ("device", "bfloat16") for what in ("loss", "weights")]
        rows.append(f"| `{name}` | {' | '.join(cells)} |" if outcome["finite"] else f"| `{name}` | not finite | | | |")
    return "\n".join(
        [
            "Each method for a few steps of the whole `test_resnet` of timm at 64 pixels, in bfloat16 compared with",
            f"float32 on the CPU, and in float32 with {compared}: the largest relative difference of an epoch's loss,",
            "and the distance of the final weights, relative to the distance that training moved them.",
            "",
            "| method | loss, float32 | weights, float32 | loss, bfloat16 | weights, bfloat16 |",
            "|---|---:|---:|---:|---:|",
            *rows,
        ]
    )
