from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from reference import query as reference
from tagfill.errors import TagfillError
from tagfill.models import Classifier, QueryHead, create_head
from tagfill.models.query import sine_positions

FEATURES = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def head(channels: int = 6, classes: int = 5, **options) -> QueryHead:
    """A small head with random biases and norms, so that a mistake about them shows."""
    made = create_head("query", channels, classes, seed=1, **{"width": 8, "heads": 2, "ffn": 12, **options}).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.ndim == 1:
                weights += torch.randn(weights.shape, generator=generator, dtype=torch.float64) * 0.3
    return made.eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_first_self_attention": True},
        {"keep_other_self_attention": True},
        {"keep_first_self_attention": True, "keep_other_self_attention": True},
        {"encoder_layers": 0, "decoder_layers": 1},
        {"encoder_layers": 2, "decoder_layers": 3, "keep_other_self_attention": True},
        {"width": 12, "heads": 3},
    ],
    ids=str,
)
@torch.no_grad()
def test_logits_and_attention_are_those_of_the_arithmetic(options):
    query = head(**options)
    prediction = query(FEATURES, attention=True)
    weights = {name: value.numpy() for name, value in query.state_dict().items()}
    for at, image in enumerate(FEATURES.numpy()):
        logits, looks = reference.query2label(image, weights, query.heads)
        np.testing.assert_allclose(prediction.logits[at].numpy(), logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(prediction.attention[at].numpy(), looks, rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_features_of_the_right_width_are_projected_only_on_request():
    features = FEATURES.repeat(1, 2, 1, 1)[:, :8]
    plain, projecting = head(8), head(8, keep_input_projection=True)
    assert "input_proj.weight" not in plain.state_dict()
    assert projecting.state_dict()["input_proj.weight"].shape == (8, 8)
    for query in (plain, projecting):
        weights = {name: value.numpy() for name, value in query.state_dict().items()}
        expected = [reference.query2label(image, weights, query.heads)[0] for image in features.numpy()]
        np.testing.assert_allclose(query(features).logits.numpy(), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_attention_is_returned_only_on_request_and_sums_to_one():
    assert head()(FEATURES).attention is None
    looks = head()(FEATURES, attention=True).attention
    assert looks.shape == (2, 2, 5, 3, 4)
    torch.testing.assert_close(looks.sum((-2, -1)), torch.ones(2, 2, 5, dtype=torch.float64))


@torch.no_grad()
def test_each_image_is_predicted_by_itself():
    query = head(keep_first_self_attention=True)
    torch.testing.assert_close(query(FEATURES[1:]).logits, query(FEATURES).logits[1:])


@torch.no_grad()
def test_the_order_of_classes_does_not_matter_without_self_attention():
    """Each query is then independent."""
    query = head()
    expected = query(FEATURES).logits.flip(1)
    for name in ("queries", "weight", "bias"):
        getattr(query, name).data = getattr(query, name).data.flip(0)
    torch.testing.assert_close(query(FEATURES).logits, expected)


def test_every_weight_gets_a_gradient():
    query = head(keep_first_self_attention=True, keep_other_self_attention=True).train()
    query(FEATURES).logits.square().sum().backward()
    assert [name for name, weights in query.named_parameters() if weights.grad is None] == []


def test_dropout_differs_between_images_in_training_only():
    query = head(dropout=0.5)
    twice = FEATURES[:1].repeat(2, 1, 1, 1)
    same, other = query(twice).logits
    assert torch.equal(same, other)
    same, other = query.train()(twice).logits
    assert not torch.equal(same, other)


def test_dropout_among_queries_differs_between_images():
    """Without an encoder, this dropout is the only one before the queries attend to the cells."""
    query = head(dropout=0.5, encoder_layers=0, decoder_layers=1, keep_first_self_attention=True).train()
    same, other = query(FEATURES[:1].repeat(2, 1, 1, 1), attention=True).attention
    assert not torch.equal(same, other)


@pytest.mark.parametrize(("first", "others"), [(True, False), (False, True)])
def test_self_attention_is_in_the_requested_layers(first, others):
    query = head(decoder_layers=3, keep_first_self_attention=first, keep_other_self_attention=others)
    assert [hasattr(layer, "self_attn") for layer in query.decoder] == [first, others, others]


def test_initial_weights_are_those_of_the_released_code():
    query = create_head("query", 64, 400, seed=0, width=256, heads=4)
    bound = math.sqrt(6 / (256 + 3 * 256))
    for matrix, limit in [
        (query.decoder[1].multihead_attn.in_proj_weight, bound),
        (query.encoder[0].linear1.weight, math.sqrt(6 / (256 + 1024))),
        (query.weight, 1 / 16),
        (query.bias, 1 / 16),
    ]:
        assert 0.98 * limit < matrix.abs().max() <= limit
        assert matrix.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
    assert query.queries.std().item() == pytest.approx(1, rel=0.02)
    assert query.encoder[0].self_attn.in_proj_bias.abs().max() == 0
    assert query.encoder[0].self_attn.out_proj.bias.abs().max() == 0


def test_the_published_size_has_the_published_number_of_weights():
    """151 million in the layers at width 2048, 185 million with self-attention among queries."""
    with torch.device("meta"):
        small, large = (
            QueryHead(2048, 80, width=2048, ffn=8192, keep_first_self_attention=both, keep_other_self_attention=both)
            for both in (False, True)
        )
    counts = [sum(p.numel() for n, p in m.named_parameters() if n.split(".")[0] in LAYERS) for m in (small, large)]
    assert [round(count / 1e6) for count in counts] == [151, 185]


LAYERS = ("encoder", "decoder", "norm")


@torch.no_grad()
def test_weights_of_pytorch_layers_fit_by_name():
    """An encoder layer of PyTorch without positions is ours with positions taken out."""
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True).double().eval()
    ours = head().encoder[0]
    ours.load_state_dict(theirs.state_dict())
    cells = FEATURES.flatten(2).transpose(1, 2).repeat(1, 1, 2)[..., :8]
    torch.testing.assert_close(ours(cells, torch.zeros(12, 8, dtype=torch.float64)), theirs(cells))


def test_half_precision_features_give_single_precision_logits():
    assert head().bfloat16()(FEATURES.bfloat16()).logits.dtype == torch.float32


def test_pooled_features_are_refused():
    with pytest.raises(TagfillError, match="given pooled features, but it needs features of cells"):
        head()(FEATURES.mean((2, 3)))


def test_there_are_no_class_maps():
    with pytest.raises(TagfillError, match="The query head has no class maps; choose cam or tscam"):
        Classifier(None, head(), "query", list("abcde"))(FEATURES, maps=True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"width": 10}, "width=10 of head 'query' is not a multiple of 4 and of heads=2"),
        ({"width": 8, "heads": 3}, "is not a multiple of 4 and of heads=3"),
        ({"heads": 0}, "heads=0"),
        ({"ffn": 0}, "ffn=0 of head 'query' is not at least 1"),
        ({"decoder_layers": 0}, "needs at least one decoder layer"),
        ({"dropout": 1.0}, "dropout=1 of head 'query' is not in 0 ≤ dropout < 1"),
        ({"width": "wide"}, "Option width='wide' of head 'query': Input should be a valid integer"),
    ],
)
def test_invalid_options_are_refused(options, problem):
    with pytest.raises(TagfillError, match=problem):
        head(**options)


