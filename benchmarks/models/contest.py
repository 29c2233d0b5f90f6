"""What contestants share: taking turns as those of `benchmarks/training` do, and telling their peak memory."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "training"))

from rounds import Turns, cpu_seconds, tell  # noqa: E402

BACKBONE = "tf_efficientnet_lite0"
SIZE = 224


def peak_mb() -> float:
    """The most memory that this process has had so far, or one of its children."""
    used = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(used) / 1024


class TurnsWithPeak(Turns):
    """Each bar of a `Progress` is a round."""

    def report(self) -> None:
        tell(wall=self._wall, cpu=cpu_seconds() - self._begin[1], peak=peak_mb())


class ExtraMemory:
    """The most memory that this process takes beyond what it has now, where Linux tells; elsewhere NaN."""

    def __init__(self) -> None:
        self._before = math.nan
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
            self._before = self._now()

    def mb(self) -> float:
        """So far."""
        return self._now() - self._before if not math.isnan(self._before) else math.nan

    @staticmethod
    def _now() -> float:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))
