from __future__ import annotations

import json
import re
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


HEAD_OPTIONS = [
    ("test_resnet", "cam", {}),
    ("test_resnet", "cam", {"boost": 5.0}),
    ("test_resnet", "linear", {}),
    ("test_vit", "linear", {"pool": "token"}),
    ("test_vit", "tscam", {}),
    ("test_resnet", "query", {"width": 16, "keep_other_self_attention": True}),
    ("test_resnet", "dual", {"scale": 50.0}),
]


def test_saved_models_give_the_same_logits_in_another_process(tmp_path):
    expected = []
    for number, (backbone, head, options) in enumerate(HEAD_OPTIONS):
        model = create(backbone, head, CLASSES, image_size=64, **options).eval()
        with torch.no_grad():
            for value in model.state_dict().values():
                if value.is_floating_point():
                    value.mul_(1.01)  # or a loaded model that kept its initial weights would pass
            expected.append([list(model.classes), model.training, model(PIXELS).logits.tolist()])
        model.save(tmp_path / str(number))
    code = (
        "import json, sys, torch\n"
        "from pathlib import Path\n"
        "from tagfill.models import Classifier\n"
        "pixels = torch.arange(2 * 3 * 64 * 64).remainder(251).to(torch.uint8).reshape(2, 3, 64, 64)\n"
        "torch.set_num_threads(int(sys.argv[2]))\n"
        "with torch.no_grad():\n"
        "    for folder in sorted(Path(sys.argv[1]).iterdir()):\n"
        "        model = Classifier.load(folder)\n"
        "        print(json.dumps([model.classes, model.training, model(pixels).logits.tolist()]))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(torch.get_num_threads())]
    printed = subprocess.run(command, capture_output=True, text=True)
    assert [json.loads(line) for line in printed.stdout.splitlines()] == expected, printed.stderr


def test_a_saved_model_keeps_its_preprocessing(tmp_path):
    model = tiny()
    model.save(tmp_path / "model")
    assert Classifier.load(tmp_path / "model").backbone.preprocessing == model.backbone.preprocessing


def test_saving_again_replaces_the_old_model(tmp_path):
    tiny(seed=1).save(tmp_path / "model")
    tiny(seed=2).save(tmp_path / "model")
    assert torch.equal(Classifier.load(tmp_path / "model").head.fc.weight, tiny(seed=2).head.fc.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_set_aside_by_an_interrupted_save_is_found(tmp_path):
    tiny(seed=1).save(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    assert Classifier.load(tmp_path / "model").classes == tuple(CLASSES)


def test_a_loaded_backbone_is_shared_with_models_of_the_same_weights_only(tmp_path):
    for name, seed in (("first", 1), ("second", 1), ("other", 2)):
        model = tiny(seed)
        with torch.no_grad():
            model.head.fc.weight.add_(len(name))
        model.save(tmp_path / name)
    first = Classifier.load(tmp_path / "first")
    for name, shared in (("second", True), ("other", False)):
        model, alone = Classifier.load(tmp_path / name, backbone=first.backbone), Classifier.load(tmp_path / name)
        assert (model.backbone is first.backbone) == shared
        assert torch.equal(model(PIXELS).logits, alone(PIXELS).logits)


def test_a_folder_that_is_not_a_model_is_refused(tmp_path):
    with pytest.raises(TagfillError, match=r"is not a model folder: it has no model\.json"):
        Classifier.load(tmp_path)


def frozen() -> Classifier:
    model = tiny()
    model.freeze(backbone=True)
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


def test_an_unfrozen_backbone_trains_again():
    model = frozen()
    model.freeze(backbone=False)
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
    with pytest.raises(TagfillError, match=r"has no backbone and takes floating-point features of .* was given uint8"):
        bare(PIXELS)


@pytest.mark.parametrize(
    ("head", "options", "inputs", "message"),
    [
        (
            "cam",
            {},
            PIXELS.float(),
            "takes uint8 pixels of shape B×3×H×W, or floating-point features of shape B×96×H×W or B×96; it was given "
            "float32 of shape 2×3×64×64.",
        ),
        ("cam", {"boost": 5.0}, PIXELS.float() / 255, "features of shape B×96×H×W; it was given float32"),
        ("query", {"width": 16}, PIXELS.float(), "features of shape B×96×H×W; it was given float32"),
        ("linear", {}, PIXELS.float(), "features of shape B×96×H×W or B×96; it was given float32"),
        ("linear", {}, torch.zeros(2, 128), "it was given float32 of shape 2×128"),
        ("cam", {}, PIXELS.int(), "it was given int32 of shape 2×3×64×64"),
        ("cam", {}, PIXELS.permute(0, 2, 3, 1), "it was given uint8 of shape 2×64×64×3"),
        ("cam", {}, PIXELS[0], "it was given uint8 of shape 3×64×64"),
    ],
)
def test_inputs_of_another_type_or_shape_are_refused_in_one_sentence(head, options, inputs, message):
    model = create("test_resnet", head, CLASSES, image_size=64, **options)
    with pytest.raises(TagfillError, match=re.escape(message)):
        model(inputs)


def test_initial_heads_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = create_head("cam", 8, 3, seed=4)
    torch.manual_seed(2)
    assert torch.equal(one.fc.weight, create_head("cam", 8, 3, seed=4).fc.weight)
    assert not torch.equal(one.fc.weight, create_head("cam", 8, 3, seed=5).fc.weight)


def test_creating_a_head_does_not_change_the_global_random_state():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    create_head("cam", 8, 3, seed=4)
    assert torch.rand(1) == expected


def test_the_nearest_head_is_suggested():
    with pytest.raises(TagfillError, match="There is no head 'camm'; did you mean 'cam'"):
        create_head("camm", 8, 3, seed=0)


def test_stem_and_batch_norms_freeze_and_unfreeze():
    model = tiny().train()
    model.freeze(stem=True, batch_norm=True)
    assert not model.backbone.model.conv1[0].weight.requires_grad
    assert not model.backbone.model.layer4[0].bn1.weight.requires_grad
    assert not model.backbone.model.layer4[0].bn1.training
    assert model.backbone.model.layer4[0].conv1.weight.requires_grad
    model.freeze()
    assert all(parameter.requires_grad for parameter in model.backbone.parameters())
    assert all(module.training for module in model.modules())


def test_a_backbone_with_a_frozen_stem_trains_on():
    model = tiny().train()
    model.freeze(stem=True)
    model(PIXELS).logits.sum().backward()
    assert model.backbone.model.conv1[0].weight.grad is None
    assert model.backbone.model.layer4[0].conv1.weight.grad is not None


def test_freezing_a_head_alone_changes_nothing():
    bare = Classifier(None, tiny().head, "cam", CLASSES)
    bare.freeze(backbone=True, stem=True)
    assert all(parameter.requires_grad for parameter in bare.parameters())


def test_gradients_of_features_have_the_layout_of_the_backbone():
    """That of a mean over cells is expanded from one value per channel."""
    model, found = create("test_efficientnet", "cam", ["cat", "dog"], image_size=64), []
    model.backbone.model.bn2.register_full_backward_hook(
        lambda _module, _inputs, outputs: found.append(outputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    model(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).logits.sum().backward()
    assert found == [True]
