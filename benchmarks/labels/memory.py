"""Memory of a process as the kernel counts it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

MB = 1e6


def counted(process: int | str = "self") -> dict[str, float]:
    """MB of private pages, which nobody else has, and of all pages, shared ones divided by their users."""
    private = proportional = 0
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            private += int(value.split()[0])
        elif name == "Pss":
            proportional += int(value.split()[0])
    return {"private": private * 1024 / MB, "proportional": proportional * 1024 / MB}


class Peak:
    """The most private memory in use inside a `with` block, looked at every few milliseconds."""

    def __init__(self, every: float = 0.05) -> None:
        self.private = counted()["private"]
        self._every = every
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.is_set():
            self.private = max(self.private, counted()["private"])
            time.sleep(self._every)

    def __enter__(self) -> Peak:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watcher.join()
        self.private = max(self.private, counted()["private"])
