from __future__ import annotations

import pytest
import torch

from tagfill.errors import TagfillError
from tagfill.models import Classifier, create, create_head

CLASSES = ["cat", "dog", "owl"]
PIXELS = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
FEATURES = torch.randn(3, 6, 4, 5, generator=torch.Generator().manual_seed(0))


def classifier(head: str, **options) -> Classifier:
    """On features of six channels."""
    return Classifier(None, create_head(head, 6, 3, seed=1, **options), head, CLASSES, [0.1, 0.2, 0.3])


def test_logits_are_the_layer_over_the_mean_of_the_cells():
    model = classifier("linear")
    expected = torch.stack([model.head.fc(image.flatten(1).mean(1)) for image in FEATURES])
    torch.testing.assert_close(model(FEATURES).logits, expected)
    torch.testing.assert_close(model(FEATURES.mean((2, 3))).logits, expected)


def test_the_class_token_is_classified():
    model = create("test_vit", "linear", CLASSES, image_size=64, pool="token").eval()
    with torch.no_grad():
        tokens = model.backbone.model.forward_features((PIXELS - model.backbone.mean) / model.backbone.std)
        torch.testing.assert_close(model(PIXELS).logits, model.head.fc(tokens[:, 0]))


def test_a_backbone_without_a_class_token_is_refused_at_once():
    with pytest.raises(TagfillError, match="The backbone test_resnet has no class token"):
        create("test_resnet", "linear", CLASSES, image_size=64, pool="token")


def test_there_are_no_class_maps():
    with pytest.raises(TagfillError, match="The linear head has no class maps; choose cam or tscam"):
        classifier("linear")(FEATURES, maps=True)


@pytest.mark.parametrize("head", ["linear", "cam"])
def test_there_is_no_attention(head):
    with pytest.raises(TagfillError, match=f"The {head} head has no attention; choose tscam or query"):
        classifier(head)(FEATURES, attention=True)


@pytest.mark.parametrize(("origin", "name"), [("linear", "cam"), ("cam", "linear"), ("cam", "cam")])
def test_converting_keeps_the_logits(origin, name):
    model = classifier(origin)
    converted = model.convert_head(name)
    assert converted.head_name == name
    assert torch.equal(converted(FEATURES).logits, model(FEATURES).logits)
    assert converted.thresholds == model.thresholds


def test_converted_maps_have_the_logits_as_their_mean():
    model = classifier("linear")
    maps = model.convert_head("cam")(FEATURES, maps=True).maps
    torch.testing.assert_close(maps.mean((2, 3)), model(FEATURES).logits)


def test_a_converted_head_is_a_copy_in_the_same_mode():
    model = classifier("cam").eval()
    converted = model.convert_head("linear")
    assert not converted.head.training
    before = model(FEATURES).logits.clone()
    with torch.no_grad():
        converted.head.fc.weight.zero_()
    assert torch.equal(model(FEATURES).logits, before)


def test_a_boost_can_be_added_for_evaluation():
    """Boosting a model that was trained without, as the paper does first."""
    model = classifier("cam").eval()
    boosted = model.convert_head("cam", boost=5.0, boost_train=False)
    expected = classifier("cam", boost=5.0).eval()(FEATURES).logits
    assert torch.equal(boosted(FEATURES).logits, expected)


def test_another_boost_keeps_the_mask():
    model = classifier("cam", boost=5.0)
    model.mask_boost(torch.tensor([True, False, True]))
    assert model.convert_head("cam", boost=3.0).head.boosts.tolist() == [1, 0, 1]


def test_a_boosting_head_does_not_become_linear():
    with pytest.raises(
        TagfillError, match="boosts its scores, which a linear head cannot; convert it to cam with boost=1"
    ):
        classifier("cam", boost=5.0).convert_head("linear")


@pytest.mark.parametrize(
    ("origin", "name", "options"),
    [("linear", "query", {}), ("tscam", "linear", {}), ("query", "cam", {}), ("cam", "linear", {"pool": "token"})],
)
def test_other_heads_do_not_convert(origin, name, options):
    with pytest.raises(TagfillError, match=f"Head cannot become a {name} head; only cam and linear with pool=gap"):
        classifier(origin).convert_head(name, **options)


def test_a_class_token_head_does_not_convert():
    with pytest.raises(TagfillError, match="This LinearHead cannot become a cam head"):
        classifier("linear", pool="token").convert_head("cam")


def test_another_pooling_is_refused():
    with pytest.raises(TagfillError, match="Option pool='max' of head 'linear': Input should be 'gap' or 'token'"):
        classifier("linear", pool="max")
