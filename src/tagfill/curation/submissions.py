"""Annotations that were submitted in Label Studio: the log that keeps them, and the rows of the dataset they become.

The log is append-only (`tagfill.curation.entry_log`) and lies in the dataset's folder, in `label-studio`. An annotation
is confirmed to Label Studio after its line is on disk. A newer version of an annotation replaces the older one, and a
deleted annotation is withdrawn; both are further lines.

Each annotation in force becomes rows with its annotator as `source` (`label-studio:3`), the time when it was submitted,
and its lead time in seconds, divided evenly among them. `Submissions.apply` compares the log with the rows, so calling
it twice, or again after a crash, changes nothing.

What an annotation does not mention stays unknown, unless the annotator said that it is absent. Statements that
contradict each other within one annotation are left out.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagfill.curation.entry_log import Entry, EntryLog, read_log
from tagfill.dataset import Dataset
from tagfill.dataset.dataset import add_images, replace_table
from tagfill.dataset.hierarchy import Hierarchy
from tagfill.dataset.tables import from_records
from tagfill.errors import LockedError, TagfillError
from tagfill.formats.label_studio import Annotation
from tagfill.formats.label_studio_config import ABSENT, LabelingConfig
from tagfill.io import exclusive_lock
from tagfill.progress import SILENT, Progress

FOLDER, LOG = "label-studio", "annotations.jsonl"
SOURCE = "label-studio"  # begins the source of every row
SUBMIT, WITHDRAW = "submit", "withdraw"
_WAIT = 60.0  # seconds for another process that writes the dataset
_Key = tuple[str, str, datetime]  # image, source and time of an annotation
Statement = tuple[str, bool | None, dict[str, Any]]  # label, state and location columns
StorePhoto = Callable[[str, str], None]


@dataclass(frozen=True)
class Submission(Entry):
    """A line of the log.

    Attributes:
        annotation: project and number of the annotation; a later entry about it replaces this one.
        action: `submit` or `withdraw`.
        image: name of the image in the dataset.
        url: its address in Label Studio.
        source: the annotator.
        time: when it was submitted, ISO 8601 in UTC.
        seconds: time that the annotator spent.
        rows: label, state and location columns of each row.
    """

    annotation: str
    action: str
    image: str = ""
    url: str = ""
    source: str = ""
    time: str = ""
    seconds: float | None = None
    rows: Sequence[Sequence[Any]] = ()

    @property
    def key(self) -> _Key:
        """What its rows have in common, and no other rows have."""
        return self.image, self.source, datetime.fromisoformat(self.time)

    def records(self, classes: set[str]) -> Iterator[dict[str, Any]]:
        """Its rows, as far as they are about these classes."""
        image, source, time = self.key
        seconds = None if self.seconds is None else self.seconds / max(1, len(self.rows))
        for label, present, columns in self.rows:
            if label in classes:
                own = dict(columns)
                if "rle" in own:
                    own["rle"] = base64.b64decode(own["rle"])
                same = {"image": image, "source": source, "time": time, "seconds": seconds}
                yield {"label": label, "present": present, **same, **own}


class Submissions:
    """The log of a dataset, open in this process only; safe to use from several threads.

    Args:
        folder: of the dataset.
        log: the open log.
    """

    def __init__(self, folder: Path, log: EntryLog[Submission]) -> None:
        self.folder, self.log = folder, log
        self._lock = threading.Lock()
        self._current: dict[str, Submission] = {}
        for entry in log.entries:
            self._current[entry.annotation] = entry

    def submit(
        self, annotation: str, *, image: str, url: str, source: str, time: datetime, seconds: float | None, rows: Any
    ) -> bool:
        """Write an annotation, or a newer version of one, to the log; it is on disk when this returns.

        Args:
            annotation: project and number of the annotation.
            image: name of the image.
            url: its address in Label Studio.
            source: the annotator.
            time: when it was submitted.
            seconds: time that the annotator spent.
            rows: from `statements_of`.

        Returns:
            Whether it was new; otherwise this version, or a newer one, is in the log already.

        Raises:
            NotWrittenError: if it cannot be written; then it does not count.
        """
        stated = [[label, state, _to_json(columns)] for label, state, columns in rows]
        moment = time.astimezone(UTC).isoformat(timespec="microseconds")
        with self._lock:
            before = self._current.get(annotation)
            if before is not None and moment <= before.time:
                return False
            self._append(annotation, SUBMIT, image, url, source, moment, seconds, stated)
            return True

    def withdraw(self, annotation: str) -> bool:
        """Write to the log that an annotation was deleted; return whether it was there.

        Raises:
            NotWrittenError: if it cannot be written; then it does not count.
        """
        with self._lock:
            before = self._current.get(annotation)
            if before is None or before.action == WITHDRAW:
                return False
            moment = max(datetime.now(UTC).isoformat(timespec="microseconds"), before.time)
            self._append(annotation, WITHDRAW, before.image, before.url, before.source, moment, None, [])
            return True

    def _append(self, annotation: str, action: str, *rest: Any) -> None:
        number = len(self.log.entries) + 1
        entry = Submission(number, str(number), annotation, action, *rest)
        self.log.append([entry])
        self._current[annotation] = entry

    def apply(self, store: StorePhoto | None = None, *, progress: Progress = SILENT) -> int:
        """Make the rows of the dataset agree with the log.

        Args:
            store: brings a photo that the dataset does not have below its image root, given its address and its name;
                raises a `TagfillError` if it cannot.
            progress: told about photos that are missing.

        Returns:
            The number of annotations that were added or removed; if it is 0, the table of annotations was not touched.
        """
        with self._lock:
            entries, current = list(self.log.entries), dict(self._current)
        in_force = [entry for entry in current.values() if entry.action == SUBMIT and entry.rows]
        self._add_photos(in_force, store, progress)
        with exclusive_lock(self.folder, "is adding annotations", wait=_WAIT):
            dataset = Dataset.open(self.folder)
            names = set(dataset.names())
            wanted = {entry.key: entry for entry in in_force if entry.image in names}
            known = {entry.key for entry in entries if entry.action == SUBMIT}
            return _replace_rows(dataset, known, wanted)

    def _add_photos(self, entries: Sequence[Submission], store: StorePhoto | None, progress: Progress) -> None:
        """Add photos to the dataset that it does not have, as far as their files are there or can be stored."""
        dataset = Dataset.open(self.folder)
        names = set(dataset.names())
        missing = {entry.image: entry.url for entry in entries if entry.image not in names}
        found, problems = [], []
        for name, url in missing.items():
            try:
                if not (isinstance(dataset.root, Path) and (dataset.root / name).is_file()):
                    if store is None:
                        raise TagfillError(f"There is no photo {name} below {dataset.root}.")
                    store(url, name)
                found.append(name)
            except (TagfillError, OSError) as error:
                problems.append(str(error))
        if found:
            add_images(self.folder, found)
        if problems:
            waiting = f"Warning: annotations of {len(problems):,} photos wait until the dataset has these photos"
            progress.say(f"{waiting}: {problems[0]}")


@contextmanager
def open_submissions(folder: Path) -> Iterator[Submissions]:
    """Open the log of a dataset folder.

    Raises:
        TagfillError: if there is no dataset, or another process has the log open.
    """
    Dataset.open(folder)  # raises before the lock creates a folder
    own = folder / FOLDER
    with exclusive_lock(own, "is receiving annotations", choose="--dataset"), _open_log(own) as log:
        yield Submissions(folder, log)


def apply_submissions(folder: Path, *, progress: Progress = SILENT) -> int:
    """Turn annotations into rows that a killed server left in the log.

    A server that still runs does this itself, so then nothing is done.

    Args:
        folder: of a dataset.
        progress: told what was done.

    Returns:
        The number of annotations that were added or removed.
    """
    own = folder / FOLDER
    if not (own / LOG).is_file():
        return 0
    try:
        with exclusive_lock(own, "is receiving annotations"), _open_log(own) as log:
            changes = Submissions(folder, log).apply(progress=progress)
    except LockedError:
        return 0
    if changes:
        progress.say(f"{changes:,} annotations from Label Studio were added to {folder}.")
    return changes


def submitted_rows(folder: Path, rows: pa.Table) -> pa.Table:
    """Those rows of a dataset folder that come from its log.

    Args:
        folder: of the dataset.
        rows: all of its rows.
    """
    path = folder / FOLDER / LOG
    entries = read_log(path, Submission)[0] if path.is_file() else []
    known = {entry.key for entry in entries if entry.action == SUBMIT}
    found = [
        batch.take(pa.array([row for row, _ in _keys_of_rows(batch, known)], pa.int64())) for batch in rows.to_batches()
    ]
    return pa.Table.from_batches(found, rows.schema)


def _open_log(own: Path) -> EntryLog[Submission]:
    return EntryLog(own / LOG, Submission, "annotation")


def statements_of(
    annotation: Annotation, config: LabelingConfig, hierarchy: Hierarchy, *, absent_means: str = "unknown"
) -> tuple[list[Statement], list[str]]:
    """What an annotation says about the classes of a dataset.

    Classes that its annotator could not see in the configuration stay unknown in any case.

    Args:
        annotation: read with the configuration.
        config: of the project.
        hierarchy: of the classes.
        absent_means: what classes are that the annotation does not mention, `unknown` or `absent`, unless it says so.

    Returns:
        Its statements, and the classes that were left out because it contradicts itself about them.
    """
    said: dict[str, set[bool | None]] = {}
    for label, state, _ in annotation.statements:
        said.setdefault(label, set()).add(state)
    code_of = {name: code for code, name in enumerate(hierarchy.classes)}
    implied = {
        hierarchy.classes[code]
        for label, states in said.items()
        if states == {True}
        for code in hierarchy.ancestors[code_of[label]]
    }
    doubtful = {label for label, states in said.items() if len(states) > 1 or (label in implied and False in states)}
    kept = [one for one in annotation.statements if one[0] not in doubtful]
    unique = {(label, state, repr(columns)): (label, state, columns) for label, state, columns in kept}
    statements = list(unique.values())
    if (annotation.others or absent_means) == ABSENT:
        statements += [(label, False, {}) for label in config.shown if label not in said and label not in implied]
    return statements, sorted(doubtful)


def _replace_rows(dataset: Dataset, known: set[_Key], wanted: dict[_Key, Submission]) -> int:
    """Remove rows of annotations that are no longer in force, and append those that are missing."""
    existing: set[_Key] = set()
    stale: set[_Key] = set()
    for batch in dataset.scan(["image", "source", "time"]):
        keys = {key for _, key in _keys_of_rows(batch, known)}
        existing |= keys & wanted.keys()
        stale |= keys - wanted.keys()
    new = [entry for key, entry in wanted.items() if key not in existing]
    if new or stale:
        replace_table(dataset, "annotations", _rows(dataset, stale, new))
    return len(new) + len(stale)


def _rows(dataset: Dataset, stale: set[_Key], new: Sequence[Submission]) -> Iterator[pa.RecordBatch]:
    for batch in dataset.scan():
        gone = [row for row, _ in _keys_of_rows(batch, stale)]
        yield batch.take(pa.array(np.delete(np.arange(batch.num_rows), gone))) if gone else batch
    classes = set(dataset.classes)
    yield from from_records([record for entry in new for record in entry.records(classes)]).to_batches()


def _keys_of_rows(batch: pa.RecordBatch, keys: set[_Key]) -> list[tuple[int, _Key]]:
    """Positions of the rows that belong to these annotations, with their keys."""
    if not keys:
        return []
    sources = pa.array({source for _, source, _ in keys}, pa.string())
    rows = np.flatnonzero(
        pc.is_in(batch["source"].cast(pa.string()), value_set=sources).to_numpy(zero_copy_only=False)
        & batch["time"].is_valid().to_numpy(zero_copy_only=False)
    )
    chosen = batch.select(["image", "source", "time"]).take(pa.array(rows)).to_pylist()
    found = ((int(row), (one["image"], one["source"], one["time"])) for row, one in zip(rows, chosen, strict=True))
    return [(row, key) for row, key in found if key in keys]


def _to_json(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in columns.items()
    }
