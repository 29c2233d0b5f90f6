from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from memory.cases import crops, single_positives
from tagfill.errors import RunError
from tagfill.memory import BackgroundArray, Memory
from tagfill.memory.disk import JournaledArray

ROWS, WIDTH = 5, 3
SHAPE = (ROWS, WIDTH)
EVERY = np.arange(ROWS)


def content(array: JournaledArray) -> list[list[int]]:
    return array.read(EVERY).tolist()


def write(array: JournaledArray, rows: list[int], value: int) -> None:
    array.write(np.array(rows), np.full((len(rows), WIDTH), value, dtype=np.uint8))


def journal(array: JournaledArray, checkpoint: int) -> Path:
    return array.path.with_name(f"{array.path.name}.undo-{checkpoint}")


def reopened(array: JournaledArray) -> JournaledArray:
    """As another process would find it; the file is what counts."""
    array.close()
    return JournaledArray(array.path, SHAPE, create=False)


@pytest.fixture
def array(tmp_path):
    array = JournaledArray(tmp_path / "rows.u8", SHAPE, create=True)
    yield array
    array.close()


class GoingBack(RuleBasedStateMachine):
    """Writes, checkpoints, kills and resumptions in any order, beside a plain list of what was there when."""

    def __init__(self, folder: Path, wrap: Callable[[JournaledArray], Any]) -> None:
        super().__init__()
        self.folder, self.wrap = folder, wrap
        self.array = wrap(JournaledArray(folder / "rows.u8", SHAPE, create=True))
        self.rows = content(self.array)
        self.kept: list[tuple[int, str, list[list[int]]]] = []
        self.next = 0
        self.mark()

    def mark(self) -> None:
        self.array.mark(self.next)
        self.kept = [*self.kept, (self.next, self.array.checksum(), [list(row) for row in self.rows])][-2:]
        self.array.forget(before=self.kept[0][0])
        self.next += 1

    @rule(rows=st.sets(st.integers(0, ROWS - 1), min_size=1), value=st.integers(0, 255))
    def write(self, rows: set[int], value: int) -> None:
        write(self.array, sorted(rows), value)
        for row in rows:
            self.rows[row] = [value] * WIDTH

    @rule()
    def checkpoint(self) -> None:
        self.mark()

    @rule(back=st.integers(0, 1))
    def resume(self, back: int) -> None:
        back = min(back, len(self.kept) - 1)
        number, checksum, self.rows = self.kept[len(self.kept) - 1 - back]
        self.rows = [list(row) for row in self.rows]
        self.array = self.wrap(reopened(self.array))
        self.array.roll_back(number, checksum)
        self.kept = [kept for kept in self.kept if kept[0] <= number]
        self.next = number + 1

    @rule()
    def killed_after_marking_and_before_the_checkpoint_was_whole(self) -> None:
        self.array.mark(self.next)
        self.resume(0)

    @invariant()
    def holds_what_was_written(self) -> None:
        assert content(self.array) == self.rows

    def teardown(self) -> None:
        self.array.close()
        shutil.rmtree(self.folder)


@pytest.mark.parametrize(("wrap", "histories"), [(lambda array: array, 15), (BackgroundArray, 10)])
def test_any_history_can_be_rolled_back(tmp_path_factory, wrap, histories):
    def start() -> GoingBack:
        return GoingBack(tmp_path_factory.mktemp("journal"), wrap)

    run_state_machine_as_test(start, settings=settings(max_examples=histories, stateful_step_count=20, deadline=None))


def test_the_newer_checkpoint_comes_back(array):
    write(array, [0, 1], 1)
    array.mark(10)
    write(array, [1, 2], 2)
    array.mark(20)
    checksum, before = array.checksum(), content(array)
    write(array, [0, 2, 4], 3)
    array = reopened(array)
    array.roll_back(20, checksum)
    assert content(array) == before
    array.close()


def test_the_older_checkpoint_comes_back(array):
    write(array, [0, 1], 1)
    array.mark(10)
    checksum, before = array.checksum(), content(array)
    write(array, [1, 2], 2)
    array.mark(20)
    write(array, [1, 3], 3)
    array = reopened(array)
    array.roll_back(10, checksum)
    assert content(array) == before
    array.close()


def test_rolling_back_drops_the_journals_of_what_did_not_happen(array):
    array.mark(10)
    checksum = array.checksum()
    write(array, [1], 2)
    array.mark(20)
    write(array, [1], 3)
    array.roll_back(10, checksum)
    assert not journal(array, 20).exists()


def test_rolling_back_twice_changes_nothing_more(array):
    array.mark(10)
    checksum = array.checksum()
    write(array, [1, 4], 9)
    for _ in range(2):
        array = reopened(array)
        array.roll_back(10, checksum)
    assert content(array) == np.zeros(SHAPE).tolist()
    array.close()


