"""The result of filling in: its folder, its numbers, and the table of tags."""

from __future__ import annotations

import csv
import getpass
import io
import webbrowser
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, ValidationError

from tagfill.curation.estimates import EstimateSummary
from tagfill.curation.review import open_session
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError, first_problem
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
from tagfill.io import atomic_write, write_json
from tagfill.labels import POSITIVE
from tagfill.models import Classifier

SOURCE = "fill"  # of the rows that were added
FILLED, TO_REVIEW, REPORT, SUMMARY_FILE = "filled.csv", "to-review.csv", "report.html", "filled.json"
KNOWN, DATASET, MODEL, WORK = "known", "dataset", "model", "work"
SEPARATORS = "|;,\n"  # between the tags of a cell: the first that no tag contains
COLUMNS = ("image", "tags", "added", "probability")


@dataclass(frozen=True)
class Keep:
    """Which tags are added.

    Attributes:
        by: `precision`: as many as possible of which this share is expected to be right; `probability`: those that are
            at least this probable.
        value: the share or the probability.

    >>> Keep.parse("precision=0.9")
    Keep(by='precision', value=0.9)
    """

    by: Literal["precision", "probability"]
    value: float

    @classmethod
    def parse(cls, text: str) -> Keep:
        """Read `precision=0.9` or `probability=0.8`."""
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in ("precision", "probability") or not 0 < value <= 1:
            raise TagfillError(
                f"--keep {text} is not understood; give precision= or probability= and a number up to 1, as in "
                "--keep precision=0.9."
            )
        return cls(name, value)  # type: ignore[arg-type]


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Settings(_Content):
    """How a folder was filled; a second call with the folder alone repeats it.

    Attributes:
        source: path of the table or dataset; None for one in memory.
        source_format: its format, if it had to be named.
        options: of the format.
        photos: where the photos are.
        keep: which tags are added.
        formats: that are written as well.
        method: how the model learns.
        backbone: of the model.
        pretrained: weights of the backbone.
        image_size: of its input.
        features: folder of the feature cache, if it is not below `work`.
        epochs: of training.
        folds: models for cross-fitting.
        seed: of all random draws.
    """

    source: str | None = None
    source_format: str | None = None
    options: dict[str, Any] = {}
    photos: str | None = None
    keep: str = "precision=0.9"
    formats: tuple[str, ...] = ()
    method: str = "auto"
    backbone: str = "tf_efficientnet_lite0"
    pretrained: bool | str = "bundled"
    image_size: int | str | None = None
    features: str | None = None
    epochs: int = 10
    folds: int = 5
    seed: int = 0

    def changed(self, new: Settings) -> Settings:
        """These settings with those of `new` that are not at their defaults, and the source of these.

        >>> Settings(source="tags.csv", epochs=5).changed(Settings(source="filled", keep="probability=0.8")).epochs
        5
        """
        given = {name for name, value in new if value != type(self).model_fields[name].default}
        kept = {"source", "source_format", "options", "photos"}
        return self.model_copy(update={name: getattr(new, name) for name in given - kept})


class Example(_Content):
    """A photo to which a tag was added."""

    image: str
    probability: float


class ClassSummary(_Content):
    """What was found of one class.

    Attributes:
        name: of the class.
        given: tags that were known.
        added: tags that were added.
        expected_right: how many of these are expected to be right.
        expected_missing: how many tags were expected to be missing.
        to_review: questions about the class.
        examples: photos to which it was added.
    """

    name: str
    given: int
    added: int
    expected_right: float
    expected_missing: float
    to_review: int
    examples: list[Example]


