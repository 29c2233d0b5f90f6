"""A run that is killed again and again ends with the same bytes as one that is left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tagfill import methods as tagfill_methods

from .conftest import Material
from .processes import MOMENTS, finish, kill_when, outcome, start, tagfill

EPOCHS = "4"
KILLS = 3  # of the long matrix; the one run that is always killed is killed once
METHODS: dict[str, tuple[str, ...]] = {  # with settings that let their schedules get under way in four epochs
    "an": (),
    "role": (),
    "en+scl": (),
    "se": (),
    "ll-cp": (),
    "csl": (),
    "curriculum": ("options.curriculum.present_above=0.52", "options.curriculum.absent_below=0.48"),
    "em-apl": ("options.em-apl.warmup=1",),
    "patchml+patchcluster": (
        "options.patchcluster.scope=all_unknown",
        "options.patchcluster.refresh=1",
        "options.patchcluster.precision=0.2",
        "options.patchcluster.missed=0.2",
    ),
}
ALIKE = {  # what they remember is what another one remembers
    "ep": "en+scl",
    "cl": "en+scl",
    "se-l": "se",
    "se-i": "se",
    "p-asl": "csl",
}

short = [("en+scl", 1, "during a save")]  # two processes are killed in test_reshard.py
matrix = [(method, processes, moment) for method in METHODS for processes in (1, 2) for moment in MOMENTS]
cases = [
    pytest.param(*case, marks=() if case in short else pytest.mark.long, id="-".join(map(str, case))) for case in matrix
]


def test_every_method_that_remembers_is_in_the_matrix() -> None:
    """A method that keeps state cannot be forgotten: whoever adds one has to put it here, or name one like it."""
    covered = {name for method in METHODS for name in method.split("+")}
    remembering = {name for name, make in tagfill_methods.METHODS.items() if "memory" in make().needs}

    assert remembering - ALIKE.keys() <= covered
    assert set(ALIKE.values()) <= METHODS.keys()


def arguments(material: Material, dataset: Path, method: str, processes: int) -> list[str]:
    return [
        "train",
        str(dataset),
        *material.flags,
        *("--method", method, "--features", str(material.cache), "--epochs", EPOCHS, "--batch-size", "8"),
        *("--set", "memory.storage=disk", "--processes", str(processes), "--save-steps", "3"),
        *(word for setting in METHODS[method] for word in ("--set", setting)),
    ]


@pytest.mark.parametrize(("method", "processes", "moment"), cases)
def test_resumed_run_equals_unbroken_run(
    material: Material, partial: Path, points: Path, tmp_path: Path, method: str, processes: int, moment: str
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    others = {"csl": partial, "patchml+patchcluster": points}  # a prior needs known negatives, prototypes marked cells
    dataset = others.get(method, material.single)
    tagfill(*arguments(material, dataset, method, processes), "--out", str(unbroken))
    rng = random.Random(f"{method} {processes} {moment}")

    process = start(*arguments(material, dataset, method, processes), "--out", str(broken))
    kills, wanted = 0, 1 if (method, processes, moment) in short else KILLS
    while kills < wanted and kill_when(process, MOMENTS[moment](broken), rng):
        kills += 1
        process = start("train", "--resume", str(broken), "--processes", str(processes), "--save-steps", "3")
    finish(process)

    assert kills == wanted, "the run ended before it could be killed"
    expected, found = outcome(unbroken), outcome(broken)
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if expected[name] != found[name]] == []
    if method == "en+scl":
        assert sum(name.endswith(".u8") for name in found) == processes
