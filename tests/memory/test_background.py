from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.cases import crops, single_positives
from tagfill.errors import RunError
from tagfill.memory import BackgroundArray, Memory
from tagfill.memory.disk import JournaledArray

ROWS, WIDTH = 6, 4


class Slow(JournaledArray):
    """Writes only when it is let."""

    gate: threading.Event

    def write(self, rows, values):
        assert self.gate.wait(20)
        super().write(rows, values)


@pytest.fixture
def held(tmp_path):
    array = Slow(tmp_path / "rows.u8", (ROWS, WIDTH), create=True)
    array.gate = threading.Event()
    background = BackgroundArray(array)
    yield array, background
    array.gate.set()
    background.close()


def write(array, rows: list[int], value: int) -> None:
    array.write(np.array(rows), np.full((len(rows), WIDTH), value, dtype=np.uint8))


def test_writing_does_not_wait_and_reading_sees_what_is_on_its_way(held):
    array, background = held
    write(background, [1, 4], 7)
    write(background, [4, 5], 9)
    assert background.read(np.array([5, 4, 1, 0]))[:, 0].tolist() == [9, 9, 7, 0]
    assert not array.read(np.arange(ROWS)).any()
    array.gate.set()
    background.settle()
    assert array.read(np.arange(ROWS))[:, 0].tolist() == [0, 7, 0, 0, 9, 9]
    assert background.read(np.arange(ROWS))[:, 0].tolist() == [0, 7, 0, 0, 9, 9]


def test_a_checkpoint_waits_for_what_is_on_its_way(held):
    array, background = held
    write(background, [2], 3)
    threading.Timer(0.1, array.gate.set).start()
    background.mark(1)
    assert array.read(np.array([2])).tolist() == [[3] * WIDTH]
    checksum = background.checksum()
    write(background, [2, 0], 5)
    background.close()
    again = BackgroundArray(JournaledArray(array.path, (ROWS, WIDTH), create=False))
    again.roll_back(1, checksum)
    assert again.read(np.array([0, 2]))[:, 0].tolist() == [0, 3]
    again.close()


def test_what_the_thread_could_not_do_is_told(tmp_path):
    class Broken(JournaledArray):
        def write(self, rows, values):
            raise RunError("no room")

    background = BackgroundArray(Broken(tmp_path / "rows.u8", (ROWS, WIDTH), create=True))
    write(background, [1], 1)
    with pytest.raises(RunError, match="no room"):
        background.mark(1)
    with pytest.raises(RunError, match="no room"):
        write(background, [2], 1)
    background.close()


def test_reading_ahead_changes_nothing(tmp_path):
    background = BackgroundArray(JournaledArray(tmp_path / "rows.u8", (ROWS, WIDTH), create=True))
    for value in range(40):
        write(background, [value % ROWS], value)
        background.read_ahead(np.array([(value + 1) % ROWS, value % ROWS]))
    assert background.read(np.arange(ROWS))[:, 0].tolist() == [36, 37, 38, 39, 34, 35]
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