class PastFill(_Content):
    """An earlier result in the same folder, to say what got better.

    Attributes:
        given: tags that were known.
        added: tags that it had added.
        expected_precision: what it expected of them.
        expected_found: share of the missing tags that it expected to have found.
        decisions: of reviews that it had used.
        decided: tags that it had added, and a person has judged since.
        right: how many of these were right.
        val_mAP: on photos with complete labels, in percent.
    """

    given: int
    added: int
    expected_precision: float | None
    expected_found: float
    decisions: int
    decided: int
    right: int
    val_mAP: float | None = None  # noqa: N815

    @classmethod
    def of(cls, summary: FillSummary, decisions: pa.Table, added: Collection[tuple[str, str]]) -> PastFill:
        """Compare an earlier result with the decisions that were made since."""
        newest: dict[tuple[str, str], bool | None] = {}
        for row in decisions.sort_by("time").select(["image", "label", "present"]).to_pylist():
            newest[row["image"], row["label"]] = row["present"]
        judged = [present for pair, present in newest.items() if pair in added and present is not None]
        return cls(
            given=summary.given,
            added=summary.added,
            expected_precision=summary.expected_precision,
            expected_found=summary.expected_found,
            decisions=summary.decisions,
            decided=len(judged),
            right=sum(judged),
            val_mAP=summary.val_mAP,
        )


class FillSummary(_Content):
    """The content of `filled.json`.

    Attributes:
        key: of what is known and of the settings.
        settings: how it was made.
        name: of the data.
        root: where the photos are.
        photos: number of photos.
        tagged_photos: those with a known tag.
        given: known tags.
        added: tags that were added.
        photos_with_additions: photos that got one.
        threshold: probability of the least probable tag that was added.
        expected_precision: share of the added tags that is expected to be right.
        expected_missing: number of tags that was expected to be missing.
        decisions: of reviews that were used.
        to_review: questions in `to-review.csv`.
        estimates: where the probabilities come from.
        doubts: a sentence about given tags that may be wrong.
        doubted: how many of these are among the questions.
        val_mAP: on photos with complete labels, in percent.
        classes: what was found of each class.
        past: earlier results in the same folder, oldest first.
        separator: between the tags of a cell of `filled.csv`.
        audit: what an audit found, as `audit.json` says it.
        seconds: that each phase took.
    """

    key: str
    settings: Settings
    name: str
    root: str
    photos: int
    tagged_photos: int
    given: int
    added: int
    photos_with_additions: int
    threshold: float | None
    expected_precision: float | None
    expected_missing: float
    decisions: int
    to_review: int
    estimates: EstimateSummary
    doubts: str = ""
    doubted: int = 0
    val_mAP: float | None  # noqa: N815
    classes: list[ClassSummary]
    past: list[PastFill]
    separator: str
    audit: dict[str, Any] | None
    seconds: dict[str, float]

    @property
    def expected_right(self) -> float:
        """How many of the added tags are expected to be right."""
        return sum(one.expected_right for one in self.classes)

    @property
    def expected_found(self) -> float:
        """Share of the missing tags that is expected to be found."""
        return self.expected_right / self.expected_missing if self.expected_missing else 0.0

    @classmethod
    def read(cls, folder: Path) -> FillSummary | None:
        """The summary of a folder; None if it has none."""
        path = folder / SUMMARY_FILE
        if not path.is_file():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise TagfillError(f"{path} is damaged: {first_problem(error)}; delete it to fill in again.") from None

    def sentences(self) -> list[str]:
        """What was found, for people."""
        percent = "–" if self.expected_precision is None else f"{self.expected_precision:.0%}"
        lines = []
        if self.added:
            lines.append(
                f"Added {self.added:,} tags to {self.photos_with_additions:,} of {self.photos:,} photos; {percent} of "
                f"them are expected to be right, which is {self.expected_found:.0%} of about "
                f"{self.expected_missing:,.0f} missing tags."
            )
        else:
            lines.append(
                f"No tag was added: none is sure enough for --keep {self.settings.keep}, which is common with a few "
                f"hundred photos; answer the {self.to_review:,} questions of a review, or give a lower --keep."
            )
        lines.append(f"{self.estimates}.")
        if self.doubted:
            lines.append(f"{self.doubts}.")
        if self.past:
            lines.append(self.what_changed())
        if self.audit is not None:
            lines += [f"{sentence}." for sentence in self.audit["statement"]]
        return lines

    def what_changed(self) -> str:
        """What changed since the last result."""
        before = self.past[-1]
        new = f"{self.decisions - before.decisions:,} new decisions were used"
        parts = [f"{new}, and {self.given - before.given:,} more tags are known"]
        if before.decided:
            parts.append(f"of the tags added before, {before.decided:,} were judged and {before.right:,} were right")
        found = f"{self.expected_found:.0%} instead of {before.expected_found:.0%}"
        parts.append(f"of the tags that are still missing, {found} are expected to be added")
        if self.val_mAP is not None and before.val_mAP is not None:
            parts.append(f"mAP on photos with complete tags is {self.val_mAP:.1f} instead of {before.val_mAP:.1f}")
        return "Since the last run: " + "; ".join(parts) + "."


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
        with (self.folder / FILLED).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))

        def cells(name: str) -> list[list[str]]:
            return [row[name].split(self.summary.separator) if row[name] else [] for row in rows]

        return pa.table(
            {
                "image": pa.array([row["image"] for row in rows], pa.string()),
                "tags": pa.array(cells("tags"), pa.list_(pa.string())),
                "added": pa.array(cells("added"), pa.list_(pa.string())),
                "probability": pa.array(
                    [[float(p) for p in cell] for cell in cells("probability")], pa.list_(pa.float64())
                ),
            }
        )

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
        from tagfill.filling import report  # which needs this module

        summary = self.summary.model_copy(update={"audit": audit})
        write_json(self.folder / SUMMARY_FILE, summary.model_dump(mode="json"))
        report.write(self.folder, summary)
        return Fill.open(self.folder)

    def review(self, *, port: int = 0, reviewer: str | None = None, browser: bool = True) -> None:
        """Ask about what is uncertain on a page of this machine, until interrupted (Ctrl-C, or stop in a notebook).

        Then call `tagfill.fill` again to use the answers.

        Args:
            port: of the page; 0 picks a free one.
            reviewer: your name in the log; your login name by default.
            browser: whether to open the page.
        """
        from tagfill.curation import server  # needs the libraries of the server
        from tagfill.inference import http

        data = Dataset.open(self.folder / KNOWN)
        with open_session(data, Suggestions.read(self.folder / TO_REVIEW)) as session:
            listening = http.listen("127.0.0.1", port)
            if browser:
                webbrowser.open(f"http://127.0.0.1:{listening.getsockname()[1]}/")
            with suppress(KeyboardInterrupt):  # ends the review
                who = reviewer or getpass.getuser()
                server.serve(session, listening, run=self.model_folder, reviewer=who, token=None)

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


