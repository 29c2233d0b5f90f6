from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import boost as reference
from reference import tscam as tscam_reference
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.models import CamHead, Classifier, TsCamHead, boost, combine, coupled, create, create_head

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
    """Boost a model that was trained without a boost, the first experiment of the paper."""
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


SCORES = [-7.5, -1.0, -1e-6, 0.0, 1e-6, 0.25, 0.5, 0.75, 2.0, 31.0]
settings = pytest.mark.parametrize(("alpha", "beta"), [(5.0, 0.0), (5.0, 0.5), (2.5, -1.0), (1.0, 0.0)])


def test_golden_value():
    scores = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    assert boost(scores, 5.0).mean().item() == 1.375
    assert boost(scores, 1.0).mean().item() == -0.125


@settings
def test_values_are_those_of_the_two_pieces(alpha, beta):
    expected = [reference.boost(score, alpha, beta) for score in SCORES]
    found = boost(torch.tensor(SCORES, dtype=torch.float64), alpha, beta)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=1e-14)


@settings
def test_the_gradient_is_the_slope_of_each_piece(alpha, beta):
    scores = torch.tensor([*SCORES, beta], dtype=torch.float64, requires_grad=True)
    boost(scores, alpha, beta).sum().backward()
    assert scores.grad.tolist() == [reference.slope(score, alpha, beta) for score in scores.tolist()]


def test_each_class_may_have_its_own_slope():
    scores = torch.tensor([[1.0, 1.0], [-1.0, 2.0]])
    assert boost(scores, torch.tensor([5.0, 1.0])).tolist() == [[5.0, 1.0], [-1.0, 2.0]]


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(1, 100), st.floats(-10, 10))
def test_order_is_kept(one, other, alpha, beta):
    low, high = boost(torch.tensor([min(one, other), max(one, other)], dtype=torch.float64), alpha, beta).tolist()
    assert low <= high


def head() -> CamHead:
    torch.manual_seed(1)
    return CamHead(6, 4)


def test_logits_are_the_mean_of_the_class_maps():
    prediction = head()(FEATURES, maps=True)
    torch.testing.assert_close(prediction.logits, prediction.maps.mean((2, 3)), rtol=0, atol=1e-6)


def test_class_maps_are_the_classifier_in_every_cell():
    cam = head()
    maps = cam(FEATURES, maps=True).maps
    for row in range(4):
        for column in range(5):
            torch.testing.assert_close(maps[:, :, row, column], cam.fc(FEATURES[:, :, row, column]), rtol=0, atol=1e-6)


def test_logits_do_not_depend_on_whether_maps_are_requested():
    cam = head()
    torch.testing.assert_close(cam(FEATURES).logits, cam(FEATURES, maps=True).logits, rtol=0, atol=1e-6)


def test_pooled_features_give_the_logits_of_their_maps():
    cam = head()
    torch.testing.assert_close(cam(FEATURES.mean((2, 3))).logits, cam(FEATURES, maps=True).logits, rtol=0, atol=1e-6)


def test_maps_are_returned_only_on_request():
    assert head()(FEATURES).maps is None


def test_gradients_are_those_of_pooling_first():
    one, other = head(), head()
    one(FEATURES, maps=True).logits.square().sum().backward()
    other(FEATURES).logits.square().sum().backward()
    torch.testing.assert_close(one.fc.weight.grad, other.fc.weight.grad, rtol=1e-4, atol=1e-6)


def test_half_precision_features_give_single_precision_logits():
    assert head().half()(FEATURES.half(), maps=True).logits.dtype == torch.float32


def boosting(**options) -> CamHead:
    torch.manual_seed(1)
    return CamHead(6, 4, **{"boost": 5.0, **options})


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_boosted_logits_are_the_mean_of_boosted_maps(beta):
    maps = head()(FEATURES, maps=True).maps
    expected = [[reference.logit(cells, 5.0, beta) for cells in image] for image in maps.tolist()]
    found = boosting(boost_from=beta)(FEATURES).logits
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_maps_are_those_before_the_boost():
    assert torch.equal(boosting()(FEATURES, maps=True).maps, head()(FEATURES, maps=True).maps)


