"""Contestants in processes of their own that take turns, one round each, so that a busy machine is busy for all.

A contestant prints a line when it is ready and after each round, and waits for a line before the next.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def cpu_seconds() -> float:
    """Of this process and its children that have ended, such as workers of a data loader."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def tell(**content: Any) -> None:
    print(json.dumps(content), flush=True)


def take_turns(work: Callable[[], float]) -> None:
    """A contestant whose rounds are calls, which tell the time of their last step."""
    tell(ready=True)
    while sys.stdin.readline().strip():
        begin, cpu = time.perf_counter(), cpu_seconds()
        end = work()
        tell(wall=end - begin, cpu=cpu_seconds() - cpu)


class Turns:
    """A `Progress` that makes each epoch of a run one round, and shows nothing.

    A round's wall time ends with its last step. Its CPU time is taken when the next epoch begins, after the workers
    have ended, and so holds the saving of the best model too.
    """

    def __init__(self) -> None:
        self._wall: float | None = None
        self._begin = (0.0, 0.0)

    def bar(self, title: str, total: int | None, unit: str = "") -> Turns:
        self.report() if self._wall is not None else tell(ready=True)
        if not sys.stdin.readline().strip():
            raise SystemExit
        return self

    def report(self) -> None:
        tell(wall=self._wall, cpu=cpu_seconds() - self._begin[1])

    def __enter__(self) -> Turns:
        self._begin = (time.perf_counter(), cpu_seconds())
        return self

    def __exit__(self, *error: object) -> None:
        self._wall = time.perf_counter() - self._begin[0]

    def advance(self, steps: int = 1) -> None: ...
    def note(self, text: str) -> None: ...
    def say(self, text: str) -> None: ...


class Contestant:
    """The other end of the line."""

    def __init__(self, command: list[str]) -> None:
        # What it complains of is shown if it ends early; at the end of a run, ranks miss each other.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open for as long as the process
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / command[0]), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )

    def hear(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                content: dict[str, float] = json.loads(line)
                return content
        self._complaints.seek(0)
        raise SystemExit(f"{self._complaints.read()}\nA contestant ended early: {self._process.args}")

    def round(self) -> dict[str, float]:
        self._say("go\n")
        return self.hear()

    def end(self) -> None:
        self._say("\n")
        self._process.communicate()

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()


def race(commands: dict[str, list[str]], seconds: float, *, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Rounds of all contestants in a new order each, at least `rounds`, more while time is left, after one to warm up.

    Args:
        commands: script and arguments of each contestant.
        seconds: for the rounds that count.
        rounds: the least number.
    """
    contestants = {name: Contestant(command) for name, command in commands.items()}
    for contestant in contestants.values():
        contestant.hear()
    for contestant in contestants.values():
        contestant.round()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    begin, done, order = time.monotonic(), 0, random.Random(0)
    while done < rounds or (time.monotonic() - begin) * (done + 1) / done < seconds:
        for name in order.sample(list(contestants), len(contestants)):
            results[name].append(contestants[name].round())
        done += 1
    for contestant in contestants.values():
        contestant.end()
    return results


def compare(results: dict[str, list[dict[str, float]]], base: str | tuple[str, ...], images: int) -> dict[str, Any]:
    """Of each contestant: images per second, and how many times faster than `base`, medians over rounds.

    Of several bases, which are one contestant entered more than once, a round's mean counts: one of them may be slowed
    down by something else, and everybody would look fast beside it.
    """
    bases = (base,) if isinstance(base, str) else base
    means = [
        {what: statistics.fmean(turn[what] for turn in turns) for what in ("wall", "cpu")}
        for turns in zip(*(results[name] for name in bases), strict=True)
    ]
    table = {}
    for name, own in results.items():
        pairs = list(zip(means, own, strict=True))
        ratios = [before["wall"] / after["wall"] for before, after in pairs]
        table[name] = {
            "per_second": images / statistics.median(after["wall"] for after in own),
            "faster": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            "rounds": [after["wall"] for after in own],
            "cpu_faster": statistics.median(before["cpu"] / after["cpu"] for before, after in pairs),
        }
    return {"rounds": len(means), "bases": len(bases), "table": table}