def choose_separator(classes: Sequence[str]) -> str:
    """What separates the tags of a cell.

    >>> choose_separator(["cat", "dog|wolf"])
    ';'
    """
    return next(one for one in SEPARATORS if one == SEPARATORS[-1] or not any(one in name for name in classes))


def write_filled(path: Path, known: Dataset, added: pa.Table) -> None:
    """Write `filled.csv`: one row per photo.

    Args:
        path: of the file.
        known: given tags and decisions.
        added: image, label and probability of each added tag, most probable first.
    """
    more: dict[str, list[tuple[str, float]]] = {}
    for row in added.to_pylist():
        more.setdefault(row["image"], []).append((row["label"], row["probability"]))
    names, separator = known.names(), choose_separator(known.classes)
    with atomic_write(path) as file:
        file.write((",".join(COLUMNS) + "\n").encode())
        for block, values in known.labels().blocks():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            for name, row in zip(names[block], values, strict=True):
                tags = [known.classes[code] for code in np.flatnonzero(row == POSITIVE)]
                labels = [label for label, _ in more.get(name, [])]
                probabilities = [f"{p:.3f}" for _, p in more.get(name, [])]
                writer.writerow([name, *(separator.join(cell) for cell in (tags, labels, probabilities))])
            file.write(text.getvalue().encode())