def test_a_boost_returns_no_maps_without_a_request():
    assert boosting()(FEATURES).maps is None


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("evaluate", [True, False])
def test_training_and_evaluation_are_boosted_separately(train, evaluate):
    cam = boosting(boost_train=train, boost_eval=evaluate)
    plain, boosted = head()(FEATURES).logits, boosting()(FEATURES).logits
    torch.testing.assert_close(cam.train()(FEATURES).logits, boosted if train else plain)
    torch.testing.assert_close(cam.eval()(FEATURES).logits, boosted if evaluate else plain)
    assert cam.spatial == (train or evaluate)


def test_a_masked_class_is_boosted_in_evaluation_only():
    cam = boosting()
    cam.mask_boost(torch.tensor([True, False, True, True]))
    plain, boosted = head()(FEATURES).logits, boosting()(FEATURES).logits
    expected = torch.where(torch.tensor([True, False, True, True]), boosted, plain)
    torch.testing.assert_close(cam.train()(FEATURES).logits, expected)
    torch.testing.assert_close(cam.eval()(FEATURES).logits, boosted)


def test_the_mask_is_saved_with_the_weights():
    cam, other = boosting(), boosting()
    cam.mask_boost(torch.tensor([True, False, True, True]))
    other.load_state_dict(cam.state_dict())
    assert torch.equal(other(FEATURES).logits, cam(FEATURES).logits)


def test_unseen_classes_are_boosted_on_request():
    cam = boosting(boost_unseen=True)
    cam.mask_boost(torch.tensor([True, False, True, True]))
    assert torch.equal(cam.train()(FEATURES).logits, boosting()(FEATURES).logits)


def test_the_gradient_of_a_boosted_logit_is_larger_where_scores_are_positive():
    features = FEATURES.clone().requires_grad_()
    cam = boosting()
    prediction = cam(features, maps=True)
    prediction.logits[:, 0].sum().backward()
    slopes = torch.where(prediction.maps[:, 0] > 0, 5.0, 1.0) / 20
    expected = slopes[:, None] * cam.fc.weight[0].detach()[None, :, None, None]
    torch.testing.assert_close(features.grad, expected)


@pytest.mark.parametrize(
    ("options", "maps", "wanted"), [({}, False, "boost=5 needs"), ({"boost": 1.0}, True, "class maps need")]
)
def test_pooled_features_are_refused_if_cells_are_needed(options, maps, wanted):
    with pytest.raises(TagfillError, match=f"given pooled features, but {wanted} features of cells"):
        boosting(**options)(FEATURES.mean((2, 3)), maps=maps)


@pytest.mark.parametrize("alpha", [0.5, -1.0, float("inf"), float("nan")])
def test_a_boost_that_does_not_enlarge_is_refused(alpha):
    with pytest.raises(TagfillError, match="must be at least 1 and finite; 1 means no boost"):
        boosting(boost=alpha)


