"""What a report is about: the trained methods, their scores, and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tagfill.dataset import Dataset
from tagfill.experiments.leaderboard import Leaderboard, Score
from tagfill.experiments.runs import FLOOR
from tagfill.figures import color
from tagfill.training import Run
from tagfill.training.evaluation import LoadedModel


@dataclass(frozen=True)
class TrainedMethod:
    """A method with its runs.

    Attributes:
        name: unique within a report.
        runs: one per seed. The leaderboard and the learning curves use all of them, everything else the first.
        score: its row of the leaderboard.
        complete: whether it was trained on complete labels.
    """

    name: str
    runs: tuple[Run, ...]
    score: Score
    complete: bool = False

    @property
    def run(self) -> Run:
        """The run of the first seed."""
        return self.runs[0]

    def load_model(self, data: Dataset, *, maps: bool = False) -> LoadedModel:
        """Load the model of the first seed, on the features that it was last trained on, or on images."""
        return LoadedModel.open(self.run, data, features=self.run.recipe.final_features, maps=maps)


@dataclass(frozen=True)
class ReportData:
    """Everything that the sections of a report are made from.

    Attributes:
        data: with the labels that the methods were trained on.
        truth: the same images in the same splits with complete labels, if these are known.
        board: all scores.
        methods: those that have a score, best first.
    """

    data: Dataset
    truth: Dataset | None
    board: Leaderboard
    methods: tuple[TrainedMethod, ...]

    @classmethod
    def rank(
        cls, data: Dataset, truth: Dataset | None, split: str, methods: Sequence[TrainedMethod], note: str = ""
    ) -> ReportData:
        """Rank methods by their scores on a split; `note` is what to know about that split."""
        board = Leaderboard.rank(data.name, split, [method.score for method in methods], note)
        by_name = {method.name: method for method in methods}
        ranked = tuple(replace(by_name[score.name], score=score) for score in board.scores if not score.error)
        return cls(data, truth, board, ranked)

    @property
    def split(self) -> str:
        """The split that the scores are for."""
        return self.board.split

    @property
    def floor(self) -> TrainedMethod | None:
        """The baseline that treats unknown labels as absent."""
        return next((method for method in self.methods if method.name == FLOOR), None)

    @property
    def ceiling(self) -> TrainedMethod | None:
        """The best method trained on complete labels."""
        return next((method for method in self.methods if method.complete), None)

    @property
    def best(self) -> TrainedMethod:
        """The best method trained on partial labels, or the best of all if there is none."""
        return next((method for method in self.methods if not method.complete), self.methods[0])

    def colors(self) -> dict[str, str]:
        """The color of each method, the same in all charts."""
        return {method.name: color(position) for position, method in enumerate(self.methods)}
