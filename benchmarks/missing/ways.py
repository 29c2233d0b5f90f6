"""How labels are missing, and what is trained on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Way:
    """A protocol with its options.

    Attributes:
        protocol: its name in `PROTOCOLS`.
        options: of it.
        groups: the scenes have their groups as parents.
    """

    protocol: str
    options: dict[str, Any] = field(default_factory=dict)
    groups: bool = False


@dataclass(frozen=True)
class Entry:
    """What is trained: a method with options, and with options of its head; the ceiling has complete labels."""

    method: str
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


WAYS = {
    "1 positive, 1 negative": Way("k-positives", {"num_pos": 1, "num_neg": 1}),
    "1 positive, 4 negatives": Way("k-positives", {"num_pos": 1, "num_neg": 4}),
    "10 % of entries": Way("random-entries", {"proportion": 0.1}),
    "25 of each class": Way("fixed-per-class", {"per_class": 25}),
    "40 % of positives": Way("dropped-positives", {"keep": 0.4}),
    "hierarchy": Way("hierarchy", groups=True),
}

# CSL is made for thousands of classes: its page advises fewer likely labels and a larger threshold for a few dozen.
FEW_CLASSES = {"likely": 1, "threshold": 0.5}

ENTRIES = {
    "full": Entry("bce", complete=True),
    **{name: Entry(name) for name in ("an", "ignore", "ls", "role", "en", "em", "asl", "hill")},
    "ll-r+boost": Entry("ll-r", head={"boost": 5.0}),
    "csl": Entry("csl", {"csl": FEW_CLASSES}),
    "se": Entry("se"),
}
