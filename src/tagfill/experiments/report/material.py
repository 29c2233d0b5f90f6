"""What a report is about: the methods that took part, their runs, and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tagfill.dataset import Dataset
from tagfill.experiments.figures import color
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.experiments.runs import FLOOR
from tagfill.training import Run


@dataclass(frozen=True)
class Entrant:
    """A method that took part.

    Attributes:
        name: unique within a report.
        runs: one a seed; of all but the leaderboard and the learning curves, the first speaks.
        score: its line of the leaderboard.
        complete: whether it was trained on complete labels.
    """

    name: str
    runs: tuple[Run, ...]
    score: Score
    complete: bool = False

    @property
    def run(self) -> Run:
        """That of the first seed."""
        return self.runs[0]


@dataclass(frozen=True)
class Material:
    """Everything that sections are made from.

    Attributes:
        data: with the labels that the methods were given.
        truth: the same images in the same splits with all labels, where they are known.
        board: all scores.
        entrants: those that have a score, best first.
    """

    data: Dataset
    truth: Dataset | None
    board: Leaderboard
    entrants: tuple[Entrant, ...]

    @classmethod
    def of(cls, data: Dataset, truth: Dataset | None, split: str, entrants: Sequence[Entrant]) -> Material:
        """Rank entrants by their scores."""
        board = Leaderboard.rank(data.name, split, [entrant.score for entrant in entrants])
        by_name = {entrant.name: entrant for entrant in entrants}
        ranked = tuple(replace(by_name[score.name], score=score) for score in board.scores if not score.error)
        return cls(data, truth, board, ranked)

    @property
    def split(self) -> str:
        """That gave the scores."""
        return self.board.split

    @property
    def floor(self) -> Entrant | None:
        """The one that reads unknown as absent."""
        return next((entrant for entrant in self.entrants if entrant.name == FLOOR), None)

    @property
    def ceiling(self) -> Entrant | None:
        """The best one with complete labels."""
        return next((entrant for entrant in self.entrants if entrant.complete), None)

    @property
    def best(self) -> Entrant:
        """The best one that was given no complete labels; the best of all if there is none."""
        return next((entrant for entrant in self.entrants if not entrant.complete), self.entrants[0])

    def colours(self) -> dict[str, str]:
        """A colour for each entrant, the same all over the report."""
        return {entrant.name: color(position) for position, entrant in enumerate(self.entrants)}
