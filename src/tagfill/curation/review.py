"""A review session: suggestions, the decisions about them, and the rules for several reviewers.

Each decision says which earlier decision about the pair its reviewer had seen. If there is a newer one, the decision is
refused and the reviewer is shown the newer one. A decision that is sent twice counts once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, StrictBool

from tagfill.curation.decisions import DECIDE, UNDO, DecisionLog, LogEntry, apply_decisions
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.io import exclusive_lock

FOLDER, LOG = "review", "decisions.jsonl"
_STATES = {True: "present", False: "absent", None: "cannot tell"}

Id = Annotated[str, Field(min_length=1, max_length=100)]
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
        place: of the suggestion.
        image: image of the pair, to detect a decision about another file of suggestions.
        label: label of the pair.
        present: present, absent, or None for "cannot tell".
        seconds: time that the reviewer spent.
        seen: number of the newest log entry about the pair that the reviewer had seen; 0 for none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Id
    place: Annotated[int, Field(ge=0)]
    image: str
    label: str
    present: StrictBool | None
    seconds: Seconds = 0.0
    seen: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class PairStatus:
    """The state of a suggestion after all log entries about its pair.

    Attributes:
        place: of the suggestion.
        number: of the newest log entry about the pair; 0 for none.
        decision: the decision in force, or None if the suggestion is open.
        refused: the reviewer's decision was refused, because this one is newer than what the reviewer had seen.
    """

    place: int
    number: int
    decision: LogEntry | None
    refused: bool = False


class ReviewSession:
    """Suggestions about a dataset and the log of decisions about them; safe to use from several threads.

    Args:
        suggestions: suggestions to decide.
        log: the log, open in this process only.
        dataset: the dataset that they are about.
    """

    def __init__(self, suggestions: Suggestions, log: DecisionLog, dataset: Dataset) -> None:
        suggestions.check(dataset)
        self.dataset, self.log = dataset, log
        self.suggestions = [Suggestion(place, **row) for place, row in enumerate(suggestions.table.to_pylist())]
        self._place_of_pair = {(one.image, one.label): one.place for one in reversed(self.suggestions)}
        self._by_label: dict[str, list[Suggestion]] = {}
        for one in self.suggestions:
            self._by_label.setdefault(one.label, []).append(one)
        self._decisions: dict[tuple[str, str], list[LogEntry]] = {}  # of each pair, without undone ones
        self._newest: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        for entry in log.entries:
            self._replay(entry)

    def status(self, place: int) -> PairStatus:
        """The current state of a suggestion."""
        one = self.suggestions[place]
        pair = one.image, one.label
        decisions = self._decisions.get(pair)
        return PairStatus(place, self._newest.get(pair, 0), decisions[-1] if decisions else None)

    def decide(self, decisions: Sequence[Decision], who: str, *, group: str | None = None) -> list[PairStatus]:
        """Write decisions to the log; they are on disk when this returns.

        Args:
            decisions: decisions of one reviewer.
            who: name of the reviewer.
            group: id of the bulk decision that they belong to, by which all of them can be undone.

        Returns:
            The state of each suggestion, with `refused` where another reviewer decided in the meantime.

        Raises:
            NotWrittenError: if they cannot be written; then none of them counts.
        """
        with self._lock:
            new: list[LogEntry] = []
            refused: set[str] = set()
            decided: set[tuple[str, str]] = set()
            for decision in decisions:
                one = self._suggestion(decision)
                pair = one.image, one.label
                if self.log.find(decision.id) is not None:
                    continue
                if self._newest.get(pair, 0) != decision.seen or pair in decided:
                    refused.add(decision.id)
                    continue
                decided.add(pair)
                entry = self._entry(DECIDE, decision.id, one, decision.present, who, len(new))
                new.append(replace(entry, seconds=round(decision.seconds, 3), group=group))
            self._append(new)
            return [replace(self.status(one.place), refused=one.id in refused) for one in decisions]

    def undo(self, undoes: str, id_: str, who: str) -> list[PairStatus]:
        """Undo a decision, or all decisions of a group, except where there is a newer decision about the pair.

        Args:
            undoes: id of a decision or of a group.
            id_: id of this undo, chosen by the sender.
            who: name of the reviewer.

        Returns:
            The state of each suggestion that was decided.
        """
        with self._lock:
            entries = [
                entry
                for entry in self.log.entries
                if entry.action == DECIDE and undoes in (entry.id, entry.group) and entry.pair in self._place_of_pair
            ]
            if not entries:
                raise TagfillError(f"There is no decision '{undoes}' to undo.")
            new: list[LogEntry] = []
            for entry in entries:
                own_id = id_ if len(entries) == 1 else f"{id_}/{entry.id}"
                decisions = self._decisions.get(entry.pair)
                if self.log.find(own_id) is None and decisions and decisions[-1].id == entry.id:
                    one = self.suggestions[self._place_of_pair[entry.pair]]
                    undo = self._entry(UNDO, own_id, one, entry.present, who, len(new))
                    new.append(replace(undo, undoes=entry.id))
            self._append(new)
            return [self.status(self._place_of_pair[entry.pair]) for entry in entries]

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
        """The number of the newest log entry, and the state of the suggestions with entries after `since`."""
        with self._lock:
            pairs = {entry.pair for entry in self.log.entries[max(since, 0) :]}
            places = (self._place_of_pair[pair] for pair in pairs if pair in self._place_of_pair)
            return len(self.log.entries), [self.status(place) for place in places]

    def current_decisions(self) -> list[LogEntry]:
        """The decisions in force, in the order in which they were made."""
        with self._lock:
            return sorted((made[-1] for made in self._decisions.values() if made), key=lambda entry: entry.number)

    def _suggestion(self, decision: Decision) -> Suggestion:
        one = self.suggestions[decision.place] if 0 <= decision.place < len(self.suggestions) else None
        if one is None or (one.image, one.label) != (decision.image, decision.label):
            raise TagfillError(
                f"The decision about '{decision.label}' in {decision.image} belongs to another file of suggestions and "
                "was not saved; reload the page."
            )
        return one

    def _entry(self, action: str, id_: str, one: Suggestion, present: bool | None, who: str, ahead: int) -> LogEntry:
        """The log entry that follows `ahead` entries that are not in the log yet."""
        made = self._decisions.get((one.image, one.label))
        previous = _STATES[made[-1].present] if made else "unknown" if one.annotated is None else _STATES[one.annotated]
        return LogEntry(
            number=len(self.log.entries) + 1 + ahead,
            id=id_,
            action=action,
            image=one.image,
            label=one.label,
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
        if entry.action == DECIDE:
            decisions.append(entry)
        elif decisions and decisions[-1].id == entry.undoes:
            decisions.pop()
        self._newest[entry.pair] = entry.number


@contextmanager
def open_session(dataset: Dataset, suggestions: Suggestions) -> Iterator[ReviewSession]:
    """Review a dataset; decisions become rows at the end, those of an interrupted review at the beginning.

    Args:
        dataset: opened from a folder, which keeps the log in `review/decisions.jsonl`.
        suggestions: suggestions about it.

    Raises:
        TagfillError: if another process reviews this dataset.
    """
    if dataset.folder is None:
        raise TagfillError("A review keeps its log in the dataset's folder; save the dataset first.")
    folder = dataset.folder / FOLDER
    with exclusive_lock(folder, "is reviewing"), DecisionLog(folder / LOG) as log:
        session = ReviewSession(suggestions, log, dataset)
        apply_decisions(dataset, log.entries, session.current_decisions())
        try:
            yield session
        finally:
            apply_decisions(dataset, log.entries, session.current_decisions())


def apply_log(dataset: Dataset) -> int:
    """Turn the decisions of an interrupted review into rows.

    Returns:
        The number of rows that were added or removed.
    """
    if dataset.folder is None or not (dataset.folder / FOLDER / LOG).exists():
        return 0
    with exclusive_lock(dataset.folder / FOLDER, "is reviewing"), DecisionLog(dataset.folder / FOLDER / LOG) as log:
        session = ReviewSession(Suggestions.empty(), log, dataset)
        return apply_decisions(dataset, log.entries, session.current_decisions())
