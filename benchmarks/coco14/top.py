"""Table T: the last stage and the final convolution train too, from cached maps of the stage below."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench import Bench, Write
from single_positives import ENTRIES, cells, dataset
from tables import table

ORDER = ("full", "an", "ll-r", "en+cl", "en+scl", "em", "hill", "role", "wan")
"""Most important first: the ceiling, the floor, the best of table A; then `hill`, `role` and `wan` for comparison."""

EPOCHS, BATCH, RATE = 2, 64, 3e-4


def measure(bench: Bench, write: Write) -> None:
    """One seed; written after every row."""
    dataset(bench, 0)
    rows: dict[str, dict[str, Any]] = {}
    setting = {"epochs": 1 if bench.quick else EPOCHS, "batch": BATCH, "rate": RATE}
    for name in ORDER:
        entry = ENTRIES[name]
        data = entry.data.format(seed=0)
        job = replace(entry, data=data, train="top", epochs=setting["epochs"], batch=BATCH, head="cam")
        found = bench.tuned(job, (RATE,))
        if found is None:
            continue
        scores = found[1]
        listed = {key: [value] for key, value in scores.items()} if "test" in scores else scores
        rows[name] = {"name": name, "lr": RATE, **listed}
        write({"setting": setting, "rows": list(rows.values())})


def section(results: dict[str, Any], heads: dict[str, Any] | None) -> str:
    """What the page says, beside the heads of table A."""
    setting, rows = results["setting"], {row["name"]: row for row in results["rows"] if "test" in row}
    frozen = {} if heads is None else {row["name"]: row for row in heads["rows"] if "test" in row}
    columns = [
        "method", "head alone", "test mAP", "gain over `an`", "gap closed", "head alone, boost",
        "with boost at inference", "gain over `an` with it", "gap closed",
    ]  # fmt: skip
    lines = [
        [f"`{name}`", alone(frozen, name, "test"), *cells(row, rows, "test"), alone(frozen, name, "boosted"),
         *cells(row, rows, "boosted")]
        for name, row in rows.items()
    ]  # fmt: skip
    missing = [f"`{name}`" for name in ORDER if name not in rows]
    lacking = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    return f"""The same labels as the first seed above. `train: top` trains the last stage and the final convolution
from the cached output of `blocks.5`: {setting["epochs"]} epochs, batches of {setting["batch"]}, Adam with rate
{setting["rate"]:g}, ten times that for the head; rates were not searched, one seed. *Head alone* is the first seed
of the table above.

{table(columns, lines)}{lacking}"""


def alone(rows: dict[str, Any], name: str, key: str) -> str:
    """The score of the head on frozen features with the first seed."""
    return f"{rows[name][key][0]:.2f}" if name in rows else "–"
