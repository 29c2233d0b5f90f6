"""TensorBoard events beside the run's own metrics, where the extra `tensorboard` is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class Events:
    """Writes scalars, or does nothing where TensorBoard is not installed."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder))

    def write(self, epoch: int, values: Mapping[str, float]) -> None:
        """The scalars of an epoch, counted over all stages."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    def close(self) -> None:
        """No more are coming."""
        if self._writer is not None:
            self._writer.close()
