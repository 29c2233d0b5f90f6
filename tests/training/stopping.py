"""Runs that are interrupted inside this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tagfill.dataset import Dataset
from tagfill.training import Recipe, Run, Saving, start


def stop_in_epoch(
    epoch: int, recipe: Recipe, out: Path, monkeypatch: pytest.MonkeyPatch, *, every_steps: int = 2
) -> None:
    """Start a run and interrupt it when it logs this epoch; checkpoints are saved every few steps."""
    plain = Run.append

    def append(self: Run, name: str, line: dict[str, Any]) -> None:
        if line["epoch"] == epoch:
            raise KeyboardInterrupt
        plain(self, name, line)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append", append)
        with pytest.raises(KeyboardInterrupt):
            start(Dataset.open(recipe.dataset), recipe, out=out, saving=Saving(every_steps=every_steps))
