"""Commands of the benchmark that are measured: each runs in a process of its own, with its time and peak memory."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bookkeeping import say


def measured(name: str, words: Sequence[str | os.PathLike[str]], work: Path, *, result: Path | None = None) -> None:
    """Run `tagfill WORDS` and record seconds and memory; done before if it was recorded and its result is there.

    An interrupted command is repeated and continues by itself; its time is then the sum of all attempts.

    Args:
        name: of the step in the record.
        words: after `tagfill`.
        work: the folder of the benchmark.
        result: what the command makes.
    """
    place = work / "steps" / f"{name}.json"
    before = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    if before.get("ended") and (result is None or result.exists()):
        return
    say(f"tagfill {' '.join(map(str, words))}")
    command = [sys.executable, "-m", "tagfill", *map(str, words)]
    spent = run(command, lambda part: record(work, name, part, before))
    if spent["code"]:
        raise SystemExit(f"{name} ended with code {spent['code']}.")
    record(work, name, spent | {"ended": True}, before)


def run(command: Sequence[str], told: Any = None, every: float = 30.0) -> dict[str, Any]:
    """Run a command to its end: seconds, seconds of computing, and the largest memory of it and its children."""
    begun = time.monotonic()
    process = os.spawnvp(os.P_NOWAIT, command[0], list(command))
    watch, ended = Memory(process), threading.Event()

    def look() -> None:
        last = begun
        while not ended.wait(0.2):
            watch.look()
            if told and time.monotonic() - last > every:
                last = time.monotonic()
                told({"seconds": last - begun, "peak MB": watch.peak})

    thread = threading.Thread(target=look)
    thread.start()
    _, status, usage = os.wait4(process, 0)
    ended.set()
    thread.join()
    return {
        "seconds": time.monotonic() - begun,
        "CPU seconds": usage.ru_utime + usage.ru_stime,
        "peak MB": max(watch.peak, usage.ru_maxrss / 1024),
        "code": os.waitstatus_to_exitcode(status),
    }


class Memory:
    """The largest sum of memory that a process and its descendants held at once: what is theirs, not mapped files."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.peak = 0.0

    def look(self) -> None:
        """Add up what they hold now."""
        total, waiting = 0.0, [self.process]
        while waiting:
            one = waiting.pop()
            try:
                for line in Path(f"/proc/{one}/status").read_text(encoding="ascii", errors="replace").splitlines():
                    if line.startswith("RssAnon:"):
                        total += int(line.split()[1]) / 1024
                waiting += map(int, Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii").split())
            except OSError:
                continue
        self.peak = max(self.peak, total)


def record(work: Path, name: str, spent: dict[str, Any], before: dict[str, Any] | None = None) -> None:
    """Write down what a step has spent, in addition to what earlier attempts did."""
    from tagfill.io import write_json

    place, before = work / "steps" / f"{name}.json", before or {}
    place.parent.mkdir(parents=True, exist_ok=True)
    sums = {key: before.get(key, 0.0) + spent.get(key, 0.0) for key in ("seconds", "CPU seconds")}
    peak = max(before.get("peak MB", 0.0), spent["peak MB"])
    write_json(place, {"step": name, **sums, "peak MB": peak, "ended": spent.get("ended", False)})
