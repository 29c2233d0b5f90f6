"""Dataset folders are replaced whole or not at all, and damaged tables are noticed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dataset.cases import dataset, image, row
from tagfill.dataset import Dataset
from tagfill.dataset.dataset import add_images, replace_table
from tagfill.errors import DatasetError, TagfillError
from tagfill.io import exclusive_lock, new_folder

KILLED = 9


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def version(number: int) -> Dataset:
    """A dataset whose name, images and rows belong together."""
    names = [f"{number}-{at}.jpg" for at in range(3)]
    return dataset(*(row(image=name) for name in names), images=[image(name) for name in names]).replace(
        name=f"version {number}"
    )


def number_of(folder: Path) -> str:
    """The version in a folder; raises if its parts belong to different ones."""
    data = Dataset.open(folder)
    found = {data.name.removeprefix("version ")}
    found |= {name.partition("-")[0] for name in (*data.names(), *data.rows()["image"].to_pylist())}
    assert len(found) == 1, found
    return found.pop()


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in another process that dies at one of its changes to the file system; False if it has fewer."""
    child = os.fork()
    if child == 0:
        left = [step]

        def dying(real: Callable[..., object]) -> Callable[..., object]:
            def change(*args: object, **options: object) -> object:
                if left[0] == 0:
                    os._exit(KILLED)
                left[0] -= 1
                return real(*args, **options)

            return change

        for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


@pytest.mark.parametrize(("before", "after"), [("parquet", "parquet"), ("parquet", "csv")])
def test_a_dataset_is_replaced_whole_or_not_at_all(tmp_path, before, after):
    steps, seen = 0, set()
    while True:
        folder = tmp_path / str(steps)
        version(1).save(folder, tables=before)
        killed = killed_at(steps, lambda folder=folder: version(2).save(folder, tables=after))
        seen.add(number_of(folder))
        version(3).save(folder, tables=after)
        assert number_of(folder) == "3"
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [".lock", f"annotations.{after}", "dataset.yaml", f"images.{after}"]
        )
        if not killed:
            break
        steps += 1
    assert steps > 8
    assert seen == {"1", "2"}


def test_the_same_task_may_go_on_in_a_folder_that_a_killed_process_left(tmp_path):
    def work(folder: Path, task: str = "simulate a") -> None:
        with new_folder(folder, "is simulating", force=False, task=task):
            version(1).save(folder)

    steps, folder = 0, tmp_path / "0"
    while killed_at(steps, lambda folder=folder: work(folder)):
        work(folder)
        assert number_of(folder) == "1"
        assert {path.name for path in folder.glob(".*")} == {".lock"}
        steps, folder = steps + 1, tmp_path / str(steps + 1)
    with pytest.raises(TagfillError, match="is not empty"):
        work(folder)
    folder = tmp_path / "forced"
    version(1).save(folder)
    killed_at(1, lambda: new_folder(folder, "is simulating", force=True, task="simulate a").__enter__())
    with pytest.raises(TagfillError, match="is not empty"):
        work(folder, "simulate b")


def test_a_folder_that_another_process_fills_is_refused_and_a_failed_attempt_leaves_none(tmp_path):
    with new_folder(tmp_path / "out", "is simulating a dataset", force=False):
        version(1).save(tmp_path / "out")  # the same thread may write
        with (
            pytest.raises(TagfillError, match=r"not empty|Another process is simulating a dataset in .*out"),
            new_folder(tmp_path / "out", "is simulating a dataset", force=True),
        ):
            pass
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "failed", "is simulating a dataset", force=False):
        _ = 1 / 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_readers_and_writers_at_the_same_time(tmp_path):
    version(0).save(tmp_path)
    done = threading.Event()

    def write(first: int) -> None:
        for number in range(first, 40, 2):
            version(number).save(tmp_path)
        done.set()

    writers = [threading.Thread(target=write, args=(first,)) for first in (1, 2)]
    for writer in writers:
        writer.start()
    while not done.is_set():
        data = Dataset.open(tmp_path)
        assert {name.partition("-")[0] for name in data.names()} == {data.name.removeprefix("version ")}
    for writer in writers:
        writer.join()
    assert number_of(tmp_path) in ("38", "39")


def test_saving_waits_for_a_lock_of_another_process_only_so_long(tmp_path, monkeypatch):
    monkeypatch.setattr("tagfill.dataset.dataset._WAIT", 0.05)
    version(1).save(tmp_path)
    refused = []

    def save() -> None:
        try:
            version(2).save(tmp_path)
        except TagfillError as error:
            refused.append(str(error))

    with exclusive_lock(tmp_path, "is adding images"):
        other = threading.Thread(target=save)
        other.start()
        other.join()
    assert "wait for it" in refused[0]
    assert number_of(tmp_path) == "1"


@pytest.mark.parametrize("table", ["annotations", "images"])
def test_a_damaged_table_is_an_error(tmp_path, table):
    version(1).save(tmp_path)
    path = tmp_path / f"{table}.parquet"
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 97):
        content[at] ^= 1
        path.write_bytes(content)
        with pytest.raises(DatasetError, match=rf"{table}\.parquet (differs from its checksum|is damaged)"):
            Dataset.open(tmp_path).rows()
        content[at] ^= 1


def test_rows_may_be_added_to_an_open_dataset_and_other_images_may_not(tmp_path):
    opened = version(1).save(tmp_path)
    more = opened.with_records([row("dog", image="1-0.jpg")])
    replace_table(Dataset.open(tmp_path), "annotations", more.rows().to_batches())
    assert opened.rows().num_rows == 4
    version(2).save(tmp_path)
    with pytest.raises(DatasetError, match="was replaced after it was opened; open it again"):
        opened.rows()


def test_a_table_may_be_changed_where_its_checksum_is_removed(tmp_path):
    version(1).save(tmp_path)
    version(2).save(tmp_path / "other")
    for name in ("annotations.parquet", "images.parquet"):
        (tmp_path / "other" / name).replace(tmp_path / name)
    with pytest.raises(DatasetError, match="remove its line from 'checksums'"):
        Dataset.open(tmp_path)
    yaml = (tmp_path / "dataset.yaml").read_text()
    (tmp_path / "dataset.yaml").write_text(yaml[: yaml.index("checksums:")])
    assert Dataset.open(tmp_path).names()[0] == "2-0.jpg"


def test_added_images_keep_the_checksums_right(tmp_path):
    version(1).save(tmp_path)
    assert len(add_images(tmp_path, ["1-new.jpg"])) == 4
    assert number_of(tmp_path) == "1"
    path = tmp_path / "images.parquet"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="checksum"):
        Dataset.open(tmp_path)
