"""The desk of a review: suggestions, what was decided about them, and who may decide what.

Several reviewers may sit at it. Whoever decides says which decision about the pair they had seen; if there is a newer
one by now, theirs does not count and they are shown it. A decision that is sent twice counts once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tagfill.curation.decisions import DECIDE, UNDO, Entry, Log
from tagfill.curation.suggestions import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

_WORDS = {True: "present", False: "absent", None: "cannot tell"}


@dataclass(frozen=True)
class Suggestion:
    """A suggestion at its place in the order of looking.

    Attributes:
        place: its position in the file.
        image: of the pair.
        label: of the pair.
        kind: `missing` or `wrong`.
        annotated: what the rows said when it was made: present, absent or None: unknown.
        probability: that the image shows the label.
        value: of checking it.
    """

    place: int
    image: str
    label: str
    kind: str
    annotated: bool | None
    probability: float
    value: float


@dataclass(frozen=True)
class Verdict:
    """What a reviewer wants to say about a suggestion.

    Attributes:
        id: of the decision, chosen by the sender.
        place: of the suggestion.
        image: of its pair, so that a verdict about another file of suggestions is found out.
        label: of its pair.
        present: present, absent, or None: cannot tell.
        seconds: what it cost.
        seen: number of the newest entry about the pair that the reviewer knew of; 0 if none.
    """

    id: str
    place: int
    image: str
    label: str
    present: bool | None
    seconds: float = 0.0
    seen: int = 0


@dataclass(frozen=True)
class PairStatus:
    """How a suggestion stands after all entries about its pair.

    Attributes:
        place: of the suggestion.
        number: of the newest entry about it; 0 if there is none.
        decision: the one that holds, or None if it is open.
        refused: a verdict was refused, because this is newer than what the reviewer had seen.
    """

    place: int
    number: int
    decision: Entry | None
    refused: bool = False


class ReviewSession:
    """Suggestions about a dataset and the log of their decisions.

    Args:
        suggestions: to decide.
        log: open for this desk alone.
        dataset: that they are about.
    """

    def __init__(self, suggestions: Suggestions, log: Log, dataset: Dataset) -> None:
        suggestions.check(dataset)
        self.dataset, self.log = dataset, log
        self.suggestions = [Suggestion(place, **row) for place, row in enumerate(suggestions.table.to_pylist())]
        self._place = {(one.image, one.label): one.place for one in reversed(self.suggestions)}
        self._of: dict[str, list[Suggestion]] = {}
        for one in self.suggestions:
            self._of.setdefault(one.label, []).append(one)
        self._held: dict[tuple[str, str], list[Entry]] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        for entry in log.entries:
            self._take(entry)

    def standing(self, place: int) -> PairStatus:
        """How a suggestion stands now."""
        one = self.suggestions[place]
        pair = one.image, one.label
        held = self._held.get(pair)
        return PairStatus(place, self._newest.get(pair, 0), held[-1] if held else None)

    def decide(self, verdicts: Sequence[Verdict], who: str, *, group: str | None = None) -> list[PairStatus]:
        """Take verdicts into the log; when this returns they are on disk.

        Args:
            verdicts: of one reviewer.
            who: the reviewer.
            group: a name for verdicts that are made, and undone, at one stroke.

        Returns:
            How each suggestion stands; `refused` where somebody else had decided meanwhile.

        Raises:
            NotWrittenError: if the disk refuses them, in which case none counts.
        """
        with self._lock:
            fresh: list[Entry] = []
            refused: set[str] = set()
            decided: set[tuple[str, str]] = set()
            for verdict in verdicts:
                one = self._suggestion(verdict)
                pair = one.image, one.label
                if self.log.find(verdict.id) is not None:
                    continue
                if self._newest.get(pair, 0) != verdict.seen or pair in decided:
                    refused.add(verdict.id)
                    continue
                decided.add(pair)
                entry = self._entry(DECIDE, verdict.id, one, verdict.present, who, len(fresh))
                fresh.append(replace(entry, seconds=round(verdict.seconds, 3), group=group))
            self._append(fresh)
            return [self._outcome(verdict, verdict.id in refused) for verdict in verdicts]

    def undo(self, undoes: str, id_: str, who: str) -> list[PairStatus]:
        """Take back a decision, or all of its group, unless somebody decided about the pair since.

        Args:
            undoes: the id of a decision, or of a group.
            id_: of the undoing, chosen by the sender.
            who: the reviewer.
        """
        with self._lock:
            entries = [
                entry
                for entry in self.log.entries
                if entry.action == DECIDE and undoes in (entry.id, entry.group) and entry.pair in self._place
            ]
            if not entries:
                raise TagfillError(f"There is no decision '{undoes}' to undo.")
            fresh: list[Entry] = []
            for entry in entries:
                own = id_ if len(entries) == 1 else f"{id_}/{entry.id}"
                held = self._held.get(entry.pair)
                if self.log.find(own) is None and held and held[-1].id == entry.id:
                    one = self.suggestions[self._place[entry.pair]]
                    fresh.append(replace(self._entry(UNDO, own, one, entry.present, who, len(fresh)), undoes=entry.id))
            self._append(fresh)
            return [self.standing(self._place[entry.pair]) for entry in entries]

    def selected(self, label: str | None, kind: str | None, minimum: float, text: str) -> list[Suggestion]:
        """Suggestions of a class and a kind (None: of all), of a least probability, whose image's name has `text`."""
        wanted = text.casefold()
        return [
            one
            for one in (self.suggestions if label is None else self._of.get(label, ()))
            if kind in (None, one.kind) and one.probability >= minimum and wanted in one.image.casefold()
        ]

    def changes(self, since: int) -> tuple[int, list[PairStatus]]:
        """The number of the newest entry, and how suggestions stand that have entries after `since`."""
        with self._lock:
            pairs = {entry.pair for entry in self.log.entries[max(since, 0) :]}
            return len(self.log.entries), [self.standing(self._place[pair]) for pair in pairs if pair in self._place]

    def live(self) -> list[Entry]:
        """The decisions that hold, in the order in which they were made."""
        with self._lock:
            return sorted((held[-1] for held in self._held.values() if held), key=lambda entry: entry.number)

    def _suggestion(self, verdict: Verdict) -> Suggestion:
        one = self.suggestions[verdict.place] if 0 <= verdict.place < len(self.suggestions) else None
        if one is None or (one.image, one.label) != (verdict.image, verdict.label):
            raise TagfillError(
                f"A decision about '{verdict.label}' of {verdict.image} belongs to another file of suggestions and "
                "does not count here."
            )
        return one

    def _entry(self, action: str, id_: str, one: Suggestion, present: bool | None, who: str, ahead: int) -> Entry:
        """A line to come after `ahead` others that are not in the log yet."""
        held = self._held.get((one.image, one.label))
        before = _WORDS[held[-1].present] if held else "unknown" if one.annotated is None else _WORDS[one.annotated]
        return Entry(
            number=len(self.log.entries) + 1 + ahead,
            id=id_,
            action=action,
            image=one.image,
            label=one.label,
            present=present,
            who=who,
            time=self.log.next_time(ahead),
            seconds=0.0,
            previous=before,
        )

    def _append(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.log.append(entries)
            for entry in entries:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        held = self._held.setdefault(entry.pair, [])
        if entry.action == DECIDE:
            held.append(entry)
        elif held and held[-1].id == entry.undoes:
            held.pop()
        self._newest[entry.pair] = entry.number

    def _outcome(self, verdict: Verdict, refused: bool) -> PairStatus:
        return replace(self.standing(verdict.place), refused=refused)
