"""A run that is killed again and again ends with the same bytes as one that is left alone."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from tagfill import Dataset
from tagfill import methods as tagfill_methods
from tagfill.contract import Method
from tagfill.methods.base import BaseMethod
from tagfill.models.class_vectors import write_class_vectors

from .conftest import Material
from .processes import MOMENTS, kill_when, outcome, run_here, run_tagfill, start

EPOCHS = "4"
KILLS = 3  # per long case; the short one is killed once
SETTINGS: dict[str, tuple[str, ...]] = {  # that let the schedules of methods get under way in four epochs
    "curriculum": ("options.curriculum.present_above=0.52", "options.curriculum.absent_below=0.48"),
    "em-apl": ("options.em-apl.warmup=1",),
    "splc": ("options.splc.threshold=0.5",),
    "patchml+patchcluster": (
        "options.patchcluster.scope=all_unknown",
        "options.patchcluster.refresh=1",
        "options.patchcluster.precision=0.2",
        "options.patchcluster.missed=0.2",
    ),
}
ALIKE = {  # keep the same state as another method: one case each instead of all moments and numbers of processes
    "en": "en+scl",
    "ep": "en+scl",
    "cl": "en+scl",
    "ll-ct": "ll-r",
    "se-l": "se",
    "se-i": "se",
    "p-asl": "csl",
    "se-e": "evidence",
    "vlpl": "evidence",
}
BESIDE = {"cl": "an+cl", "scl": "en+scl", "patchcluster": "patchml+patchcluster"}  # terms need a method beside them


def has_state(method: Method) -> bool:
    """Whether a method keeps memory or does something else in each epoch."""
    own = {name: getattr(type(method), name) for name in ("begin_epoch", "observe", "state_dict")}
    return "memory" in method.needs or any(own[name] is not getattr(BaseMethod, name) for name in own)


STATEFUL = [name for name, make in tagfill_methods.METHODS.items() if has_state(make())]
SHORT = ("en+scl", 1, "during a save")  # two processes are killed in test_checkpoints.py
MATRIX = [
    (BESIDE.get(name, name), processes, moment)
    for name in ["an", *STATEFUL]
    for processes, moment in ([(1, "mid-epoch")] if name in ALIKE else itertools.product((1, 2), MOMENTS))
]
CASES = [
    pytest.param(*case, marks=() if case == SHORT else pytest.mark.long, id="-".join(map(str, case))) for case in MATRIX
]


def test_methods_that_depend_on_the_epoch_are_killed() -> None:
    """The matrix is made from all methods, so that a new one cannot be forgotten."""
    assert {"ll-r", "ll-ct", "ll-cp", "splc", "em-apl", "curriculum", "en", "ep", "role", "csl"} <= set(STATEFUL)
    assert set(ALIKE) <= set(STATEFUL)
    assert set(ALIKE.values()) <= {method for method, _, _ in MATRIX}
    assert SHORT in MATRIX


def arguments(material: Material, dataset: Path, method: str, processes: int) -> list[str]:
    return [
        "train",
        str(dataset),
        *material.flags,
        *("--method", method, "--features", str(material.cache), "--epochs", EPOCHS, "--batch-size", "8"),
        *("--set", "memory.storage=disk", "--processes", str(processes), "--save-steps", "3"),
        *(word for setting in SETTINGS.get(method, ()) for word in ("--set", setting)),
    ]


@pytest.mark.parametrize(("method", "processes", "moment"), CASES)
def test_resumed_run_equals_unbroken_run(
    material: Material, partial: Path, points: Path, tmp_path: Path, method: str, processes: int, moment: str
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    known_negatives = dict.fromkeys(("csl", "p-asl"), partial)  # for the prior
    dataset = {**known_negatives, "patchml+patchcluster": points}.get(method, material.single)
    run = run_here if processes == 1 else run_tagfill
    run(*arguments(material, dataset, method, processes), "--out", str(unbroken))
    rng = random.Random(f"{method} {processes} {moment}")

    command = [*arguments(material, dataset, method, processes), "--out", str(broken)]
    command += ["--continue"] if (method, processes, moment) == SHORT else []
    for _ in range(1 if (method, processes, moment) == SHORT else KILLS):
        process = start(*command)
        assert kill_when(process, MOMENTS[moment](broken), rng), "the run ended before it could be killed"
        if "--continue" not in command:  # then the same command is repeated, as by a queue
            command = ["train", "--resume", str(broken), "--processes", str(processes), "--save-steps", "3"]
    run(*command)

    expected, found = outcome(unbroken), outcome(broken)
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if expected[name] != found[name]] == []
    if method == "en+scl":
        assert sum(name.endswith(".u8") for name in found) == processes


@pytest.mark.long
@pytest.mark.parametrize("head", ["cam", "dual"])
def test_a_head_that_began_with_text_vectors_resumes_to_the_same_bytes(
    material: Material, tmp_path: Path, head: str
) -> None:
    classes = Dataset.open(material.single).classes
    vectors = np.random.default_rng(0).normal(size=(len(classes), 256))
    write_class_vectors(tmp_path / "texts.safetensors", classes, vectors)
    text = ["head_options.init=text", f"head_options.vectors={tmp_path / 'texts.safetensors'}"]
    flags = ["--head", head, *(word for setting in text for word in ("--set", setting))]
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    run_here(*arguments(material, material.single, "en+scl", 1), *flags, "--out", str(unbroken))

    process = start(*arguments(material, material.single, "en+scl", 1), *flags, "--out", str(broken))
    assert kill_when(process, MOMENTS["mid-epoch"](broken), random.Random(head)), "the run ended before"
    run_here("train", "--resume", str(broken), "--save-steps", "3")

    expected, found = outcome(unbroken), outcome(broken)
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if expected[name] != found[name]] == []
