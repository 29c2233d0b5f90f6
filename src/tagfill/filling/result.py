"""The result of filling in: its folder, its table of tags, its model, its report and its review."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.curation.review import open_session
from tagfill.curation.review_page import ReviewPage
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.filling.summary import DATASET, FILLED, KNOWN, MODEL, REPORT, SUMMARY_FILE, TO_REVIEW, FillSummary
from tagfill.filling.table import read_filled
from tagfill.filling.writing import save_summary
from tagfill.images.notebook import (
    MAX_PHOTOS,
    Tag,
    Tile,
    counts_table,
    never_raises,
    panel,
    paragraph,
    photo_grid,
)
from tagfill.models import Classifier


@dataclass(frozen=True)
class Fill:
    """The result of filling in.

    Attributes:
        folder: that holds everything.
        summary: the numbers.

    Example:
        >>> result = Fill.open("filled")  # doctest: +SKIP
        >>> result.table.slice(0, 10)  # doctest: +SKIP
    """

    folder: Path
    summary: FillSummary

    @classmethod
    def open(cls, folder: Any) -> Fill:
        """Open the folder of a result.

        Raises:
            TagfillError: it holds none.
        """
        summary = FillSummary.read(Path(folder))
        if summary is None:
            raise TagfillError(f"{folder} holds no result of fill: it has no {SUMMARY_FILE}.")
        return cls(Path(folder), summary)

    @cached_property
    def table(self) -> pa.Table:
        """One row per photo: image, given tags, added tags, and the probability of each added tag."""
        return read_filled(self.folder / FILLED, self.summary.layout)

    @property
    def dataset(self) -> Dataset:
        """Given, reviewed and added tags; added ones have the source `fill`."""
        return Dataset.open(self.folder / DATASET)

    @property
    def model_folder(self) -> Path:
        """Folder of the model, for `tagfill.predict`, `tagfill.export` and `tagfill serve`."""
        return self.folder / MODEL

    @cached_property
    def model(self) -> Classifier:
        """The trained model."""
        return Classifier.load(self.model_folder)

    @property
    def report(self) -> Path:
        """The page that says what was found."""
        return self.folder / REPORT

    def add_audit(self, audit: dict[str, Any]) -> Fill:
        """Put the statement of an audit into the report and into `filled.json`; returns the result with it."""
        summary = self.summary.model_copy(update={"audit": audit})
        save_summary(self.folder, summary)
        return Fill.open(self.folder)

    def review(self, *, port: int = 0, reviewer: str | None = None, browser: bool = True) -> None:
        """Ask about what is uncertain on a page of this machine, until interrupted (Ctrl-C, or stop in a notebook).

        Then call `tagfill.fill` again to use the answers.

        Args:
            port: of the page; 0 picks a free one.
            reviewer: your name in the log; your login name by default.
            browser: whether to open the page.
        """
        page = ReviewPage(port=port, run=self.model_folder, reviewer=reviewer, browser=browser)
        data = Dataset.open(self.folder / KNOWN)
        with open_session(data, Suggestions.read(self.folder / TO_REVIEW, data)) as session:
            page.serve(session, f"{len(session.suggestions):,} questions")

    def to_pandas(self) -> Any:
        """The table as a data frame; needs pandas."""
        try:
            import pandas  # noqa: F401
        except ModuleNotFoundError:
            raise TagfillError("to_pandas needs pandas; install it with: pip install 'tagfill[pandas]'.") from None
        return self.table.to_pandas()

    def __repr__(self) -> str:
        """The folder and the most important numbers."""
        one = self.summary
        return f"<Fill {self.folder}: {one.photos:,} photos, {one.given:,} tags given, {one.added:,} added>"

    def __str__(self) -> str:
        """What was found, in a few sentences."""
        return "\n".join(self.summary.sentences())

    @never_raises
    def _repr_html_(self) -> str:
        one = self.summary
        classes = [
            [c.name, c.given, c.added, round(c.expected_right), round(c.expected_missing), c.to_review]
            for c in sorted(one.classes, key=lambda c: -c.added)
        ]
        columns = ["tag", "given", "added", "expected right", "expected missing", "to review"]
        return panel(
            f"Filled {one.photos:,} photos: {one.given:,} tags given, {one.added:,} added",
            "<br>".join(paragraph(sentence) for sentence in one.sentences()),
            counts_table(columns, classes),
            photo_grid(one.root, self._examples(), total=one.photos_with_additions),
            hint="`.table` has all tags, `.review()` asks about what is uncertain, `.report` is a page to read.",
        )

    def _examples(self) -> list[Tile]:
        """Some photos to which tags were added, from all of the table."""
        changed = self.table.filter(pc.greater(pc.list_value_length(self.table["added"]), 0))
        some = np.unique(np.linspace(0, max(changed.num_rows - 1, 0), MAX_PHOTOS).round().astype(np.int64))
        return [
            Tile(
                row["image"],
                [
                    *(Tag(name) for name in row["tags"]),
                    *(Tag(name, "added", p) for name, p in zip(row["added"], row["probability"], strict=True)),
                ],
            )
            for row in changed.take(some[: changed.num_rows]).to_pylist()
        ]
