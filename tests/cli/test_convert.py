"""`tagfill convert`."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from models import published
from tagfill.models import Classifier, create_backbone


@pytest.fixture
def convert(call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return partial(call, "convert", columns=300)


def mlspl_file(classes: int) -> str:
    torch.save(published.mlspl(published.resnet(), classes), "model.pt")
    return "model.pt"


def test_a_published_file_becomes_a_model_folder(convert, tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n\nowl\n", encoding="utf-8")
    code, out, err = convert("mlspl", mlspl_file(3), "--classes", "names.txt", "--out", "folder", "-o", "image-size=64")
    assert code == 0, err
    assert out == "folder: resnet18 with the head 'cam', 3 classes, images of 64×64 pixels\n"
    assert Classifier.load(tmp_path / "folder").classes == ("cat", "dog", "owl")


def test_the_image_size_may_be_height_and_width(convert, tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n", encoding="utf-8")
    arguments = ("--classes", "names.txt", "--out", "folder", "-o")
    code, out, err = convert("mlspl", mlspl_file(2), *arguments, "image-size=64x96")
    assert code == 0, err
    assert out == "folder: resnet18 with the head 'cam', 2 classes, images of 64×96 pixels\n"
    code, _, err = convert("mlspl", "model.pt", *arguments, "image-size=wide", "--force")
    assert code == 2
    assert "An image size cannot be 'wide'" in err


def test_classes_may_come_from_a_dataset(convert, tmp_path):
    from tagfill import scenes

    data = scenes.make(tmp_path / "scenes", train=4, val=0, test=0, size=64)
    arguments = ("--classes", "scenes", "--out", "folder", "-o", "image-size=64")
    code, _, err = convert("mlspl", mlspl_file(len(data.classes)), *arguments)
    assert code == 0, err
    assert Classifier.load(tmp_path / "folder").classes == tuple(data.classes)


def test_weights_of_a_backbone_become_a_safetensors_file(convert, tmp_path):
    origin = create_backbone("test_resnet", image_size=64, seed=5)
    torch.save({"state_dict": {f"module.{k}": v for k, v in origin.model.state_dict().items()}}, "w.pth")
    code, out, err = convert("backbone", "w.pth", "--out", "w.safetensors")
    assert code == 0, err
    assert out == f"w.safetensors: {len(origin.model.state_dict())} tensors\n"
    read = create_backbone("test_resnet", image_size=64, pretrained="w.safetensors")
    assert read.fingerprint() == origin.fingerprint()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("q2ll", "w.pth", "--out", "o"), "There is no source of models 'q2ll'; did you mean 'q2l'?"),
        (("q2l", "w.pth", "--out", "o"), "The file has no class names; give a text file"),
        (("q2l", "w.pth", "--out", "o", "--classes", "gone"), "There is no file or dataset folder gone"),
        (("q2l", "w.pth", "--out", "o", "--classes", "twice"), "twice has the class 'cat' twice"),
        (("q2l", "w.pth", "--out", "o", "--classes", "names"), "There is no file w.pth"),
        (("q2l", "w.pth", "--out", "o", "--classes", "names", "-o", "hads=4"), "did you mean 'heads'?"),
        (("q2l", "w.pth", "--out", ".", "--classes", "names"), "is not empty; choose another --out"),
        (("backbone", "w.pth", "--out", "o.pth"), "must end in .safetensors"),
        (("backbone", "w.pth", "--out", "there.safetensors"), "there.safetensors exists"),
        (("backbone", "w.pth", "--out", "o.safetensors", "-o", "heads=4"), "The source 'backbone' has no options"),
        (
            ("tfjs-resnet", "gone", "--out", "o.safetensors"),
            "There is no file gone; give the folder",
        ),
    ],
)
def test_user_errors_print_one_sentence(convert, tmp_path, arguments, problem):
    (tmp_path / "names").write_text("cat\ndog\n", encoding="utf-8")
    (tmp_path / "twice").write_text("cat\ncat\n", encoding="utf-8")
    (tmp_path / "there.safetensors").touch()
    code, out, err = convert(*arguments)
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err
