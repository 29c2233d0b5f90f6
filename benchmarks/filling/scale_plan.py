"""A plan for datasets larger than any that was measured, from measured costs of a photo and a row.

<!-- numbers: scale-plan -->
<!-- numbers: scale-limits -->

Times and bytes per photo are those of benchmarks/results/scale-units.json, and times, bytes and memory per row those of
the largest size in scale.json. What was not measured is a constant here, and the page names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import Any

from filling.machines import written
from filling.results import results, table

SIZES = (1_000_000, 10_000_000, 100_000_000)  # photos
ROWS_PER_PHOTO = 4
PHOTO_BYTES = 120_000
EPOCHS, BATCH_SIZE = 10, 4096
MACHINES = 10
REVIEWED = 100  # suggestions per class
DECISION_SECONDS = 1.0  # the default cost of an image label, docs/budgets.md
DECISION_BYTES = 200
SCORE_BYTES = 2  # of a score per image and class that a method keeps

CORES, MEMORY, DISK = 16, 64e9, 4e12  # of a machine
NETWORK = 10e9 / 8  # bytes per second
DAY = 86400.0


@dataclass(frozen=True)
class Step:
    """What a step needs.

    Attributes:
        name: of the command.
        core_seconds: over all machines.
        parallel: several cores and machines share the work.
        memory: bytes of the largest process.
        disk: bytes that the step writes.
        network: bytes that the busiest machine exchanges, if photos and results are on a file server.
    """

    name: str
    core_seconds: float
    parallel: bool
    memory: float
    disk: float
    network: float

    def hours(self, machines: int) -> float:
        """Time on this many machines: that of computing or of the network, whichever is longer."""
        computing = self.core_seconds / (CORES * machines if self.parallel else 1)
        return max(computing, self.network / NETWORK if machines == MACHINES else 0.0) / 3600


def steps(photos: int) -> list[Step]:
    """All steps on `MACHINES` machines, in the order in which they run; review is about people and comes apart."""
    units, rows = _units(), photos * ROWS_PER_PHOTO
    features, train, predict = (units[name] for name in ("features", "train", "predict"))
    own = photos / MACHINES
    updates = photos * EPOCHS / BATCH_SIZE
    gradients = units["classes"] * (features["pooled_bytes"] + 4)
    exchanged = 2 * gradients * (MACHINES - 1) / MACHINES * updates
    predicted = photos * units["top_k"]
    written_rows = predicted * per_row("generate predictions", "bytes")
    checked = max(memory_of("import", photos), memory_of("validate", photos))
    table_bytes = rows * per_row("generate labels", "bytes")
    return [
        Step(
            "import, validate",
            rows * (per_row("import", "cpu_seconds") + per_row("validate", "cpu_seconds")),
            False,
            checked,
            rows * per_row("import", "bytes"),
            table_bytes + 2 * rows * per_row("import", "bytes"),
        ),
        Step(
            "features",
            photos * features["ms"] / 1e3,
            True,
            memory_of("validate", photos),
            photos * features["bytes"],
            own * (PHOTO_BYTES + features["bytes"]),
        ),
        Step(
            "train",
            photos * EPOCHS * train["ms"] / 1e3 + rows * per_row("resolve", "cpu_seconds"),
            True,
            memory_of("resolve", photos) + 4 * train["model_bytes"],
            train["model_bytes"],
            exchanged + own * EPOCHS * features["pooled_bytes"],
        ),
        Step(
            "predict",
            photos * predict["ms"] / 1e3,
            True,
            memory_of("resolve", photos),
            written_rows,
            own * PHOTO_BYTES + written_rows / MACHINES,
        ),
        Step(
            "suggest",
            rows * per_row("resolve", "cpu_seconds") + predicted * per_row("suggest", "cpu_seconds"),
            False,
            memory_of("suggest", photos),
            units["classes"] * REVIEWED * per_row("generate predictions", "bytes"),
            written_rows + rows * per_row("import", "bytes"),
        ),
    ]


def scale_plan(arguments: str, top: str) -> str:
    """The steps at the largest size."""
    del arguments
    photos, units = SIZES[-1], _units()
    rows = [
        [
            step.name,
            _amount(step.core_seconds / 3600),
            f"{_amount(step.hours(MACHINES))} h",
            _bytes(step.memory),
            _bytes(step.disk),
            _bytes(step.network),
        ]
        for step in steps(photos)
    ]
    decisions = units["classes"] * REVIEWED
    hours = decisions * DECISION_SECONDS / 3600
    rows.append(["review", "–", f"{_amount(hours)} h of people", "–", _bytes(decisions * DECISION_BYTES), "–"])
    head = [
        "step",
        "core hours",
        f"time on {MACHINES} machines",
        "memory of a process",
        "written",
        "network per machine",
    ]
    largest = max(map(int, _complete()))
    listed = [
        f"Data: {photos / 1e6:,.0f} million photos of {PHOTO_BYTES / 1e3:.0f} KB, {ROWS_PER_PHOTO} rows each and "
        f"{units['classes']:,} classes; the photos are {_bytes(photos * PHOTO_BYTES)} on a file server.",
        f"Machines: {MACHINES} with {CORES} cores, {_bytes(MEMORY)} of memory and {NETWORK * 8 / 1e9:.0f} Gb/s each, "
        "one process per machine that uses all cores equally well; import and suggest use one core of one machine. A "
        "step takes as long as its computation or its network, whichever is longer.",
        "Settings: features of `tf_efficientnet_lite0` at 224 pixels; a linear head trained with `an` for "
        f"{EPOCHS} epochs in batches of {BATCH_SIZE:,}; the {units['top_k']} most probable labels of each photo; "
        f"{REVIEWED} suggestions per class, reviewed at {DECISION_SECONDS:.0f} second ([budgets]({top}budgets.md)) and "
        f"{DECISION_BYTES} bytes each.",
        f"Measured per photo, on one core: features {units['features']['ms']:.1f} ms, training "
        f"{units['train']['ms']:.1f} ms per epoch (in batches of 128), predictions {units['predict']['ms']:.1f} ms. "
        f"{written(units)} Costs per row are those of {largest / 1e6:.0f} million photos in "
        "[the label side](#the-label-side), and memory continues the line through its two largest sizes.",
    ]
    return "\n".join([table(head, rows), "", *(_paragraph(f"- {text}") for text in listed)])


def scale_limits(arguments: str, top: str) -> str:
    """What one machine cannot do any more, by size."""
    del arguments, top
    rows = []
    for photos in SIZES:
        (worst, name), *others = needs(photos)
        first = f"{name} ({_times(worst)})" if worst > 1 else f"nothing; closest is {name} ({worst:.1f} of it)"
        then = [f"{name} ({_times(ratio)})" for ratio, name in others if ratio > 1]
        rows.append([f"{photos / 1e6:.0f} million", first, "; ".join(then) or "–"])
    limits = _paragraph(
        f"One machine has {CORES} cores, {_bytes(MEMORY)} of memory, {_bytes(DISK)} of disk and a day for each step; "
        "parentheses say how much of that is needed."
    )
    return f"{limits}\n\n{table(['photos', 'breaks first', 'then'], rows, left=3)}"


def needs(photos: int) -> list[tuple[float, str]]:
    """What each step needs of one machine, worst first."""
    found = []
    for step in steps(photos):
        found += [
            (step.hours(1) * 3600 / DAY, f"the day for {step.name}"),
            (step.memory / MEMORY, f"memory for {step.name}"),
            (step.disk / DISK, f"disk for {step.name}"),
        ]
    found.append((photos * PHOTO_BYTES / DISK, "disk for photos"))
    scores = photos * _units()["classes"] * SCORE_BYTES
    found.append((scores / MEMORY, "memory for methods that keep a score per photo and class"))
    return sorted(found, reverse=True)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def per_row(phase: str, name: str) -> float:
    """Per row of a phase, at the largest size."""
    found = _complete()[max(_complete(), key=int)][phase]
    return float(found[name] / found["rows"])


def memory_of(phase: str, photos: int) -> float:
    """Peak memory of a phase, on the line through the two largest sizes."""
    (small, low), (large, high) = [
        (int(size), phases[phase]["peak_bytes"])
        for size, phases in sorted(_complete().items(), key=lambda pair: int(pair[0]))[-2:]
    ]
    return float(low + (photos - small) * (high - low) / (large - small))


def _complete() -> dict[str, dict[str, Any]]:
    """The sizes of which all phases were measured."""
    found = results("scale")
    assert found is not None, "run python benchmarks/scale/run.py first"
    return {size: phases for size, phases in found["sizes"].items() if "suggest" in phases}


def _units() -> dict[str, Any]:
    found = results("scale-units")
    assert found is not None, "run python benchmarks/scale/units.py first"
    return found


def _paragraph(text: str) -> str:
    return fill(text, 118, subsequent_indent="  " if text.startswith("-") else "", break_on_hyphens=False)


def _amount(number: float) -> str:
    """
    >>> _amount(1234.5), _amount(3.21), _amount(0.02)
    ('1,234', '3.2', '< 0.1')
    """
    if number < 0.05:
        return "< 0.1"
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _bytes(number: float) -> str:
    """
    >>> _bytes(1.5e12), _bytes(67903), _bytes(2.5e9)
    ('1.5 TB', '0.1 MB', '2.5 GB')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB")):
        if number >= size:
            return f"{number / size:,.0f} {unit}" if number >= 10 * size else f"{number / size:.1f} {unit}"
    return f"{number / 1e6:.1f} MB" if number < 1e7 else f"{number / 1e6:.0f} MB"
