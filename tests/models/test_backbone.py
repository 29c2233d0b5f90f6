from __future__ import annotations

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models import Preprocessing, create_backbone

PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def tiny(**options):
    return create_backbone("test_resnet", image_size=64, **options).eval()


def test_features_have_the_announced_shape():
    backbone = tiny()
    assert backbone(PIXELS).shape == (2, backbone.channels, *backbone.grid)


def test_pixels_are_normalised_as_the_weights_expect():
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


def test_creating_a_backbone_leaves_the_random_numbers_of_others_alone():
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


def test_probing_leaves_training_mode_and_statistics_alone():
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


def test_preprocessing_survives_json():
    preprocessing = tiny().preprocessing
    assert Preprocessing.from_json(preprocessing.to_json()) == preprocessing
