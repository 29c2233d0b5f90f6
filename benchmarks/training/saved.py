"""Time and size of checkpoints, and the time to resume: prints one line of JSON.

python benchmarks/training/saved.py FOLDER METHOD IMAGES CLASSES
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rounds import Turns
from trained import recipe

from data import features
from tagfill.training import Saving, resume, start
from tagfill.training.trainer import Trainer

BATCH, SAVES = 50, 4


class PausedError(Exception):
    pass


class Until(Turns):
    """Stops a run when it begins its epoch of this number."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._left = epoch

    def bar(self, title: str, total: int | None, unit: str = "") -> Turns:
        self._left -= 1
        if self._left == 0:
            raise PausedError
        return self


def main() -> None:
    folder, method, images, classes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    maps = "scl" in method
    dataset = features(folder / "data", images, classes, maps=maps)
    taken: list[float] = []
    state: dict[str, Any] = {}
    original = Trainer._save

    def timed(self: Trainer, epoch: int, step: int) -> None:
        begin = time.perf_counter()
        original(self, epoch, step)
        taken.append(time.perf_counter() - begin)
        state["bytes"] = sum(self._active.memory.sizes().values())

    Trainer._save = timed  # type: ignore[method-assign]
    settings = recipe(folder / "data", method, BATCH, True, memory={"storage": "disk" if maps else "ram"})
    run = folder / "run"
    try:
        start(dataset, settings, out=run, saving=Saving(images // BATCH // SAVES, None), progress=Until(2))
    except PausedError:
        begin = time.perf_counter()
    newest = max((run / "checkpoints").iterdir())
    size = sum(path.stat().st_size for path in newest.iterdir())
    try:
        resume(run, progress=Until(1))
    except PausedError:
        resumed = time.perf_counter() - begin
    found = {
        "state_mb": state["bytes"] / 1e6,
        "checkpoint_mb": size / 1e6,
        "save_seconds": statistics.median(taken[1:]),
        "write_seconds": statistics.median(write(folder / "plain", size) for _ in range(5)),
        "resume_seconds": resumed,
    }
    print(json.dumps({"method": method, "images": images, "classes": classes, **found}))


def write(path: Path, size: int) -> float:
    """Seconds to write and sync one file of this size."""
    content = os.urandom(size)
    begin = time.perf_counter()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