@pytest.mark.parametrize(("height", "width", "channels"), [(7, 7, 16), (3, 5, 8), (5, 3, 8), (1, 1, 4), (14, 14, 32)])
def test_the_table_is_that_of_the_formula(height, width, channels):
    expected = reference.positions(height, width, channels)
    np.testing.assert_allclose(sine_positions(height, width, channels).numpy(), expected, rtol=0, atol=1e-6)


def test_a_few_values_by_hand():
    """The last row is one full turn; with d = 8 the frequencies of a half are 1 and 1/100."""
    table = sine_positions(4, 2, 8).reshape(4, 2, 8)
    turn = 2 * np.pi
    torch.testing.assert_close(table[3, 0, :2], torch.tensor([0.0, 1.0]), rtol=0, atol=2e-6)
    torch.testing.assert_close(table[0, 0, :2], torch.tensor([1.0, 0.0]), rtol=0, atol=2e-6)
    assert table[3, 0, 2].item() == pytest.approx(np.sin(turn / 100), abs=1e-6)
    assert table[2, 0, 4].item() == pytest.approx(np.sin(turn / 2), abs=2e-6)


def test_a_table_made_in_inference_mode_can_be_used_in_training():
    with torch.inference_mode():
        sine_positions(2, 9, 8)
    weight = torch.ones(8, requires_grad=True)
    (sine_positions(2, 9, 8) * weight).sum().backward()
    assert weight.grad is not None
