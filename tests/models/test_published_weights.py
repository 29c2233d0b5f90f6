from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models.published_weights import identify_resnet, read_published_weights


class Trap:
    """Creates a file if it is executed."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def saved(content, tmp_path) -> Path:
    torch.save(content, tmp_path / "model.pth")
    return tmp_path / "model.pth"


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_weights_are_found_below_a_key_without_their_prefix(tmp_path, key):
    published = read_published_weights(saved({"epoch": 3, key: {"module.fc.weight": torch.ones(2)}}, tmp_path))
    assert list(published.weights) == ["fc.weight"]
    assert published.settings == {}


def test_a_namespace_beside_the_weights_contains_the_settings(tmp_path):
    content = {"state_dict": {"w": torch.ones(2)}, "args": argparse.Namespace(nheads=8, amp=True)}
    assert read_published_weights(saved(content, tmp_path)).settings == {"nheads": 8, "amp": True}


@pytest.mark.parametrize("module", [b"numpy.core", b"numpy._core"], ids=["before NumPy 2", "since NumPy 2"])
def test_numpy_scalars_beside_the_weights_are_ignored(tmp_path, module):
    """As training scripts save their best score."""
    content = {
        "state_dict": {"w": torch.ones(2)},
        "best": np.float64(0.8),
        "args": argparse.Namespace(n=np.int64(3), k=4),
    }
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    written = (tmp_path / "w.pth").read_bytes()
    assert b"numpy._core.multiarray" in written
    (tmp_path / "w.pth").write_bytes(written.replace(b"numpy._core", module))
    published = read_published_weights(tmp_path / "w.pth")
    assert published.weights["w"].tolist() == [1, 1]
    assert published.settings == {"k": 4}


def test_nothing_in_a_file_is_executed(tmp_path):
    path = saved({"w": torch.ones(2), "trap": Trap(tmp_path / "mark")}, tmp_path)
    with pytest.raises(
        TagfillError, match=r"cannot be read as a PyTorch file that contains only tensors .* save only its state dict"
    ):
        read_published_weights(path)
    assert not (tmp_path / "mark").exists()


def test_a_trap_inside_the_namespace_is_not_executed_either(tmp_path):
    content = {"state_dict": {"w": torch.ones(2)}, "args": argparse.Namespace(trap=Trap(tmp_path / "mark"))}
    with pytest.raises(TagfillError, match="that contains only tensors"):
        read_published_weights(saved(content, tmp_path))
    assert not (tmp_path / "mark").exists()


def test_a_namespace_is_allowed_here_only(tmp_path):
    read_published_weights(saved({"state_dict": {"w": torch.ones(2)}, "args": argparse.Namespace()}, tmp_path))
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (torch.ones(2), "contains a Tensor, not weights"),
        ({"w": torch.ones(2), "epoch": 3}, "contains epoch, which is not a tensor"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, problem):
    with pytest.raises(TagfillError, match=problem):
        read_published_weights(saved(content, tmp_path))


def test_a_file_that_is_not_a_pytorch_file_is_refused(tmp_path):
    (tmp_path / "model.pth").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(TagfillError, match=r"model\.pth cannot be read as a PyTorch file"):
        read_published_weights(tmp_path / "model.pth")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TagfillError, match=r"There is no file .*gone\.pth"):
        read_published_weights(tmp_path / "gone.pth")


def test_an_unknown_resnet_is_refused():
    with pytest.raises(TagfillError, match=r"not contain a ResNet of 18, .* its stages have \(9, 0, 0, 0\) blocks"):
        identify_resnet(Path("w.pth"), ["layer1.8.conv1.weight"])
