from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tagfill import io
from tagfill.errors import TagfillError


def write(path: Path, content: bytes, *, fail: bool = False) -> None:
    with io.atomic_write(path) as file:
        file.write(content)
        if fail:
            raise KeyboardInterrupt


def test_a_file_is_there_once_its_block_ends(tmp_path):
    write(tmp_path / "new" / "a.bin", b"content")
    assert (tmp_path / "new" / "a.bin").read_bytes() == b"content"


def test_an_interrupted_block_leaves_the_old_file_and_nothing_else(tmp_path):
    write(tmp_path / "a.bin", b"old")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a.bin", b"new", fail=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.bin": b"old"}


def test_a_half_written_file_is_not_visible(tmp_path):
    with io.atomic_write(tmp_path / "a.bin") as file:
        file.write(b"half")
        file.flush()
        assert not (tmp_path / "a.bin").exists()


def test_a_temporary_file_that_another_writer_renames_is_closed(tmp_path, monkeypatch):
    path, flock = tmp_path / "a.bin", io.fcntl.flock

    def renamed_meanwhile(file, operation):
        (tmp_path / ".a.bin.tmp").replace(path)
        return flock(file, operation)

    monkeypatch.setattr(io.fcntl, "flock", renamed_meanwhile)
    before = list(Path("/proc/self/fd").iterdir())
    with io.atomic_write(path) as file:
        file.write(b"mine")
    assert path.read_bytes() == b"mine"
    assert list(Path("/proc/self/fd").iterdir()) == before


def test_a_folder_that_cannot_be_written_is_an_error_about_the_named_file():
    with pytest.raises(OSError, match=r"'/proc/table\.csv'"), io.atomic_write(Path("/proc/table.csv")):
        pass


def test_json_keeps_unicode(tmp_path):
    io.write_json(tmp_path / "a.json", {"name": "Straße", "sizes": [1, 2.5, None]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"name": "Straße", "sizes": [1, 2.5, None]}
    assert "Straße" in text


def folder_with(path: Path, word: str) -> Path:
    path.mkdir()
    (path / "word").write_text(word)
    return path


def word_in(folder: Path) -> str:
    return (folder / "word").read_text()


def test_a_folder_takes_the_place_of_another(tmp_path):
    folder_with(tmp_path / "best", "old")
    io.replace_folder(folder_with(tmp_path / ".new", "new"), tmp_path / "best")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert word_in(tmp_path / "best") == "new"


@pytest.mark.parametrize("survived", range(3), ids=["before", "between the renames", "after"])
def test_a_replacement_killed_at_any_rename_leaves_a_whole_folder(tmp_path, monkeypatch, survived):
    folder_with(tmp_path / "best", "old")
    new = folder_with(tmp_path / ".new", "new")
    kill_at_rename(monkeypatch, survived, new, tmp_path / "best")
    io.recover_folder(tmp_path / "best")
    assert word_in(tmp_path / "best") == ("new" if survived == 2 else "old")


def test_a_replacement_killed_twice_leaves_a_whole_folder(tmp_path, monkeypatch):
    """The second attempt must not delete the old folder, the only copy, before the new one has replaced it."""
    folder_with(tmp_path / "best", "old")
    new = folder_with(tmp_path / ".new", "new")
    for survived in (1, 0):
        kill_at_rename(monkeypatch, survived, new, tmp_path / "best")
    io.recover_folder(tmp_path / "best")
    assert word_in(tmp_path / "best") == "old"


def kill_at_rename(monkeypatch, survived: int, new: Path, folder: Path) -> None:
    """Replace a folder and die after `survived` renames; renames that repair an earlier death do not count."""
    done: list[str] = []

    def rename(path: Path, target: Path) -> Path:
        if not path.name.endswith(".old"):
            if len(done) == survived:
                raise KeyboardInterrupt
            done.append(path.name)
        return path.replace(target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        try:
            io.replace_folder(new, folder)
        except KeyboardInterrupt:
            assert survived < 2


def test_recovering_a_folder_that_is_there_changes_nothing(tmp_path):
    folder_with(tmp_path / "best", "new")
    folder_with(tmp_path / ".best.old", "old")
    io.recover_folder(tmp_path / "best")
    assert word_in(tmp_path / "best") == "new"


def test_hash_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert io.sha256(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("other", [["b", "a"], ["ab"], ["a", "b", ""], ["", "ab"]])
def test_hash_of_a_list_depends_on_order_and_on_where_strings_end(other):
    assert io.sha256_of_strings(["a", "b"]) != io.sha256_of_strings(other)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TAGFILL_CACHE": "/chosen", "XDG_CACHE_HOME": "/xdg"}, "/chosen"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/tagfill"),
        ({"HOME": "/user"}, "/user/.cache/tagfill"),
    ],
    ids=["chosen", "XDG", "home"],
)
def test_the_cache_folder_follows_the_environment(monkeypatch, variables, expected):
    for name in ("TAGFILL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert io.cache_folder() == Path(expected)


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path):
    with (
        io.exclusive_lock(tmp_path / "new", "is training"),
        pytest.raises(TagfillError, match=r"Another process is training in .*new; wait"),
        io.exclusive_lock(tmp_path / "new", "is training"),
    ):
        pass
    with io.exclusive_lock(tmp_path / "new", "is training"):
        pass


def test_a_lock_is_released_when_its_process_is_killed(tmp_path):
    code = "import sys, time; from pathlib import Path; from tagfill.io import exclusive_lock\n"
    code += f"with exclusive_lock(Path({str(tmp_path)!r}), 'sleeps'): print('locked', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(TagfillError), io.exclusive_lock(tmp_path, "sleeps"):
            pass
        process.kill()
    with io.exclusive_lock(tmp_path, "sleeps"):
        pass


def test_a_worker_does_not_keep_the_lock_of_its_killed_parent(tmp_path):
    code = "import os, time; from pathlib import Path; from tagfill.io import exclusive_lock\n"
    code += f"with exclusive_lock(Path({str(tmp_path)!r}), 'sleeps'):\n"
    code += "    if not os.fork():\n        print(os.getpid(), flush=True)\n    time.sleep(60)\n"  # from the worker
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            with io.exclusive_lock(tmp_path, "sleeps"):
                pass
        finally:
            os.kill(worker, signal.SIGKILL)
