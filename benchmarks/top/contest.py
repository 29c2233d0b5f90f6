"""What contestants share: taking turns as those of `benchmarks/training` do, and telling their peak memory."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "training"))

from rounds import Turns, cpu_seconds, tell  # noqa: E402


def peak_mb() -> float:
    """The most memory that this process has had so far, where Linux tells; elsewhere NaN.

    `ru_maxrss` would be that of the parent if it had more before it started this process.
    """
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return math.nan


class TurnsWithPeak(Turns):
    """A `Progress` that makes each epoch of a run one round."""

    def report(self) -> None:
        tell(wall=self._wall, cpu=cpu_seconds() - self._begin[1], peak=peak_mb())


def take_turns(work: Callable[[], float]) -> None:
    """A contestant whose rounds are calls, which tell the time of their last step."""
    tell(ready=True)
    while sys.stdin.readline().strip():
        begin, cpu = time.perf_counter(), cpu_seconds()
        end = work()
        tell(wall=end - begin, cpu=cpu_seconds() - cpu, peak=peak_mb())
