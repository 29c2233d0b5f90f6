"""P-ASL and CSL, entry by entry, summed."""

from __future__ import annotations

from math import log

from reference.terms import sigmoid


def selective(
    logits: list[list[float]],
    labels: list[list[int]],
    gammas: tuple[float, float, float],
    alphas: tuple[float, float, float] = (1.0, 1.0, 1.0),
    clip: float = 0.0,
    ignore: list[list[bool]] | None = None,
    mode: str = "negative",
    eps: float = 0.0,
) -> float:
    total = 0.0
    for n, (row, observed) in enumerate(zip(logits, labels, strict=True)):
        known = sum(z != -1 for z in observed)
        in_this_image = 0.0
        for i, (g, z) in enumerate(zip(row, observed, strict=True)):
            f, other = sigmoid(g), sigmoid(-g)
            q = min(other + clip, 1.0)
            if z == 1:
                term = alphas[0] * other ** gammas[0] * log(max(f, eps))
            elif z == 0:
                term = alphas[1] * max(f - clip, 0.0) ** gammas[1] * log(max(q, eps))
            elif mode != "negative" or (ignore is not None and ignore[n][i]):
                term = 0.0
            else:
                term = alphas[2] * max(f - clip, 0.0) ** gammas[2] * log(max(q, eps))
            in_this_image += term
        if mode in ("ignore_normalized", "ignore_normalised"):
            in_this_image *= 1 / (1 + known) + 1
        total -= in_this_image
    return total
