"""How long it takes: an estimate before the start, and a line at the end of each phase."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from tagfill.data import PixelSource
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.models import Backbone
from tagfill.progress import Bar, Progress

_PROBED = 8  # photos


@dataclass
class Phase:
    """A phase: times it, shows its bars, and says one line when it ends.

    Attributes:
        progress: shows it.
        seconds: gets the time that it took, under its name.
        name: of the phase.
        title: for people.
    """

    progress: Progress
    seconds: dict[str, float]
    name: str
    title: str

    def __enter__(self) -> Progress:
        self._start = time.monotonic()
        return _BarsOnly(self.progress, self.title)

    def __exit__(self, kind: object, *_: object) -> None:
        self.seconds[self.name] = time.monotonic() - self._start
        if kind is None:
            self.progress.say(f"{self.title}: done in {duration(self.seconds[self.name])}")


@dataclass
class _BarsOnly:
    """Shows the bars of a phase under its own title, and none of its messages."""

    progress: Progress
    title: str

    def bar(self, title: str, total: int | None, unit: str = "") -> Bar:
        del title  # that of the phase says more
        return self.progress.bar(self.title, total, unit)

    def say(self, text: str) -> None: ...


def duration(seconds: float) -> str:
    """Minutes and seconds.

    >>> duration(4.2), duration(125)
    ('4 s', '2 min 5 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def rounded_duration(seconds: float) -> str:
    """A duration for an estimate.

    >>> rounded_duration(0), rounded_duration(47), rounded_duration(140), rounded_duration(9000)
    ('no time', '50 seconds', '2 minutes', '2.5 hours')
    """
    if seconds < 1:
        return "no time"
    if seconds < 90:
        return f"{max(round(seconds, -1), 10):.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


def seconds_per_view(dataset: Dataset, backbone: Backbone, device: torch.device) -> float:
    """The time to decode a photo and to run the network on it, measured on a few photos."""
    source = PixelSource(dataset, backbone.preprocessing.size, EVAL, seed=0)
    split, rows = max(dataset.splits.items(), key=lambda item: len(item[1]))
    index = np.unique(np.linspace(0, len(rows) - 1, _PROBED).round().astype(np.int64))
    network = backbone.to(device).eval()
    begin = 0.0
    try:
        with torch.inference_mode():
            for _ in range(2):  # the first round prepares the network
                begin = time.monotonic()
                for batch in source.evaluate(split, index):
                    network(batch.inputs.to(device))
    except TagfillError:  # a photo that cannot be decoded is reported later
        return 0.0
    return (time.monotonic() - begin) / len(index)
