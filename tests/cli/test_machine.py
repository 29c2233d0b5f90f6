"""What the machine does to the command line: full disks, folders that cannot be written, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from formats.datasets import dataset
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.io import cache_folder

NOWHERE = "/dev/null/home"  # cannot be created, not even by root


@pytest.fixture
def data(tmp_path) -> Path:
    full = {f"{number}.jpg": {"cat": True, "dog": False} for number in range(4)}
    dataset(full, ("cat", "dog")).save(tmp_path / "data")
    return tmp_path / "data"


def start(*arguments: str, stdout=subprocess.PIPE, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "tagfill", *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_full_disk_behind_standard_output_is_a_sentence():
    with Path("/dev/full").open("w") as full:
        process = start("list", "protocols", stdout=full)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors == "Error: Standard output or a file cannot be written: No space left on device.\n"


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_streams_change_no_exit_code(closed):
    for arguments, code in ((["list", "protocols"], 0), (["inspect", NOWHERE], 2)):
        command = [sys.executable, "-m", "tagfill", *arguments]
        found = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.close(closed))
        assert (found.returncode, "Traceback" in found.stderr) == (code, False), found.stderr


def test_no_home_is_needed(data, tmp_path, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TAGFILL_CACHE", raising=False)
    with pytest.raises(TagfillError, match="set TAGFILL_CACHE"):
        cache_folder()
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    process = start("simulate", "single-positive", str(data), "--out", str(tmp_path / "single"), HOME=NOWHERE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_output_that_cannot_be_written_is_a_sentence(call, data):
    for out, reason in ((f"{NOWHERE}/out", "Not a directory"), ("/proc/out", "No such file or directory")):
        outcome = call("simulate", "single-positive", str(data), "--out", out)
        assert (outcome.code, outcome.err) == (2, f"Error: {out} cannot be written or read: {reason}.\n")
    outcome = call("simulate", "single-positive", str(data), "--out", "/dev/full")
    assert (outcome.code, outcome.err) == (2, "Error: /dev/full is a file; choose another --out.\n")
    outcome = call("write", str(data), "--out", "/dev/full", "--force")
    assert outcome.code == 2
    assert Path("/dev/full").is_char_device()


def test_a_full_disk_leaves_the_old_dataset(call, data, tmp_path, monkeypatch):
    call("simulate", "single-positive", str(data), "--out", str(tmp_path / "single"), "--seed", "1")
    before = {path.name: path.read_bytes() for path in (tmp_path / "single").iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    again = ("simulate", "single-positive", str(data), "--seed", "2")
    outcome = call(*again, "--out", str(tmp_path / "single"), "--force")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'single'} cannot be written or read: No space left on device." in outcome.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "single").iterdir()} == before
    call(*again, "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    outcome = call("write", str(data), "--out", str(tmp_path / "tags.csv"))
    assert outcome.err == f"Error: {tmp_path / 'tags.csv'} cannot be written or read: No space left on device.\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.05, 0.1, 0.2, 0.6])
def test_a_signal_at_the_start_shows_no_traceback(number, delay):
    script = "import sys; from tagfill.cli import main; sys.argv = ['tagfill', 'list', 'methods']; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    if "Traceback" in errors:  # Python's own start cannot be caught
        assert "/tagfill/" not in errors
    else:
        assert process.returncode in (0, 130, -number, -signal.SIGINT)  # SIGTERM ends it as Ctrl-C does


def test_inspect_says_what_it_read_of_a_table_without_kind(call, data):
    Dataset.open(data).save(data, tables="csv")
    assert "no column 'kind'" not in call("inspect", str(data)).out
    rows = "image,label,present\n0.jpg,cat,true\n"
    (data / "annotations.csv").write_text(rows)
    assert "annotations.csv has no column 'kind'; every row was read as 'image'" in call("inspect", str(data)).out
