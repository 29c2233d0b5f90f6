from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tagfill
from tagfill.errors import TagfillError
from tagfill.models import BACKBONES, BackboneOutput, Classifier, create, create_backbone

PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def tiny(**options):
    return create_backbone("test_resnet", image_size=64, **options).eval()


def test_features_have_the_announced_shape():
    backbone = tiny()
    assert backbone(PIXELS).shape == (2, backbone.channels, *backbone.grid)


def test_pixels_are_normalized_as_the_weights_expect():
    """timm's own mean and std are for pixels in 0..1; here they are for 0..255."""
    import timm

    backbone = tiny()
    config = backbone.model.pretrained_cfg
    mean, std = (torch.tensor(config[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    expected = backbone.model.forward_features((PIXELS / 255 - mean) / std)
    assert timm.is_model(backbone.name)
    torch.testing.assert_close(backbone(PIXELS), expected, rtol=1e-4, atol=1e-5)


def test_random_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    one = tiny(seed=4)
    torch.manual_seed(2)
    assert tiny(seed=4).fingerprint() == one.fingerprint() != tiny(seed=5).fingerprint()


def test_creating_a_backbone_does_not_change_the_global_random_state():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    tiny()
    assert torch.rand(1) == expected


def test_one_changed_weight_changes_the_fingerprint():
    one, other = tiny(), tiny()
    with torch.no_grad():
        other.model.bn1.weight[0] += 1e-3
    assert one.fingerprint() != other.fingerprint()


def test_another_input_size_changes_the_fingerprint():
    assert tiny().fingerprint() != create_backbone("test_resnet", image_size=96).fingerprint()


def test_probing_does_not_change_training_mode_and_statistics():
    backbone = create_backbone("test_resnet", image_size=64)
    assert backbone.model.training
    assert int(backbone.model.bn1.num_batches_tracked) == 0


@pytest.mark.parametrize(
    ("name", "bound"), [("mobilenetv2_035", 6.0), ("test_resnet", None), ("test_efficientnet", None)]
)
def test_the_bound_is_that_of_the_last_activation(name, bound):
    backbone = create_backbone(name, image_size=64).eval()
    assert backbone.bound == bound
    if bound is not None:
        backbone.model.bn2.weight.data.fill_(100)
        features = backbone(PIXELS)
        assert features.min() >= 0
        assert features.max() == bound


@pytest.mark.parametrize(
    ("typo", "meant"), [("resnt50", "resnet50"), ("tf_eficientnet_lite0", "tf_efficientnet_lite0")]
)
def test_the_nearest_backbone_is_suggested(typo, meant):
    with pytest.raises(TagfillError, match=f"There is no backbone '{typo}'; did you mean '{meant}'"):
        create_backbone(typo)


# Freezing: frozen parts do not change in real steps, and the others do.


FREEZING_PIXELS = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def moved_by_training(backbone) -> set[str]:
    """Names of parameters and buffers that two steps of SGD change, weight decay included."""
    backbone.train()
    before = {name: value.clone() for name, value in backbone.model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in backbone.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        backbone(FREEZING_PIXELS).square().mean().backward()
        optimizer.step()
    return {name for name, value in backbone.model.state_dict().items() if not torch.equal(value, before[name])}


def test_without_freezing_everything_moves():
    backbone = create_backbone("test_resnet", image_size=64)
    assert moved_by_training(backbone) == set(backbone.model.state_dict())


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("test_resnet", ("conv1", "bn1", "layer1")),
        ("test_efficientnet", ("conv_stem", "bn1", "blocks.0")),
        ("test_convnext", ("stem", "stages.0")),
        ("test_vit", ("cls_token", "pos_embed", "patch_embed", "blocks.0")),
    ],
)
def test_a_frozen_stem_stays_and_the_rest_moves(name, stem):
    backbone = create_backbone(name, image_size=64)
    backbone.freeze_stem()
    beyond = "head."  # ConvNeXt's last norm comes after pooling, beyond the grid
    expected = {key for key in backbone.model.state_dict() if not key.startswith((*stem, beyond))}
    assert moved_by_training(backbone) == expected
    assert not backbone.frozen


@pytest.mark.parametrize("name", ["test_resnet", "tresnet_m"])
def test_frozen_batch_norms_stay_and_the_rest_moves(name):
    backbone = create_backbone(name, image_size=64)
    backbone.freeze_batch_norm()
    norms = {
        f"{path}.{key}"
        for path, module in backbone.model.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for key in module.state_dict()
    }
    assert norms
    assert moved_by_training(backbone) == set(backbone.model.state_dict()) - norms


def test_frozen_batch_norms_use_their_own_statistics_in_training():
    backbone = create_backbone("test_resnet", image_size=64)
    backbone.freeze_batch_norm()
    torch.testing.assert_close(backbone.train()(FREEZING_PIXELS), backbone.eval()(FREEZING_PIXELS))


def test_a_backbone_is_frozen_when_nothing_of_it_trains():
    backbone = create_backbone("test_resnet", image_size=64)
    assert not backbone.frozen
    assert backbone.requires_grad_(False).frozen


def test_a_model_without_a_declared_stem_is_refused():
    backbone = create_backbone("test_resnet", image_size=64)
    backbone.model = torch.nn.Conv2d(3, 8, 3)
    with pytest.raises(
        TagfillError, match="test_resnet does not say which layers are its stem; freeze all of it or none"
    ):
        backbone.freeze_stem()


# Custom backbones, registered in BACKBONES.


OWN_PIXELS = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def stripes() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, kernel_size=16, stride=16), nn.ReLU())


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(BACKBONES, "stripes", stripes)


