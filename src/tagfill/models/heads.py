"""Heads by the names that recipes and the command line take.

>>> sorted(HEADS)
['cam', 'linear', 'query', 'tscam']
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tagfill.draws import seed_of
from tagfill.errors import TagfillError, unknown_name
from tagfill.models.cam import CamHead
from tagfill.models.head import Head, checked_options
from tagfill.models.linear import LinearHead
from tagfill.models.query import QueryHead
from tagfill.models.tscam import TsCamHead

HEADS: dict[str, type[Head]] = {"linear": LinearHead, "cam": CamHead, "tscam": TsCamHead, "query": QueryHead}


def create_head(name: str, channels: int, classes: int, *, seed: int, **options: Any) -> Head:
    """A head with initial weights that depend on the seed alone.

    Args:
        name: from `HEADS`.
        channels: D of the features.
        classes: L.
        seed: of the initial weights.
        **options: of the head, see its class.

    >>> create_head("cam", 512, 20, seed=0, boost=5.0).spatial
    True
    """
    if name not in HEADS:
        raise unknown_name("head", name, HEADS)
    checked = checked_options(name, HEADS[name], options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head"))
        return HEADS[name](channels, classes, **checked)


def convert_head(head: Head, name: str, **options: Any) -> Head:
    """A `cam` head with the weights of a `linear` one, the other way round, or another boost; see `Classifier`.

    Both classify a mean of cells by one linear layer: before the mean or after it is the same.
    """
    layer = getattr(head, "fc", None)
    if layer is None or name not in ("linear", "cam") or head.token or options.get("pool") == "token":
        raise TagfillError(
            f"This {type(head).__name__} cannot become a {name} head; only cam and linear with pool=gap convert."
        )
    if name == "linear" and head.spatial:
        raise TagfillError(
            "This cam head boosts its scores, which a linear head cannot; convert it to cam with boost=1 first "
            "if logits without the boost are wanted."
        )
    assert isinstance(layer, nn.Linear)
    converted = create_head(name, layer.in_features, layer.out_features, seed=0, **options)
    converted.get_submodule("fc").load_state_dict(layer.state_dict())
    if isinstance(head, CamHead) and head.boosts is not None:
        converted.mask_boost(head.boosts)
    return converted.to(layer.weight).train(head.training)


def heads_with(what: str) -> str:
    """The names of the heads that have `has_maps` or `attention_of`, for errors."""
    return " or ".join(name for name, head in HEADS.items() if getattr(head, what))
