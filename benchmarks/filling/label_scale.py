"""Time and memory of the label side at growing numbers of photos.

<!-- numbers: scale -->
"""

from __future__ import annotations

from typing import Any

from filling.machines import written
from filling.results import results, table

PHASES = {
    "import": "import a Parquet table into a dataset folder",
    "validate": "open the folder and check all rows",
    "resolve": "rows to a label matrix",
    "shard": "divide the matrix among {machines} machines",
    "sample": "plan an epoch of one machine",
    "suggest": "the best 100 pairs per class from files of predictions",
}
LIMIT_GB = 16


def scale(arguments: str, top: str) -> str:
    """Microseconds per row and peak memory of each phase, by size."""
    del arguments, top
    found = results("scale")
    assert found is not None, "run python benchmarks/scale/run.py first"
    sizes = {int(photos): phases for photos, phases in found["sizes"].items()}
    machines = next(iter(sizes.values()))["shard"]["machines"]
    rows = [
        [title.format(machines=machines), *(cell(phases.get(phase)) for phases in sizes.values())]
        for phase, title in PHASES.items()
    ]
    head = ["phase, as a process of its own", *(f"{photos / 1e6:.0f} million photos" for photos in sizes)]
    counts = [f"{phases['import']['rows'] / 1e6:.0f} million" for phases in sizes.values() if "import" in phases]
    return f"""{table(head, rows)}

Microseconds of processor time per row, and the largest memory of the process. Rows are annotations (for the last phase,
predictions); there are {", ".join(counts[:-1])} and {counts[-1]} of them, and 20,000 classes. {verdict(sizes)}

{written(found)}"""


def cell(phase: dict[str, Any] | None) -> str:
    """
    >>> cell({"cpu_seconds": 10.0, "rows": 4_000_000, "peak_bytes": 1.5e9})
    '2.50 µs, 1.5 GB'
    """
    if phase is None:
        return "not run"
    return f"{1e6 * phase['cpu_seconds'] / phase['rows']:.2f} µs, {phase['peak_bytes'] / 1e9:.1f} GB"


def verdict(sizes: dict[int, dict[str, Any]]) -> str:
    """Whether memory and the cost of a row stay within their limits."""
    peak = max(phase["peak_bytes"] for phases in sizes.values() for phase in phases.values()) / 1e9
    (small, first), *_, (large, last) = [
        (photos, phases) for photos, phases in sizes.items() if PHASES.keys() <= phases.keys()
    ]
    ratio = total(last) / total(first)
    judged = "within" if peak <= LIMIT_GB else "above"
    return (
        f"The highest peak is {peak:.1f} GB ({judged} the limit of {LIMIT_GB} GB). From "
        f"{small / 1e6:.0f} to {large / 1e6:.0f} million photos, the cost of a row in all phases together changes by a "
        f"factor of {ratio:.2f}."
    )


def total(phases: dict[str, Any]) -> float:
    """Seconds per row over all phases."""
    return float(sum(phases[name]["cpu_seconds"] / phases[name]["rows"] for name in PHASES))
