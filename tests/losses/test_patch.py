from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from losses.cases import modest
from reference.patch import patch as reference
from tagfill.losses import patch

UNEVEN = {"gammas": (0.5, 1.0, 3.0), "weights": (1.0, 2.0, 0.5)}


@st.composite
def cell_batches(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps and cell labels of which some classes are marked, some absent, some unknown, some a mixture."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    maps = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(-1, 2, shape, generator=generator, dtype=torch.int8)
    kind = torch.randint(0, 4, shape[:2], generator=generator)
    labels[kind == 0], labels[kind == 1] = -1, 0
    labels[kind == 2] = labels[kind == 2].clamp(min=0) * 2 - 1
    return maps, labels


@pytest.mark.parametrize("unknown", ["ignore", "selective"])
@pytest.mark.parametrize("scope", ["class", "batch"])
@pytest.mark.parametrize("cells", ["mean", "sum"])
@modest
@given(cell_batches(), st.integers(0, 4), st.sampled_from([0.0, 1e-5]))
def test_equals_the_formula(unknown, scope, cells, batch, k, eps):
    maps, labels = batch
    loss = patch(maps, labels, unknown=unknown, k=k, scope=scope, cells=cells, reduction="none", eps=eps, **UNEVEN)
    expected = reference(
        maps.flatten(2).tolist(),
        labels.flatten(2).tolist(),
        UNEVEN["gammas"],
        UNEVEN["weights"],
        unknown == "selective",
        k,
        scope,
        cells == "mean",
        eps,
    )
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_worked_example():
    """One point, and CSL-P that spares the likelier of the two other cells."""
    maps, labels = torch.tensor([[[[2.0, 1.0, -1.0]]]]), torch.tensor([[[[1, -1, -1]]]])
    loss = patch(maps, labels, gammas=(0, 0, 0), unknown="selective", k=1)
    assert loss.item() == pytest.approx((math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2)


@modest
@given(cell_batches())
def test_the_grid_does_not_matter_to_the_mean(batch):
    """Every cell cut in four: the same loss by the mean, four times by the sum."""
    maps, labels = batch
    fine = [values.repeat_interleave(2, 2).repeat_interleave(2, 3) for values in (maps, labels)]
    torch.testing.assert_close(patch(*fine), patch(maps, labels))
    torch.testing.assert_close(patch(*fine, cells="sum"), 4 * patch(maps, labels, cells="sum"))


def test_more_spared_cells_never_raise_the_sum():
    draws = torch.Generator().manual_seed(0)
    maps, labels = torch.randn(2, 3, 4, 4, generator=draws), torch.full((2, 3, 4, 4), -1)
    labels[..., 0, 0] = 1
    sums = [float(patch(maps, labels, unknown="selective", k=k, cells="sum")) for k in range(17)]
    assert sums == sorted(sums, reverse=True)
    assert sums[15] == pytest.approx(float(patch(maps, labels, cells="sum")))


def test_nothing_known_teaches_nothing():
    maps = torch.randn(2, 3, 2, 2, requires_grad=True)
    loss = patch(maps, torch.full((2, 3, 2, 2), -1), unknown="selective")
    loss.backward()
    assert loss == 0
    assert not maps.grad.any()
    assert patch(torch.zeros(0, 3, 2, 2), torch.zeros(0, 3, 2, 2)) == 0


@pytest.mark.parametrize("unknown", ["ignore", "selective"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_extreme_maps_stay_finite(unknown, dtype):
    values = torch.tensor([-1e4, 1e4, 0.0, -50.0, 50.0, 3.0])
    maps = torch.stack([values, values.flip(0), -values]).view(1, 3, 2, 3).to(dtype).requires_grad_()
    labels = torch.tensor([1, -1, -1, 1, -1, -1]).view(1, 1, 2, 3).repeat(1, 3, 1, 1)
    labels[:, 2] = 0
    loss = patch(maps, labels, gammas=(0.5, 0.5, 0.5), unknown=unknown, k=1)
    loss.backward()
    assert loss.isfinite()
    assert maps.grad.isfinite().all()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unknown": "some"}, "no way 'some' to treat unknown cells"),
        ({"unknown": "selective", "scope": "image"}, "no scope 'image'"),
        ({"cells": "max"}, "no way 'max' to join cells"),
    ],
)
def test_unknown_words_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        patch(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), **options)


def test_other_grids_are_refused():
    with pytest.raises(ValueError, match="maps are 1×1×2×2 and the patch labels 1×1×1×1"):
        patch(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 1, 1))
