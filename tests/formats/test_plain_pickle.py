"""Pickles of plain data are read; whatever else a pickle asks for is refused, and nothing of it is run."""

from __future__ import annotations

import os
import pickle
import pickletools
import subprocess

import numpy as np
import pytest

from formats.layouts.cifar100 import python_2_pickle
from tagfill.errors import DatasetError
from tagfill.formats import cifar100


def test_pickle_of_python_2(tmp_path):
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = python_2_pickle({"data": array, "labels": [1, -2], "name": "batch 1"})
    assert {opcode.name for opcode, _, _ in pickletools.genops(content)} >= {"SHORT_BINSTRING", "BINSTRING", "GLOBAL"}
    (tmp_path / "a").write_bytes(content)
    read = cifar100.load(tmp_path / "a")
    assert read[b"data"].tolist() == array.tolist()
    assert read[b"data"].dtype == np.uint8
    assert (read[b"labels"], read[b"name"]) == ([1, -2], b"batch 1")


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4"])
def test_arrays_of_python_3(tmp_path, protocol, dtype):
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    (tmp_path / "a").write_bytes(pickle.dumps({"data": array, "more": ("ü", 1.5, None)}, protocol=protocol))
    read = cifar100.load(tmp_path / "a")
    assert read["data"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["more"] == ("ü", 1.5, None)


class Calls:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def malicious(marker):
    """Pickles that would create the file `marker`."""
    write = f"open({str(marker)!r}, 'w').close()"
    touch = f"touch {marker}"
    attributes = Calls(getattr, Calls(__import__, "os"), "system")
    array = np.empty(1, dtype=object)
    array[0] = Calls(os.system, touch)
    yield from (
        Calls(os.system, touch),
        Calls(eval, write),
        Calls(exec, write),
        Calls(subprocess.call, ["touch", marker]),
    )
    yield from (attributes, {"data": Calls(eval, write)}, [Calls(__import__, "os")], array)
    yield from (np.dtype("O"), np.array(["text"]), np.float64(1), np.ma.masked_array([1]))


NAMES = ["system", "eval", "exec", "call", "getattr", "nested", "import", "object", "dtype", "text", "scalar", "masked"]


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_other_names_are_refused_and_nothing_is_run(tmp_path, number, protocol):
    marker = tmp_path / "was-run"
    (tmp_path / "a").write_bytes(pickle.dumps(list(malicious(marker))[number], protocol=protocol))
    with pytest.raises(DatasetError, match=r"it asks for .*, and not for plain data only"):
        cifar100.load(tmp_path / "a")
    assert not marker.exists()


def test_the_pickles_above_would_have_run(tmp_path):
    marker = tmp_path / "was-run"
    pickle.loads(pickle.dumps(next(malicious(marker))))
    assert marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'touch was-run'\ntR.",
        b"cnumpy\nload\n(S'was-run'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"\x80\x04\x8c\x05numpy\x94\x8c\x10ndarray.__init__\x94\x93.",
        b"(S'touch was-run'\nios\nsystem\n.",
        b"Pwas-run\n.",
        b"\x80\x02\x82\x01.",
        b"cnumpy.core.multiarray\n_reconstruct\n(Nd(S'x'\nNu\x86b.",
        b"cnumpy\ndtype\n}S'__call__'\nNsb.",
        b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.",
        b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(K\x03S'x'\ntb.",
        b"cnumpy.core.multiarray\n_reconstruct\n(Nctuple\nNtR.",
        b"not a pickle",
        b"",
    ],
)
def test_hand_made_pickles_are_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DatasetError):
        cifar100.load(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_stand_ins_cannot_be_changed(tmp_path):
    changed = b"cnumpy\ndtype\n(N}(S'__doc__'\nS'changed'\nutb."  # asks to set an attribute of what stands for a dtype
    (tmp_path / "a").write_bytes(changed)
    with pytest.raises(DatasetError):
        cifar100.load(tmp_path / "a")
    (tmp_path / "b").write_bytes(python_2_pickle({"data": np.zeros((1, 2), dtype=np.uint8)}))
    assert cifar100.load(tmp_path / "b")[b"data"].tolist() == [[0, 0]]


@pytest.mark.parametrize("state", ["too many bytes", "too few bytes"])
def test_damaged_arrays_are_refused(tmp_path, state):
    content = python_2_pickle({"data": np.zeros((1, 4), dtype=np.uint8)})
    shape = b"(J\x01\x00\x00\x00J\x04\x00\x00\x00t"
    assert shape in content
    other = b"J\x03\x00\x00\x00t" if state == "too many bytes" else b"J\xff\xff\xff\x7ft"
    (tmp_path / "a").write_bytes(content.replace(shape, b"(J\x01\x00\x00\x00" + other))
    with pytest.raises(DatasetError, match="is damaged"):
        cifar100.load(tmp_path / "a")


def test_other_content_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps([1]))
    with pytest.raises(DatasetError, match="holds list, not a dictionary"):
        cifar100.load(tmp_path / "a")
