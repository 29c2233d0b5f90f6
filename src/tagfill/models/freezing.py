"""Parts of a backbone that do not train: its stem, its batch norms.

Query2Label's recipe keeps the first convolution and the first stage of a ResNet as ImageNet made them, and the batch
norms with their statistics, because its batches are too small to estimate better ones. What is frozen is told by
`requires_grad` alone: a batch norm whose scale does not train keeps its statistics too.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tagfill.errors import TagfillError


def freeze_stem(name: str, model: Any) -> None:
    """Stop the training of the first layers and the first stage; of a transformer, the embedding and the first block.

    Args:
        name: of the model, for the error.
        model: a timm model, which groups its layers itself.
    """
    from timm.models import group_parameters

    if not hasattr(model, "group_matcher"):
        raise TagfillError(f"The backbone {name} does not say which layers are its stem; freeze all of it or none.")
    groups: dict[int, list[str]] = group_parameters(model, model.group_matcher(coarse=True))
    for parameter in groups[0] + groups[1]:
        model.get_parameter(parameter).requires_grad_(False)


def freeze_batch_norm(model: nn.Module) -> None:
    """Stop the training of all batch norms, of their scales as of their statistics."""
    for norm in _batch_norms(model):
        norm.requires_grad_(False)


def keep_statistics(model: nn.Module) -> None:
    """Put the batch norms that do not train into evaluation mode."""
    for norm in _batch_norms(model):
        if norm.affine and not norm.weight.requires_grad:
            norm.eval()


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]
