"""A review session: questions about images, the decisions about them, and the rules for several reviewers.

Questions are suggestions, or photos of which all tags are asked. A reviewer may decide any other pair as well.
Each decision says which earlier decision about the pair its reviewer had seen. If there is a newer one, the decision is
refused and the reviewer is shown the newer one. A decision that is sent twice counts once. Decisions that are sent
together are saved or refused one by one.

A bulk decision covers exactly the suggestions that its reviewer was shown: it names their number and fingerprint, and
is refused as a whole if other suggestions match now.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, StrictBool

from tagfill.curation.complete import Completion, draw_photos, move_complete
from tagfill.curation.decisions import DECIDE, SOURCE, UNDO, DecisionLog, LogEntry, apply_decisions
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.dataset.hierarchy import Hierarchy
from tagfill.errors import TagfillError
from tagfill.io import exclusive_lock
from tagfill.labels import NEGATIVE, POSITIVE, UNKNOWN

FOLDER, LOG = SOURCE, "decisions.jsonl"
AUDIT = "audit"  # source and folder of audits
_STATES = {True: "present", False: "absent", None: "cannot tell"}
_WORDS = {POSITIVE: "present", NEGATIVE: "absent", UNKNOWN: "cannot tell"}  # of annotated labels

Id = Annotated[str, Field(min_length=1, max_length=100)]
ReviewerName = Annotated[str, Field(max_length=100)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


@dataclass(frozen=True)
class Suggestion:
    """A suggestion and its position in the file.

    Attributes:
        place: position in the file, from 0.
        image: image of the pair.
        label: label of the pair.
        kind: `missing` or `wrong`.
        annotated: what the rows said when the suggestion was made: present, absent, or None for unknown.
        probability: that the image shows the label.
        value: expected value of checking the pair.
    """

    place: int
    image: str
    label: str
    kind: str
    annotated: bool | None
    probability: float
    value: float


@dataclass(frozen=True)
class Decision:
    """A reviewer's decision about a suggestion; the review page sends it in this form.

    Attributes:
        id: chosen by the sender.
        image: image of the pair.
        label: label of the pair.
        present: present, absent, or None for "cannot tell".
        seconds: time that the reviewer spent.
        seen: number of the newest log entry about the pair that the reviewer had seen; 0 for none.
        place: of the suggestion, to detect a decision about another file of suggestions; None for any other pair.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Id
    image: str
    label: str
    present: StrictBool | None
    seconds: Seconds = 0.0
    seen: Annotated[int, Field(ge=0)] = 0
    place: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True)
