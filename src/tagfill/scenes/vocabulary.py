"""What scenes are made of: twenty pictograms in five groups, and how often each appears.

A group is also a context: a picture about travel shows more airplanes than a picture about games. The
shares fall from group to group and within each group, so that the classes form a long tail.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pictogram:
    """A class and the character that draws it.

    Attributes:
        name: the class.
        character: one character of DejaVu Sans.
        group: the parent class, and the context in which it is frequent.
        share: how often it is drawn, relative to the others.
    """

    name: str
    character: str
    group: str
    share: float


PICTOGRAMS = (
    Pictogram("sun", "☀", "weather", 10.0),
    Pictogram("cloud", "☁", "weather", 7.0),
    Pictogram("snowflake", "❄", "weather", 4.5),
    Pictogram("moon", "☾", "weather", 2.5),
    Pictogram("airplane", "✈", "travel", 8.0),
    Pictogram("umbrella", "☂", "travel", 5.5),
    Pictogram("anchor", "⚓", "travel", 3.5),
    Pictogram("flag", "⚑", "travel", 2.0),
    Pictogram("envelope", "✉", "office", 6.5),
    Pictogram("telephone", "☎", "office", 4.5),
    Pictogram("scissors", "✂", "office", 3.0),
    Pictogram("pencil", "✏", "office", 1.7),
    Pictogram("knight", "♞", "games", 5.0),
    Pictogram("die", "⚄", "games", 3.5),
    Pictogram("spade", "♠", "games", 2.3),
    Pictogram("crown", "♛", "games", 1.4),
    Pictogram("gear", "⚙", "industry", 4.0),
    Pictogram("hammer", "⚒", "industry", 2.6),
    Pictogram("recycling", "♻", "industry", 1.8),
    Pictogram("radiation", "☢", "industry", 1.2),
)

CLASSES = tuple(pictogram.name for pictogram in PICTOGRAMS)
GROUPS = tuple(dict.fromkeys(pictogram.group for pictogram in PICTOGRAMS))
HIERARCHY = tuple((pictogram.name, pictogram.group) for pictogram in PICTOGRAMS)
"""(child, parent) edges from each class to its group."""
