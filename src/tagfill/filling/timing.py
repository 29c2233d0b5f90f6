"""How long it takes: an estimate before the start, and a line at the end of each phase."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.data.cache_writer import compute_features
from tagfill.data.extract import BATCH
from tagfill.data.sources import ViewRequest, load_views
from tagfill.dataset import Dataset
from tagfill.images import EVAL
from tagfill.models import Backbone
from tagfill.models.allocator import disable_heap_trimming
from tagfill.progress import Bar, Progress

_WARM_UP = 4  # photos
_MOST_SECONDS = 5.0  # to spend on an estimate


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

    >>> rounded_duration(4), rounded_duration(47), rounded_duration(140), rounded_duration(9000)
    ('10 seconds', '50 seconds', '2 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(round(seconds, -1), 10):.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


def seconds_per_view(dataset: Dataset, backbone: Backbone, device: torch.device) -> float:
    """The time to decode a photo and to run the network on it, measured on one batch as features are computed.

    A few photos come first, untimed: the first call of a network allocates its memory. If the network is so slow that a
    batch would take long, only these are timed.
    """
    disable_heap_trimming()  # as for features
    network = backbone.to(device).eval()
    rows = np.unique(np.linspace(0, len(dataset) - 1, BATCH).round().astype(np.int64))
    few = rows[:: max(1, len(rows) // _WARM_UP)]
    _time_batch(dataset, network, few)
    per_photo = _time_batch(dataset, network, few)
    return per_photo if per_photo * len(rows) > _MOST_SECONDS else _time_batch(dataset, network, rows)


def _time_batch(dataset: Dataset, network: Backbone, rows: NDArray[np.int64]) -> float:
    """Seconds per photo of these rows; 0 if none can be decoded, which is reported later."""
    begin = time.monotonic()
    requests = [[ViewRequest(int(row), int(row)) for row in rows]]
    (views,) = load_views(dataset, requests, EVAL, network.preprocessing.size, seed=0, workers=0)
    if not len(views.kept):
        return 0.0
    compute_features(network, views.pixels)
    return (time.monotonic() - begin) / len(views.kept)
