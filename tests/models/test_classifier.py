from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models import Classifier, create, create_head

CLASSES = ["cat", "dog", "owl"]
PIXELS = torch.arange(2 * 3 * 64 * 64).remainder(251).to(torch.uint8).reshape(2, 3, 64, 64)


def tiny(seed: int = 0) -> Classifier:
    return create("test_resnet", "cam", CLASSES, image_size=64, seed=seed)


def test_a_saved_model_gives_the_same_logits_in_another_process(tmp_path):
    model = tiny().eval()
    model.backbone.model.bn1.running_mean += 0.5
    model.save(tmp_path / "model")
    with torch.no_grad():
        expected = model(PIXELS).logits
    code = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from tagfill.models import Classifier\n"
        "pixels = torch.arange(2 * 3 * 64 * 64).remainder(251).to(torch.uint8).reshape(2, 3, 64, 64)\n"
        "model = Classifier.load(Path(sys.argv[1]))\n"
        "with torch.no_grad():\n"
        "    print(model.classes, model.training, model(pixels).logits.tolist())\n"
    )
    printed = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True)
    assert printed.stdout.strip() == f"{tuple(CLASSES)} False {expected.tolist()}", printed.stderr


def test_a_saved_model_keeps_its_preprocessing(tmp_path):
    model = tiny()
    model.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").backbone.preprocessing == model.backbone.preprocessing


def test_saving_again_takes_the_place_of_the_old_model(tmp_path):
    tiny(seed=1).save(tmp_path / "model")
    tiny(seed=2).save(tmp_path / "model")
    assert torch.equal(Classifier.load(tmp_path / "model").head.fc.weight, tiny(seed=2).head.fc.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_set_aside_by_an_interrupted_save_is_found(tmp_path):
    tiny(seed=1).save(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    assert Classifier.load(tmp_path / "model").classes == tuple(CLASSES)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(TagfillError, match=r"is not a model folder: it has no model\.json"):
        Classifier.load(tmp_path)


def frozen() -> Classifier:
    model = tiny()
    model.freeze_backbone(True)
    return model.train()


def test_a_frozen_backbone_gets_no_gradients():
    model = frozen()
    model(PIXELS).logits.sum().backward()
    assert all(parameter.grad is None for parameter in model.backbone.parameters())
    assert model.head.fc.weight.grad is not None


def test_a_frozen_backbone_stays_in_evaluation_mode():
    model = frozen()
    assert not any(module.training for module in model.backbone.modules())
    assert model.head.training


def test_a_frozen_backbone_keeps_its_statistics():
    model = frozen()
    before = model.backbone.fingerprint()
    model(PIXELS)
    assert model.backbone.fingerprint() == before


def test_a_backbone_that_is_freed_trains_again():
    model = frozen()
    model.freeze_backbone(False)
    model.train()
    model(PIXELS).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.backbone.parameters())
    assert all(module.training for module in model.backbone.modules())


def test_features_bypass_the_backbone():
    model = tiny().eval()
    with torch.no_grad():
        features = model.backbone(PIXELS)
        torch.testing.assert_close(model(features, maps=True).maps, model(PIXELS, maps=True).maps)


def test_pixels_without_a_backbone_are_refused():
    model = tiny()
    bare = Classifier(None, model.head, "cam", CLASSES)
    with pytest.raises(TagfillError, match="has no backbone and takes cached features only"):
        bare(PIXELS)


def test_initial_heads_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = create_head("cam", 8, 3, seed=4)
    torch.manual_seed(2)
    assert torch.equal(one.fc.weight, create_head("cam", 8, 3, seed=4).fc.weight)
    assert not torch.equal(one.fc.weight, create_head("cam", 8, 3, seed=5).fc.weight)


def test_making_a_head_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    create_head("cam", 8, 3, seed=4)
    assert torch.rand(1) == expected


def test_the_nearest_head_is_suggested():
    with pytest.raises(TagfillError, match="There is no head 'camm'; did you mean 'cam'"):
        create_head("camm", 8, 3, seed=0)