@pytest.mark.parametrize("removed", [0, 1])
def test_a_roll_back_that_was_killed_can_be_done_again(array, monkeypatch, removed):
    """Killed after some of the newer journals are gone: whichever are left may be applied once more."""
    array.mark(10)
    checksum, before = array.checksum(), content(array)
    for number in (20, 30):  # row 1 changes in the later intervals only
        array.mark(number)
        write(array, [1], number)
    array = reopened(array)
    gone: list[Path] = []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if len(gone) == removed:
            raise KeyboardInterrupt
        gone.append(path.rename(path.with_name(f"gone-{path.name}")))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(KeyboardInterrupt):
            array.roll_back(10, checksum)
    array = reopened(array)
    array.roll_back(10, checksum)
    assert content(array) == before
    array.close()


def test_a_torn_last_record_is_ignored_at_every_length(array, tmp_path):
    """A record is complete before its rows change: cut anywhere, it speaks of rows that are as they were."""
    write(array, [0, 1, 2, 3], 7)
    array.mark(10)
    checksum, before = array.checksum(), content(array)
    write(array, [0], 1)
    whole = journal(array, 10).read_bytes()
    after_first = content(array)
    write(array, [2, 3], 2)
    record = journal(array, 10).read_bytes()[len(whole) :]
    array.close()
    for length in range(len(record)):
        array.path.write_bytes(np.array(after_first, dtype=np.uint8).tobytes())
        journal(array, 10).write_bytes(whole + record[:length])
        again = JournaledArray(array.path, SHAPE, create=False)
        again.roll_back(10, checksum)
        assert content(again) == before
        again.close()


def test_a_record_with_a_wrong_byte_is_not_applied(array):
    array.mark(10)
    checksum = array.checksum()
    write(array, [1], 5)
    damaged = bytearray(journal(array, 10).read_bytes())
    damaged[-1] ^= 1
    journal(array, 10).write_bytes(damaged)
    array = reopened(array)
    with pytest.raises(RunError, match="does not match its checkpoint"):
        array.roll_back(10, checksum)
    array.close()


@pytest.mark.parametrize("place", range(ROWS * WIDTH))
def test_a_damaged_file_is_refused(array, place):
    write(array, [0, 2], 5)
    array.mark(10)
    checksum = array.checksum()
    damaged = bytearray(array.path.read_bytes())
    damaged[place] ^= 0x10
    array.path.write_bytes(damaged)
    array = reopened(array)
    with pytest.raises(RunError, match=r"rows\.u8 does not match its checkpoint"):
        array.roll_back(10, checksum)
    array.close()


def test_two_rows_that_changed_places_are_noticed(array):
    write(array, [0], 5)
    checksum = array.checksum()
    write(array, [0], 0)
    write(array, [4], 5)
    assert array.checksum() != checksum


@settings(max_examples=30, deadline=None)
@given(writes=st.lists(st.tuples(st.sets(st.integers(0, ROWS - 1), min_size=1), st.integers(0, 255)), max_size=8))
def test_the_checksum_kept_up_to_date_is_that_of_the_content(tmp_path_factory, writes):
    folder = tmp_path_factory.mktemp("checksum")
    array = JournaledArray(folder / "rows.u8", SHAPE, create=True)
    for rows, value in writes:
        write(array, sorted(rows), value)
    array.mark(1)
    checksum = array.checksum()
    array = reopened(array)
    array.roll_back(1, checksum)
    array.close()


@pytest.mark.parametrize("size", [None, 14, 16], ids=["missing", "short", "long"])
def test_a_file_of_the_wrong_size_is_refused(tmp_path, size):
    if size is not None:
        (tmp_path / "rows.u8").write_bytes(bytes(size))
    with pytest.raises(RunError, match="missing or has the wrong size"):
        JournaledArray(tmp_path / "rows.u8", SHAPE, create=False)


def test_forgetting_drops_the_journals_before(array):
    for number in (10, 20, 30):
        array.mark(number)
    array.forget(before=20)
    assert [number for number in (10, 20, 30) if journal(array, number).exists()] == [20, 30]


def test_a_row_is_saved_once_an_interval(array):
    array.mark(10)
    write(array, [1, 2], 1)
    size = journal(array, 10).stat().st_size
    write(array, [2, 1], 2)
    assert journal(array, 10).stat().st_size == size


def test_a_new_interval_saves_rows_again(array):
    array.mark(10)
    write(array, [1], 1)
    array.mark(20)
    write(array, [1], 2)
    assert journal(array, 20).stat().st_size == journal(array, 10).stat().st_size > 0


def test_nothing_is_saved_before_the_first_checkpoint(array):
    write(array, [1], 1)
    assert [path.name for path in array.path.parent.iterdir()] == ["rows.u8"]


def test_creating_an_array_again_drops_old_journals(array):
    array.mark(10)
    array.close()
    JournaledArray(array.path, SHAPE, create=True)
    assert not journal(array, 10).exists()


def test_an_array_without_rows_can_be_marked_and_rolled_back(tmp_path):
    array = JournaledArray(tmp_path / "rows.u8", (0, WIDTH), create=True)
    array.mark(1)
    checksum = array.checksum()
    array.close()
    array = JournaledArray(tmp_path / "rows.u8", (0, WIDTH), create=False)
    array.roll_back(1, checksum)
    array.close()


