"""Formats by name: one module each, with `read(…) -> Dataset` and `write(dataset, …)`.

A format module has

- `TITLE`, a line that says what it reads,
- `read(source, *, …, progress=SILENT) -> Dataset`,
- `write(dataset, target, *, …) -> None`, which refuses what the format cannot say.
"""

from __future__ import annotations

from types import ModuleType

FORMATS: dict[str, ModuleType] = {}

__all__ = ["FORMATS"]
