"""The batch of the worked example, random batches, and the losses that must obey the laws."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from tagfill import losses

LOGITS = torch.tensor([[2, -1, 0.5, -3], [-0.5, 1.5, -2, 0]], dtype=torch.float64)
LABELS = torch.tensor([[1, -1, -1, 0], [-1, 1, -1, -1]], dtype=torch.int8)

REDUCTIONS = ("mean", "sum", "batchmean", "known", "none")

modest = settings(max_examples=10, deadline=None)


@dataclass(frozen=True)
class Batch:
    """A batch, and B×L numbers in ±3 for further arguments of a loss: estimates, expected positives, targets."""

    logits: Tensor
    labels: Tensor
    extra: Tensor


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    logits = draw(arrays(np.float64, shape, elements=st.floats(-12, 12, width=32)))
    labels = draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1])))
    extra = draw(arrays(np.float64, shape, elements=st.floats(-3, 3, width=32)))
    return Batch(torch.from_numpy(logits), torch.from_numpy(labels), torch.from_numpy(extra))


def signed(extra: Tensor) -> Tensor:
    """Temperatures of both signs, and 0 for what is left out."""
    return extra + extra.sign()


def _one_cell(values: Tensor) -> Tensor:
    """B×L as B×L×1×1: what holds of labels must hold of maps with one cell."""
    return values[:, :, None, None]


def arguments(name: str) -> list[str]:
    """The required arguments of a public function of `tagfill.losses`; none for what is not a loss."""
    found = getattr(losses, name)
    parameters = inspect.signature(found).parameters if inspect.isfunction(found) else {}
    if "reduction" not in parameters or name == "reduce":
        return []
    return [key for key, parameter in parameters.items() if parameter.default is parameter.empty]


def _without_extra(name: str) -> Callable[..., Tensor]:
    return lambda g, z, _, **kw: getattr(losses, name)(g, z, **kw)


# Each takes (logits, labels, extra, *, reduction, eps). A loss of logits and labels needs no line: it is held to all
# laws with its default options. Below are losses with further arguments, and other options.
LOSSES: dict[str, Callable[..., Tensor]] = {
    **{name: _without_extra(name) for name in losses.__all__ if arguments(name) == ["logits", "labels"]},
    "binary-ls": lambda g, z, _, **kw: losses.binary(g, z, smoothing=0.1, **kw),
    "an-ls": lambda g, z, _, **kw: losses.assume_negative(g, z, smoothing=0.1, **kw),
    "wan": lambda g, z, _, **kw: losses.assume_negative(g, z, negative_weight=0.25, **kw),
    "fe-present": lambda g, z, _, **kw: losses.full_exposure(g, z, unknown_as="present", **kw),
    "zlpr-absent": lambda g, z, _, **kw: losses.zlpr(g, z, unknown_as="absent", **kw),
    "asl": lambda g, z, _, **kw: losses.asymmetric(g, z, gamma_positive=1.0, **kw),
    "asl-gradient": lambda g, z, _, **kw: losses.asymmetric(g, z, gamma_positive=1.0, focal_gradient=True, **kw),
    "focal-asl": lambda g, z, _, **kw: losses.asymmetric(g, z, gamma_positive=2, gamma_negative=2, margin=0, **kw),
    "focal-gradient": lambda g, z, _, **kw: losses.asymmetric(
        g, z, gamma_positive=0.5, gamma_negative=0.5, margin=0, focal_gradient=True, **kw
    ),
    "em-apl": lambda g, z, x, **kw: losses.entropy_maximization(
        g, z, soft_labels=torch.where(x > 0, x.sigmoid(), -1.0), use_negatives=True, **kw
    ),
    "epr": lambda g, z, _, **kw: losses.expected_positive(g, z, expected=1.5, **kw),
    "role": lambda g, z, x, **kw: losses.role(g, z, x, expected=1.5, **kw),
    "epr-images": lambda g, z, _, **kw: losses.expected_positive(g, z, expected=1.5, positive_weight=4.0, **kw),
    "role-images": lambda g, z, x, **kw: losses.role(g, z, x, expected=1.5, positive_weight=4.0, **kw),
    "role-half": lambda g, z, x, **kw: losses.role_half(g, z, x.sigmoid(), expected=1.5, **kw),
    "en": lambda g, z, x, **kw: losses.expected_negative(g, z, x > 0, **kw),
    "ep": lambda g, z, x, **kw: losses.expected_negative(g, z, x > 0, also_positive=True, **kw),
    "en-literal": lambda g, z, x, **kw: losses.expected_negative(g, z, x > 0, literal=True, **kw),
    "se": lambda g, z, x, **kw: losses.soft_exposure(g, z, signed(x), **{"reduction": "mean", **kw}),
    "soft-positive": lambda g, z, x, **kw: losses.soft_positive(g, z, x.sigmoid(), **kw),
    "patch": lambda g, z, _, **kw: losses.patch(_one_cell(g), _one_cell(z), gammas=(0, 0, 0), **kw),
    "ll-r": lambda g, z, _, **kw: losses.large_loss(g, z, rate=0.2, **kw),
    "ll-ct": lambda g, z, _, **kw: losses.large_loss(g, z, rate=0.2, mode="correct", **kw),
    "ll-mask": lambda g, z, x, **kw: losses.large_loss_from_mask(g, z, (x > 0) & (z == -1), **kw),
    "p-asl": lambda g, z, _, **kw: losses.selective(g, z, mode="ignore", **kw),
    "p-asl-negative": lambda g, z, _, **kw: losses.selective(g, z, clip=0.05, **kw),
    "p-asl-normalized": lambda g, z, _, **kw: losses.selective(g, z, mode="ignore_normalized", **kw),
    "csl": lambda g, z, x, **kw: losses.selective(g, z, ignore=x > 0, **kw),
    "splc-first": lambda g, z, _, **kw: losses.splc(g, z, correct=False, **kw),
    **{
        f"consistency-{name}": partial(
            lambda g, z, x, name, **kw: losses.consistency(g, z, x.sigmoid(), distance=name, **kw), name=name
        )
        for name in ("l1", "l2", "jsd")
    },
}
