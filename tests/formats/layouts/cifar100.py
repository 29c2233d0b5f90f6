"""CIFAR-100 in miniature: the binary version, and pickles as Python 2 wrote them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FINE = ("apple", "aquarium_fish", "bear")
COARSE = ("fish", "fruit_and_vegetables", "large_carnivores")
PARENTS = {0: 1, 1: 0, 2: 2}
TRAIN, TEST = (0, 2, 0), (1,)


def pixels(count: int, seed: int) -> NDArray[np.uint8]:
    """Random records of 3,072 bytes: 1,024 of red, then green, then blue."""
    return np.random.RandomState(seed).randint(0, 256, (count, 3072)).astype(np.uint8)


def write_binary(folder: Path) -> Path:
    """`cifar-100-binary`."""
    folder.mkdir(exist_ok=True)
    for seed, (word, classes) in enumerate({"train": TRAIN, "test": TEST}.items()):
        heads = np.array([(PARENTS[child], child) for child in classes], dtype=np.uint8)
        (folder / f"{word}.bin").write_bytes(np.hstack([heads, pixels(len(classes), seed)]).tobytes())
    (folder / "fine_label_names.txt").write_text("".join(f"{name}\n" for name in FINE) + "\n")
    (folder / "coarse_label_names.txt").write_text("".join(f"{name}\n" for name in COARSE) + "\n")
    return folder


def write_pickles(folder: Path) -> Path:
    """`cifar-100-python`."""
    folder.mkdir(exist_ok=True)
    for seed, (word, classes) in enumerate({"train": TRAIN, "test": TEST}.items()):
        content = {
            "filenames": [f"bos_taurus_s_{number:06d}.png" for number in range(len(classes))],
            "batch_label": f"{word}ing batch 1 of 1",
            "fine_labels": list(classes),
            "coarse_labels": [PARENTS[child] for child in classes],
            "data": pixels(len(classes), seed),
        }
        (folder / word).write_bytes(python_2_pickle(content))
    meta = {"fine_label_names": list(FINE), "coarse_label_names": list(COARSE)}
    (folder / "meta").write_bytes(python_2_pickle(meta))
    return folder


def python_2_pickle(content: object) -> bytes:
    """What `cPickle.dump(content, file, 2)` wrote: text and pixels as strings of bytes."""
    return b"\x80\x02" + _dumped(content) + b"."


def _dumped(value: object) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_dumped(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_dumped, value)) + b"e"
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode("ascii")
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    assert isinstance(value, np.ndarray)
    shape = b"(" + b"".join(map(_dumped, value.shape)) + b"t"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    content = b"T" + struct.pack("<i", value.nbytes) + value.tobytes()
    return start + b"(K\x01" + shape + kind + b"\x89" + content + b"tb"
