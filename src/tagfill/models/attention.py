"""What the class token of a vision transformer attends to.

In every block, each head weighs all tokens for the class token by softmax(q kᵀ / √d). The row of these weights over the
patches, averaged over heads, says where the block looked: B×blocks×H·W. timm's fused attention never forms the weights;
for one forward pass it is switched off, and each block's weights are cut to that row as soon as they exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tagfill.errors import TagfillError


@contextmanager
def class_token_rows(name: str, model: Any, prefix: int) -> Iterator[list[Tensor]]:
    """Collect the class token's row of every block that runs inside, B×H·W each, without a gradient.

    The model must not run elsewhere at the same time: it is the model itself that is changed meanwhile.

    Args:
        name: of the model, for the error.
        model: a timm model of tokens with a class token.
        prefix: tokens before those of the patches; the first is the class token.
    """
    layers = [layer for block in getattr(model, "blocks", ()) for layer in _attentions(block)]
    if not layers:
        raise TagfillError(
            f"The attention of {name} cannot be read; choose a ViT or DeiT, such as deit_small_patch16_224."
        )
    rows: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        rows.append(arguments[0].detach()[:, :, 0, prefix:].mean(1))

    fused = [layer.fused_attn for layer in layers]
    hooks = [layer.attn_drop.register_forward_pre_hook(keep) for layer in layers]
    try:
        for layer in layers:
            layer.fused_attn = False
        yield rows
    finally:
        for layer, before, hook in zip(layers, fused, hooks, strict=True):
            layer.fused_attn = before
            hook.remove()


def _attentions(block: nn.Module) -> list[Any]:
    """The modules of a block that form attention weights and pass them through `attn_drop`."""
    return [module for module in block.modules() if hasattr(module, "attn_drop") and hasattr(module, "fused_attn")]