def test_a_custom_backbone_gets_pixels_between_zero_and_one():
    backbone = create_backbone("stripes", image_size=(64, 96)).eval()
    assert (backbone.channels, backbone.grid) == (8, (4, 6))
    torch.testing.assert_close(backbone(OWN_PIXELS), backbone.model.module(OWN_PIXELS / 255))


def test_random_weights_of_a_custom_backbone_depend_on_the_seed():
    one, same, other = (create_backbone("stripes", image_size=64, seed=seed).fingerprint() for seed in (4, 4, 5))
    assert one == same != other


def test_a_custom_name_takes_precedence_over_timm(monkeypatch):
    monkeypatch.setitem(BACKBONES, "resnet18", stripes)
    assert create_backbone("resnet18", image_size=64).channels == 8


def test_weights_of_a_custom_backbone_have_the_names_of_its_module(tmp_path):
    state = {name: torch.full_like(value, 0.5) for name, value in stripes().state_dict().items()}
    save_file(state, tmp_path / "weights.safetensors")
    backbone = create_backbone("stripes", pretrained=str(tmp_path / "weights.safetensors"), image_size=64)
    assert backbone.model.module[0].weight.unique().tolist() == [0.5]
    save_file({"0.weight": state["0.weight"]}, tmp_path / "half.safetensors")
    with pytest.raises(TagfillError, match=r"lack .*0\.bias"):
        create_backbone("stripes", pretrained=str(tmp_path / "half.safetensors"), image_size=64)


@pytest.mark.parametrize("pretrained", [True, "bundled"])
def test_hub_and_bundled_weights_of_a_custom_backbone_are_refused(pretrained):
    with pytest.raises(TagfillError, match=r"(give|the path of) a safetensors file"):
        create_backbone("stripes", pretrained=pretrained)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: 3, "of type int; register a subclass"),
        (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), "no grid of features"),
        (lambda: nn.Conv2d(3, 8, kernel_size=300), "does not take images of 224×224"),
    ],
)
def test_a_registered_object_that_is_not_a_backbone_is_refused(make, said, monkeypatch):
    monkeypatch.setitem(BACKBONES, "wrong", make)
    with pytest.raises(TagfillError, match=said):
        create_backbone("wrong")


def test_a_saved_model_loads_only_where_its_name_is_registered(tmp_path, monkeypatch):
    model = create("stripes", "cam", ["cat", "dog"], image_size=(64, 96)).eval()
    model.save(tmp_path / "model")
    again = Classifier.load(tmp_path / "model")
    torch.testing.assert_close(again(OWN_PIXELS, maps=True).maps, model(OWN_PIXELS, maps=True).maps)
    monkeypatch.delitem(BACKBONES, "stripes")
    with pytest.raises(TagfillError, match="There is no backbone 'stripes'"):
        Classifier.load(tmp_path / "model")


def test_a_custom_backbone_caches_trains_predicts_and_exports(tmp_path):
    data = tagfill.scenes.make(tmp_path / "scenes", train=12, val=4, test=4, size=64)
    of_it = {"backbone": "stripes", "pretrained": False, "image_size": 64}
    cache = tagfill.features(data, out=tmp_path / "cache", views="eval", **of_it)
    run = tagfill.train(data, method="bce", features=cache, epochs=1, out=tmp_path / "run", **of_it)
    by_torch = list(tagfill.predict(run, data, split="test"))
    tagfill.export(run, tmp_path / "model.onnx", maps=True)
    by_onnx = list(tagfill.predict(tmp_path / "model.onnx", data, split="test"))
    assert len(by_torch) == 4
    for one, other in zip(by_torch, by_onnx, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


def test_old_names_still_work_and_warn():
    backbone = tiny()
    with pytest.warns(DeprecationWarning, match=r"Backbone.look was renamed to Backbone.encode"):
        output = backbone.look(PIXELS)
    with pytest.warns(DeprecationWarning, match=r"BackboneOutput.grid was renamed to BackboneOutput.features"):
        assert output.grid is output.features
    with pytest.warns(DeprecationWarning, match=r"tagfill.models.Seen was renamed to tagfill.models.BackboneOutput"):
        assert tagfill.models.Seen is BackboneOutput
