"""How a result was made, and its numbers: the content of `filled.json`, and the names of all files of a result."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from tagfill.curation.estimates import NOT_CALIBRATED, EstimateSummary
from tagfill.errors import TagfillError, first_problem
from tagfill.filling.table import TableLayout

SOURCE = "fill"  # of the rows that were added
FILLED, TO_REVIEW, REPORT, SUMMARY_FILE = "filled.csv", "to-review.csv", "report.html", "filled.json"
KNOWN, DATASET, MODEL, WORK = "known", "dataset", "model", "work"


def absolute_path(path: str | os.PathLike[str]) -> str:
    """A path that does not depend on the working directory; a URL is unchanged.

    >>> absolute_path("s3://bucket/photos"), absolute_path("/photos")
    ('s3://bucket/photos', '/photos')
    """
    text = os.fspath(path)
    return text if "://" in text else str(Path(text).absolute())


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
        spreadsheet: whether names that a spreadsheet would run have an apostrophe before them in CSV files.
        method: how the model learns.
        backbone: of the model.
        pretrained: weights of the backbone.
        image_size: of its input.
        features: folder of the feature cache, if it is not below `work`.
        epochs: of training.
        folds: models for cross-fitting.
        seed: of all random draws.
        evidence: whether scores of other taggers, and the ImageNet prior where there are none, are used.
    """

    source: str | None = None
    source_format: str | None = None
    options: dict[str, Any] = {}
    photos: str | None = None
    keep: str = "precision=0.9"
    formats: tuple[str, ...] = ()
    spreadsheet: bool = False
    method: str = "auto"
    backbone: str = "tf_efficientnet_lite0"
    pretrained: bool | str = "bundled"
    image_size: int | str | None = None
    features: str | None = None
    epochs: int = 10
    folds: int = 5
    seed: int = 0
    evidence: bool = True

    def changed(self, new: Settings) -> Settings:
        """These settings with those of `new` that are not at their defaults, and the source of these.

        >>> Settings(source="tags.csv", epochs=5).changed(Settings(source="filled", keep="probability=0.8")).epochs
        5
        """
        given = {name for name, value in new if value != type(self).model_fields[name].default}
        kept = {"source", "source_format", "options", "photos"}
        return self.model_copy(update={name: getattr(new, name) for name in given - kept})


class Example(_Content):
    """A photo, and how probable it is that it shows a class."""

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
        examples: photos to which it was added, from the most to the least probable one.
        surest: photos to review that show it most probably.
    """

    name: str
    given: int
    added: int
    expected_right: float
    expected_missing: float
    to_review: int
    examples: list[Example]
    surest: list[Example] = []


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
        weights: of the model and of each piece of evidence in the scores; empty if there is none.
        doubts: a sentence about given tags that may be wrong.
        doubted: how many of these are among the questions.
        val_mAP: on photos with complete labels, in percent.
        classes: what was found of each class.
        past: earlier results in the same folder, oldest first.
        layout: of `filled.csv`.
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
    weights: dict[str, float] = {}
    doubts: str = ""
    doubted: int = 0
    val_mAP: float | None  # noqa: N815
    classes: list[ClassSummary]
    past: list[PastFill]
    layout: TableLayout
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

    @property
    def surest(self) -> float:
        """Probability of the surest tag that was not added."""
        return max((one.probability for each in self.classes for one in each.surest), default=0.0)

    def lower_keep(self) -> str | None:
        """A rule that would add some tags; None if nothing is more probable than not, or has a probability."""
        tenths = int(10 * self.surest)
        return f"probability={tenths / 10}" if tenths >= 5 and self.estimates.source != NOT_CALIBRATED else None

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
                f"Added {self.added:,} tags to {self.photos_with_additions:,} of {self.photos:,} photos. "
                f"About {percent} of them should be right, and about {self.expected_found:.0%} of the "
                f"{self.expected_missing:,.0f} tags that are expected to be missing were found."
            )
        else:
            lines.append(
                f"No tag was added to {self.photos:,} photos: none is sure enough for --keep {self.settings.keep}, "
                f"which is common with a few hundred tags. A review asks about the {self.to_review:,} likeliest ones."
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