class BulkDecision:
    """One decision about all open suggestions that match; the review page sends it in this form.

    Attributes:
        id: chosen by the sender; undoing it undoes all decisions that this makes.
        label: label of the suggestions.
        kind: `missing` or `wrong`.
        minimum: their lowest probability.
        count: number of suggestions that the reviewer was shown.
        fingerprint: checksum of the suggestions that the reviewer was shown.
        present: whether all of them are present.
        text: part of the image's name, in any case.
        seconds: time that the reviewer spent on them together.
        who: name of the reviewer.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Id
    label: str
    kind: Literal["missing", "wrong"]
    minimum: Annotated[float, Field(ge=0, le=1)]
    count: Annotated[int, Field(ge=0)]
    fingerprint: str
    present: StrictBool
    text: str = ""
    seconds: Seconds = 0.0
    who: ReviewerName = ""


@dataclass(frozen=True)
class PairStatus:
    """The state of a pair after all log entries about it.

    Attributes:
        image: image of the pair.
        label: label of the pair.
        place: of the suggestion about the pair; None if there is none.
        number: of the newest log entry about the pair; 0 for none.
        decision: the decision in force, or None.
        refused: why the reviewer's decision was not saved; None if it was.
    """

    image: str
    label: str
    place: int | None
    number: int
    decision: LogEntry | None
    refused: str | None = None


@dataclass(frozen=True)
class Tag:
    """What is known about one class in one photo.

    Attributes:
        given: before the review: `present`, `absent`, `cannot tell` or `unknown`.
        state: now, with what the hierarchy of classes implies.
        status: the log entries about the pair.
    """

    given: str
    state: str
    status: PairStatus


class ReviewSession:
    """Questions about a dataset and the log of decisions about them; safe to use from several threads.

    Args:
        suggestions: suggestions to decide.
        log: the log, open in this process only.
        dataset: the dataset that they are about.
        photos: names of photos of which all tags are asked.
    """

    def __init__(
        self, suggestions: Suggestions, log: DecisionLog, dataset: Dataset, photos: Sequence[str] = ()
    ) -> None:
        suggestions.check(dataset)
        self.dataset, self.log, self.photos = dataset, log, list(photos)
        self.row_of_image = {name: row for row, name in enumerate(dataset.names())}
        self.class_of_label = {name: code for code, name in enumerate(dataset.classes)}
        self.suggestions = [Suggestion(place, **row) for place, row in enumerate(suggestions.table.to_pylist())]
        self._place_of_pair = {(one.image, one.label): one.place for one in reversed(self.suggestions)}
        self._by_label: dict[str, list[Suggestion]] = {}
        for one in self.suggestions:
            self._by_label.setdefault(one.label, []).append(one)
        self._decisions: dict[tuple[str, str], list[LogEntry]] = {}  # of each pair, without undone ones
        self._newest: dict[tuple[str, str], int] = {}
        self._before: dict[tuple[str, str], str] = {}  # state of each pair before its first log entry
        self._lock = threading.Lock()
        for entry in log.entries:
            self._replay(entry)

    def status(self, place: int) -> PairStatus:
        """The current state of a suggestion."""
        one = self.suggestions[place]
        return replace(self._status((one.image, one.label)), place=place)

    def tags(self, image: str) -> list[Tag]:
        """What is known about each class in a photo, in the order of the classes."""
        with self._lock:
            return self._tags(image)

    def is_finished(self, image: str) -> bool:
        """Whether nothing is unknown about a photo."""
        return all(tag.state != "unknown" for tag in self.tags(image))

    def finish(self, image: str, id_: str, who: str, seconds: float = 0.0) -> list[PairStatus]:
        """Decide that a photo has no tags except those that are known: everything unknown becomes absent.

        Args:
            image: name of the photo.
            id_: chosen by the sender; undoing it undoes all decisions that this makes.
            who: name of the reviewer.
            seconds: time that the reviewer spent on these decisions together.

        Raises:
            TagfillError: if tags of the photo contradict the hierarchy of classes.
        """
        if image not in self.row_of_image:
            raise TagfillError(f"There is no image {image} in dataset {self.dataset.name}; reload the page.")
        with self._lock:
            tags = self._tags(image)
            self._check_hierarchy(image, tags)
            unknown = [code for code, tag in enumerate(tags) if tag.state == "unknown"]
            new: list[LogEntry] = []
            for code in unknown:
                pair = image, self.dataset.classes[code]
                entry = self._entry(DECIDE, f"{id_}/{code}", pair, False, who, len(new))
                if self.log.find(entry.id) is None:
                    new.append(replace(entry, seconds=round(seconds / len(unknown), 3), group=id_))
            self._append(new)
            return [self._status((image, label)) for label in self.dataset.classes]

    def decide(self, decisions: Sequence[Decision], who: str, *, group: str | None = None) -> list[PairStatus]:
        """Write decisions to the log; they are on disk when this returns.

        Args:
            decisions: decisions of one reviewer.
            who: name of the reviewer.
            group: id of the bulk decision that they belong to, by which all of them can be undone.

        Returns:
            The state of each pair, in the order of the decisions. `refused` says why a decision was not saved: another
            reviewer decided in the meantime, or it is not about a suggestion of this session. The others are saved.

        Raises:
            NotWrittenError: if they cannot be written; then none of them counts.
        """
        with self._lock:
            return self._decide(decisions, who, group)

    def _decide(self, decisions: Sequence[Decision], who: str, group: str | None) -> list[PairStatus]:
        new: dict[str, LogEntry] = {}
        decided: set[tuple[str, str]] = set()
        reasons: list[str | None] = []
        for decision in decisions:
            pair = decision.image, decision.label
            if self.log.find(decision.id) is not None or decision.id in new:  # sent twice
                reasons.append(None)
                continue
            reasons.append(self._why_refused(decision, pair in decided))
            if reasons[-1] is None:
                decided.add(pair)
                entry = self._entry(DECIDE, decision.id, pair, decision.present, who, len(new))
                new[decision.id] = replace(entry, seconds=round(decision.seconds, 3), group=group)
        self._append(list(new.values()))
        return [
            replace(self._status((one.image, one.label)), place=one.place, refused=reason)
            for one, reason in zip(decisions, reasons, strict=True)
        ]

    def select_open(self, label: str, kind: str, minimum: float, text: str) -> list[Suggestion]:
        """The suggestions that a bulk decision covers: open ones, one per image; arguments as in `select`."""
        with self._lock:
            return self._select_open(label, kind, minimum, text)

    def _select_open(self, label: str, kind: str, minimum: float, text: str) -> list[Suggestion]:
        pending: dict[str, Suggestion] = {}
        for one in self.select(label, kind, minimum, text):
            if self._status((one.image, one.label)).decision is None:
                pending.setdefault(one.image, one)
        return list(pending.values())

    def decide_bulk(self, bulk: BulkDecision, who: str) -> list[PairStatus]:
        """Decide all open suggestions that match, if they are those that the reviewer was shown.

        Returns:
            The state of each of their pairs.

        Raises:
            TagfillError: if other suggestions match now; then nothing is decided.
            NotWrittenError: if the decisions cannot be written; then none of them counts.
        """
        with self._lock:
            earlier = [entry for entry in self.log.entries if entry.group == bulk.id]
            if earlier:  # sent twice
                return [self._status(entry.pair) for entry in earlier]
            pending = self._select_open(bulk.label, bulk.kind, bulk.minimum, bulk.text)
            if (len(pending), fingerprint(pending)) != (bulk.count, bulk.fingerprint):
                raise TagfillError(
                    f"The page showed {bulk.count:,} suggestions of '{bulk.label}' with a score of at least "
                    f"{bulk.minimum:g}, but now {len(pending):,} match, or others do; look at them again."
                )
            seconds = bulk.seconds / max(1, len(pending))
            decisions = [
                Decision(
                    id=f"{bulk.id}/{one.place}",
                    image=one.image,
                    label=one.label,
                    present=bulk.present,
                    seconds=seconds,
                    seen=self._newest.get((one.image, one.label), 0),
                    place=one.place,
                )
                for one in pending
            ]
            return self._decide(decisions, who, bulk.id)

    def undo(self, undoes: str, id_: str, who: str) -> list[PairStatus]:
        """Undo a decision, or all decisions of a group, except where there is a newer decision about the pair.

        Args:
            undoes: id of a decision or of a group.
            id_: id of this undo, chosen by the sender.
            who: name of the reviewer.

        Returns:
            The state of each pair that was decided.
        """
        with self._lock:
            entries = [
                entry for entry in self.log.entries if entry.action == DECIDE and undoes in (entry.id, entry.group)
            ]
            if not entries:
                raise TagfillError(f"There is no decision '{undoes}' to undo.")
            new: list[LogEntry] = []
            for entry in entries:
                own_id = id_ if len(entries) == 1 else f"{id_}/{entry.id}"
                decisions = self._decisions.get(entry.pair)
                if self.log.find(own_id) is None and decisions and decisions[-1].id == entry.id:
                    undo = self._entry(UNDO, own_id, entry.pair, entry.present, who, len(new))
                    new.append(replace(undo, undoes=entry.id))
            self._append(new)
            return [self._status(entry.pair) for entry in entries]

    def select(self, label: str | None, kind: str | None, minimum: float, text: str) -> list[Suggestion]:
        """Filter the suggestions.

        Args:
            label: only this label; None for all.
            kind: only this kind; None for both.
            minimum: lowest probability.
            text: part of the image's name, in any case.
        """
        wanted = text.casefold()
        return [
            one
            for one in (self.suggestions if label is None else self._by_label.get(label, ()))
            if kind in (None, one.kind) and one.probability >= minimum and wanted in one.image.casefold()
        ]

    def changes(self, since: int) -> tuple[int, list[PairStatus]]:
        """The number of the newest log entry, and the state of the pairs with entries after `since`."""
        with self._lock:
            pairs = {entry.pair for entry in self.log.entries[max(since, 0) :]}
            return len(self.log.entries), [self._status(pair) for pair in pairs]

    def current_decisions(self) -> list[LogEntry]:
        """The decisions in force, in the order in which they were made."""
        with self._lock:
            return sorted((made[-1] for made in self._decisions.values() if made), key=lambda entry: entry.number)

    def _status(self, pair: tuple[str, str]) -> PairStatus:
        decisions = self._decisions.get(pair)
        current = decisions[-1] if decisions else None
        return PairStatus(*pair, self._place_of_pair.get(pair), self._newest.get(pair, 0), current)

    def _why_refused(self, decision: Decision, decided: bool) -> str | None:
        """Why a decision cannot be saved, or None; `decided` if an earlier one of its batch is about the same pair."""
        pair = decision.image, decision.label
        if decision.place is None:
            known = decision.image in self.row_of_image and decision.label in self.class_of_label
        else:  # a place of another session, perhaps of an audit, must not decide here
            one = self.suggestions[decision.place] if decision.place < len(self.suggestions) else None
            known = one is not None and (one.image, one.label) == pair
        if not known:
            return (
                f"The decision about '{decision.label}' in {decision.image} belongs to another file of suggestions. "
                "Start the review with that file to save it, or reload the page to see the suggestions of this one."
            )
        now = self._status(pair)
        if now.number == decision.seen and not decided:
            return None
        if now.decision is None:
            return f"The decision about {decision.label} was changed or undone in the meantime."
        who = now.decision.who or "Another reviewer"
        return f"{who} already decided {decision.label}: {_STATES[now.decision.present]}."

    def _given(self, pair: tuple[str, str]) -> str:
        """The state of a pair before the review: what the log remembers, else what the rows say."""
        if pair in self._before:
            return self._before[pair]
        row = np.array([self.row_of_image[pair[0]]])
        return self._states_of_rows(row)[self.class_of_label[pair[1]]]

    def _states_of_rows(self, row: NDArray[np.int64]) -> list[str]:
        labels = self.dataset.labels()
        values, annotated = labels.rows(row)[0], labels.is_annotated(row)[0]
        return [_WORDS[value] if known else "unknown" for value, known in zip(values, annotated, strict=True)]

    def _tags(self, image: str) -> list[Tag]:
        given = self._states_of_rows(np.array([self.row_of_image[image]]))
        statuses = [self._status((image, label)) for label in self.dataset.classes]
        for code, status in enumerate(statuses):
            given[code] = self._before.get((image, status.label), given[code])
        states = [
            state if status.decision is None else _STATES[status.decision.present]
            for state, status in zip(given, statuses, strict=True)
        ]
        implied = dict[int, str]()
        for code, state in enumerate(states):
            if state == "present":
                implied |= dict.fromkeys(self._hierarchy.ancestors[code], "present")
            elif state == "absent":
                implied |= dict.fromkeys(self._hierarchy.descendants[code], "absent")
        for code, state in implied.items():
            if states[code] in ("unknown", "cannot tell"):
                states[code] = state
        return [Tag(*one) for one in zip(given, states, statuses, strict=True)]

    @cached_property
    def _hierarchy(self) -> Hierarchy:
        return Hierarchy(self.dataset.classes, self.dataset.hierarchy)

    def _check_hierarchy(self, image: str, tags: Sequence[Tag]) -> None:
        for code, tag in enumerate(tags):
            for above in self._hierarchy.ancestors[code] if tag.state == "present" else ():
                if tags[above].state == "absent":
                    child, parent = self.dataset.classes[code], self.dataset.classes[above]
                    raise TagfillError(
                        f"In {image}, '{child}' is present and '{parent}' is absent, but each '{child}' is a "
                        f"'{parent}'; change one of them."
                    )

    def _entry(
        self, action: str, id_: str, pair: tuple[str, str], present: bool | None, who: str, ahead: int
    ) -> LogEntry:
        """The log entry that follows `ahead` entries that are not in the log yet."""
        made = self._decisions.get(pair)
        previous = _STATES[made[-1].present] if made else self._given(pair)
        return LogEntry(
            number=len(self.log.entries) + 1 + ahead,
            id=id_,
            action=action,
            image=pair[0],
            label=pair[1],
            present=present,
            who=who,
            time=self.log.next_time(ahead),
            seconds=0.0,
            previous=previous,
        )

    def _append(self, entries: Sequence[LogEntry]) -> None:
        if entries:
            self.log.append(entries)
            for entry in entries:
                self._replay(entry)

    def _replay(self, entry: LogEntry) -> None:
        decisions = self._decisions.setdefault(entry.pair, [])
        self._before.setdefault(entry.pair, entry.previous)
        if entry.action == DECIDE:
            decisions.append(entry)
        elif decisions and decisions[-1].id == entry.undoes:
            decisions.pop()
        self._newest[entry.pair] = entry.number


def fingerprint(suggestions: Sequence[Suggestion]) -> str:
    """A checksum of suggestions; another selection has another one."""
    selected = repr([(one.place, one.image, one.label) for one in suggestions])
    return hashlib.sha256(selected.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@contextmanager
def open_session(
    dataset: Dataset, suggestions: Suggestions, *, complete: Completion | None = None, source: str = SOURCE
) -> Iterator[ReviewSession]:
    """Review a dataset; decisions become rows at the end, those of an interrupted review at the beginning.

    Args:
        dataset: opened from a folder, which keeps the log in `review/decisions.jsonl`.
        suggestions: suggestions about it.
        complete: photos of which all tags are asked; complete photos move to their new split at the end.
        source: of the rows, and the name of the folder that keeps the log.

    Raises:
        TagfillError: if another process reviews this dataset.
    """
    if dataset.folder is None:
        raise TagfillError("A review keeps its log in the dataset's folder; save the dataset first.")
    folder = dataset.folder / FOLDER
    log_path = dataset.folder / source / LOG
    with exclusive_lock(folder, "is reviewing"), DecisionLog(log_path) as log:  # one lock: they write the same files
        _apply(ReviewSession(Suggestions.empty(), log, dataset), source)
        current = Dataset.open(dataset.folder)
        photos = [] if complete is None else draw_photos(current, complete, folder)
        session = ReviewSession(suggestions, log, current, photos)
        try:
            yield session
        finally:
            _apply(session, source)


def _apply(session: ReviewSession, source: str) -> int:
    """Make the rows agree with the log, then the splits with the rows; return the number of changed rows."""
    folder = session.dataset.folder
    assert folder is not None
    changes = apply_decisions(session.dataset, session.log.entries, session.current_decisions(), source)
    move_complete(folder / FOLDER, folder)
    return changes


def apply_log(dataset: Dataset) -> int:
    """Turn the decisions of interrupted reviews and audits into rows.

    Returns:
        The number of rows that were added or removed.
    """
    changes = 0
    for source in (SOURCE, AUDIT):
        if dataset.folder is None or not (dataset.folder / source / LOG).exists():
            continue
        with (
            exclusive_lock(dataset.folder / FOLDER, "is reviewing"),
            DecisionLog(dataset.folder / source / LOG) as log,
        ):
            changes += _apply(ReviewSession(Suggestions.empty(), log, dataset), source)
    return changes