TSCAM_CLASSES = ["cat", "dog", "owl", "hen"]
TSCAM_PIXELS = torch.randint(0, 256, (2, 3, 32, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@functools.cache
def deit() -> Classifier:
    """A tiny DeiT with random weights, large enough that its attention is far from even."""
    model = create("deit_tiny_patch16_224", "tscam", TSCAM_CLASSES, image_size=(32, 48), seed=3).eval()
    with torch.no_grad():
        for block in model.backbone.model.blocks:
            block.attn.qkv.weight *= 8
    return model


def expected(model: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """Class maps and coupled maps of `PIXELS` by the reference."""
    weights = {k: v.double().numpy() for k, v in model.backbone.model.state_dict().items()}
    kernel, bias = (value.detach().double().numpy() for value in (model.head.conv.weight, model.head.conv.bias))
    mean, std = (value.double()[0].numpy() for value in (model.backbone.mean, model.backbone.std))
    maps, both = [], []
    for image in TSCAM_PIXELS.double().numpy():
        tokens, rows = tscam_reference.deit(weights, (image - mean) / std, heads=3)
        spatial = tscam_reference.convolve(tokens[1:].T.reshape(-1, 2, 3), kernel, bias)
        maps.append(spatial)
        both.append(tscam_reference.coupled(spatial, rows))
    return np.stack(maps), np.stack(both)


@torch.no_grad()
def test_maps_and_coupled_maps_are_those_of_the_paper():
    maps, both = expected(deit())
    prediction = deit()(TSCAM_PIXELS, maps=True, attention=True)
    assert prediction.attention.std() > 0.1 * prediction.attention.mean()
    np.testing.assert_allclose(prediction.maps.numpy(), maps, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(coupled(prediction).numpy(), both, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(prediction.logits.numpy(), maps.mean((2, 3)), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_attention_is_returned_only_on_request_and_changes_nothing_else():
    plain = deit()(TSCAM_PIXELS, maps=True)
    assert plain.attention is None
    watched = deit()(TSCAM_PIXELS, maps=True, attention=True)
    torch.testing.assert_close(watched.maps, plain.maps, rtol=1e-4, atol=1e-4)


def tscam_head(height: int = 4, width: int = 5, seed: int = 0) -> tuple[TsCamHead, torch.Tensor]:
    torch.manual_seed(seed)
    return TsCamHead(6, 4).double(), torch.randn(3, 6, height, width, dtype=torch.float64)


@pytest.mark.parametrize(("height", "width"), [(4, 5), (7, 7), (1, 5), (3, 1), (1, 1), (2, 2)])
def test_logits_without_maps_are_the_mean_of_the_maps(height, width):
    tscam, features = tscam_head(height, width)
    prediction = tscam(features, maps=True)
    torch.testing.assert_close(tscam(features).logits, prediction.maps.mean((2, 3)), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(prediction.logits, prediction.maps.mean((2, 3)))


def test_gradients_without_maps_are_those_of_the_mean_of_the_maps():
    tscam, features = tscam_head()
    gradients = []
    for maps in (True, False):
        inputs = features.clone().requires_grad_()
        tscam.zero_grad()
        tscam(inputs, maps=maps).logits.square().sum().backward()
        gradients.append([inputs.grad, tscam.conv.weight.grad.clone(), tscam.conv.bias.grad.clone()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_convolution_keeps_the_initial_weights_of_pytorch():
    tscam, _ = tscam_head(seed=5)
    torch.manual_seed(5)
    assert torch.equal(tscam.conv.weight, torch.nn.Conv2d(6, 4, 3, padding=1).double().weight)


def test_half_precision_features_give_single_precision_logits_of_tscam():
    tscam, features = tscam_head()
    assert tscam.half()(features.half(), maps=True).maps.dtype == torch.float32
    assert tscam(features.half()).logits.dtype == torch.float32


def test_half_precision_features_are_summed_in_single_precision():
    tscam, features = tscam_head(14, 14)
    features = (features + 3).bfloat16()  # sums of 196 cells, of which an edge is taken away
    weights = {name: value.bfloat16().double() for name, value in tscam.state_dict().items()}
    tscam.load_state_dict(weights)
    expected = tscam(features.double(), maps=True).logits
    torch.testing.assert_close(tscam.bfloat16()(features).logits, expected.float(), rtol=0.01, atol=0.05)


def test_pooled_features_are_refused():
    tscam, features = tscam_head()
    with pytest.raises(TagfillError, match="given pooled features, but it needs features of cells"):
        tscam(features.mean((2, 3)))


def test_a_convolutional_backbone_has_maps_and_no_attention():
    model = create("test_resnet", "tscam", TSCAM_CLASSES, image_size=64).eval()
    pixels = TSCAM_PIXELS.repeat(1, 1, 2, 2)[..., :64]
    assert model(pixels, maps=True).maps.shape == (2, 4, *model.backbone.grid)
    with pytest.raises(TagfillError, match="The backbone test_resnet has no class token"):
        model(pixels, attention=True)


def test_cached_features_have_no_attention():
    with pytest.raises(TagfillError, match="Attention of the tscam head needs pixels, not cached features"):
        deit()(torch.zeros(1, 192, 2, 3), attention=True)


@pytest.mark.parametrize("lacking", ["maps", "attention"])
def test_coupled_maps_need_maps_and_attention(lacking):
    parts = {"maps": torch.zeros(1, 1, 2, 2), "attention": torch.zeros(1, 2, 2), lacking: None}
    with pytest.raises(TagfillError, match="need a prediction made with maps=True and attention=True"):
        coupled(Prediction(torch.zeros(1, 1), **parts))


def ensemble_of_three() -> tuple[list[Classifier], Classifier]:
    """Three members on features of six channels whose logits differ in level and spread, and their ensemble."""
    members = []
    for number, spread in enumerate((1.0, 10.0, 0.1)):
        head = create_head("cam", 6, 3, seed=number)
        head.fc.weight.data *= spread
        head.fc.bias.data += number
        members.append(Classifier(None, head, "cam", CLASSES))
    return members, combine(members, boost=5.0)


def test_an_ensemble_adds_standardized_logits_of_boosted_members():
    members, ensemble = ensemble_of_three()
    boosted = [member.convert_head("cam", boost=5.0).eval() for member in members]
    logits = [[model(FEATURES).logits[:, c] for c in range(3)] for model in boosted]
    ensemble.head.standardize(torch.stack([torch.stack(per_class, 1) for per_class in logits], 1))
    found = ensemble(FEATURES).logits
    for c in range(3):
        means, deviations = ([f(logits[k][c].detach().numpy()) for k in range(3)] for f in (np.mean, np.std))
        total = sum((logits[k][c].detach().numpy() - means[k]) / deviations[k] for k in range(3))
        expected = sum(means) / 3 + sum(deviations) / 3 * total / 3
        np.testing.assert_allclose(found[:, c].detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compete", [0.0, 0.2])
def test_the_maps_of_an_ensemble_are_the_mean_of_the_members(compete):
    members, _ = ensemble_of_three()
    expected = torch.stack([member(FEATURES, maps=True).maps for member in members]).mean(0)
    torch.testing.assert_close(combine(members, boost=5.0, compete=compete)(FEATURES, maps=True).maps, expected)


def test_similar_classes_compete_in_each_cell():
    members, _ = ensemble_of_three()
    head = combine(members, boost=5.0, compete=0.4).head
    scores = np.stack([member(FEATURES, maps=True).maps.detach().numpy() for member in members], 1)  # B×K×L×H×W
    center, spread = scores.mean((0, 3, 4)), scores.std((0, 3, 4))
    head.standardize_cells(torch.from_numpy(center), torch.from_numpy(spread))
    expected = np.zeros(scores.shape[:3])
    for b, k, c, y, x in np.ndindex(scores.shape):
        evidence = [
            np.mean([(scores[b, m, j, y, x] - center[m, j]) / spread[m, j] for m in range(3)]) for j in range(3)
        ]
        rival = max(evidence[j] for j in range(3) if j != c)
        left = scores[b, k, c, y, x] - 0.4 * spread[k, c] * max(rival - 1, 0)
        expected[b, k, c] += (left + 4 * max(left, 0)) / scores[b, 0, 0].size
    np.testing.assert_allclose(head.member_logits(FEATURES).detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected - combine(members, boost=5.0).head.member_logits(FEATURES).detach().numpy()).max() > 1e-3


def test_competing_needs_cells_and_a_share_and_a_single_class_has_no_rival():
    with pytest.raises(TagfillError, match="compete needs features of cells"):
        combine(ensemble_of_three()[0], compete=0.2)(FEATURES.mean((2, 3)))
    with pytest.raises(TagfillError, match="compete=2"):
        create_head("ensemble", 6, 3, seed=0, compete=2.0)
    one = [Classifier(None, create_head("cam", 6, 1, seed=0), "cam", CLASSES[:1])]
    torch.testing.assert_close(combine(one, compete=0.2)(FEATURES).logits, combine(one)(FEATURES).logits)


def test_a_class_with_constant_logits_does_not_divide_by_zero():
    _, ensemble = ensemble_of_three()
    ensemble.head.standardize(torch.zeros(5, 3, 3))
    assert ensemble(FEATURES).logits.isfinite().all()


def test_an_ensemble_is_saved_and_loaded(tmp_path):
    members = [create("test_resnet", "cam", CLASSES, image_size=64, seed=0) for _ in range(2)]
    ensemble = combine(members, boost=5.0)
    ensemble.head.standardize(torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(0)))
    ensemble.save(tmp_path / "model")
    torch.testing.assert_close(Classifier.load(tmp_path / "model")(PIXELS).logits, ensemble(PIXELS).logits)


def test_models_that_do_not_belong_together_are_not_combined():
    one = create("test_resnet", "cam", CLASSES, image_size=64, seed=0)
    with pytest.raises(TagfillError, match="different classes"):
        combine([one, create("test_resnet", "cam", CLASSES[:2], image_size=64, seed=0)])
    with pytest.raises(TagfillError, match="different backbones"):
        combine([one, create("test_resnet", "cam", CLASSES, image_size=64, seed=1)])
    with pytest.raises(TagfillError, match="different boosts"):
        combine([one, one.convert_head("cam", boost=5.0)])
    with pytest.raises(TagfillError, match="only cam and linear"):
        combine([create("test_resnet", "tscam", CLASSES, image_size=64)])