def test_a_disk_without_room_for_the_array_and_its_journals_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3 * 999))
    with pytest.raises(RunError, match=r"undo journals up to .* are free; free some space, keep fewer classes"):
        JournaledArray(tmp_path / "rows.u8", (10, 100), create=True)
    assert list(tmp_path.iterdir()) == []
    JournaledArray(tmp_path / "rows.u8", (9, 111), create=True).close()


def test_a_disk_that_fills_up_later_says_so_and_loses_nothing(array, monkeypatch):
    array.mark(1)
    before = content(array)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match=r"no room for the undo journal .*; nothing was lost"):
        write(array, [1], 9)
    assert content(array) == before


BACKGROUND_ROWS, BACKGROUND_WIDTH = 6, 4


class Slow(JournaledArray):
    """Writes only when it is let."""

    gate: threading.Event

    def write(self, rows, values):
        assert self.gate.wait(20)
        super().write(rows, values)


@pytest.fixture
def held(tmp_path):
    array = Slow(tmp_path / "rows.u8", (BACKGROUND_ROWS, BACKGROUND_WIDTH), create=True)
    array.gate = threading.Event()
    background = BackgroundArray(array)
    yield array, background
    array.gate.set()
    background.close()


def background_write(array, rows: list[int], value: int) -> None:
    array.write(np.array(rows), np.full((len(rows), BACKGROUND_WIDTH), value, dtype=np.uint8))


def test_writing_does_not_wait_and_reading_sees_what_is_on_its_way(held):
    array, background = held
    background_write(background, [1, 4], 7)
    background_write(background, [4, 5], 9)
    assert background.read(np.array([5, 4, 1, 0]))[:, 0].tolist() == [9, 9, 7, 0]
    assert not array.read(np.arange(BACKGROUND_ROWS)).any()
    array.gate.set()
    background.settle()
    assert array.read(np.arange(BACKGROUND_ROWS))[:, 0].tolist() == [0, 7, 0, 0, 9, 9]
    assert background.read(np.arange(BACKGROUND_ROWS))[:, 0].tolist() == [0, 7, 0, 0, 9, 9]


def test_a_checkpoint_waits_for_what_is_on_its_way(held):
    array, background = held
    background_write(background, [2], 3)
    threading.Timer(0.1, array.gate.set).start()
    background.mark(1)
    assert array.read(np.array([2])).tolist() == [[3] * BACKGROUND_WIDTH]
    checksum = background.checksum()
    background_write(background, [2, 0], 5)
    background.close()
    again = BackgroundArray(JournaledArray(array.path, (BACKGROUND_ROWS, BACKGROUND_WIDTH), create=False))
    again.roll_back(1, checksum)
    assert again.read(np.array([0, 2]))[:, 0].tolist() == [0, 3]
    again.close()


def test_an_error_of_the_thread_is_raised_at_the_next_call(tmp_path):
    class Broken(JournaledArray):
        def write(self, rows, values):
            raise RunError("no room")

    background = BackgroundArray(Broken(tmp_path / "rows.u8", (BACKGROUND_ROWS, BACKGROUND_WIDTH), create=True))
    background_write(background, [1], 1)
    with pytest.raises(RunError, match="no room"):
        background.mark(1)
    with pytest.raises(RunError, match="no room"):
        background_write(background, [2], 1)
    background.close()


def test_reading_ahead_changes_nothing(tmp_path):
    background = BackgroundArray(JournaledArray(tmp_path / "rows.u8", (BACKGROUND_ROWS, BACKGROUND_WIDTH), create=True))
    for value in range(40):
        background_write(background, [value % BACKGROUND_ROWS], value)
        background.read_ahead(np.array([(value + 1) % BACKGROUND_ROWS, value % BACKGROUND_ROWS]))
    assert background.read(np.arange(BACKGROUND_ROWS))[:, 0].tolist() == [36, 37, 38, 39, 34, 35]
    background.close()


@settings(max_examples=15, deadline=None)
@given(visits=st.lists(st.lists(st.integers(0, 8), unique=True, min_size=1, max_size=4), max_size=8))
def test_heatmaps_on_disk_are_those_in_memory_whatever_was_expected(tmp_path_factory, visits):
    labels, folder = single_positives(9, 3), tmp_path_factory.mktemp("memory")
    there, here = Memory(labels, np.arange(9), seed=0, folder=folder), Memory(labels, np.arange(9), seed=0)
    on_disk, in_memory = (memory.heatmaps(momentum=0.8, size=4) for memory in (there, here))
    there.expect([np.array(images) for images in visits])
    for number, images in enumerate(visits):
        index, views = torch.tensor(images), crops(len(images), number)
        assert torch.equal(on_disk.read(index, views, (2, 2)), in_memory.read(index, views, (2, 2)))
        maps = torch.rand(len(images), 3, 2, 2, generator=torch.Generator().manual_seed(number))
        on_disk.update(index, views, maps)
        in_memory.update(index, views, maps)
    there.close()
    np.testing.assert_array_equal(
        np.fromfile(folder / "heatmaps.u8", np.uint8), here.state_dict()["heatmaps.values"].numpy().ravel()
    )
