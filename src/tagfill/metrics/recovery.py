"""How much of what partial labels lose a method wins back.

    gap closed = (method − floor) / (ceiling − floor)

The floor is the score of assuming negatives on the same partial labels, the ceiling that of training on full labels,
all three with the same model and schedule. 0 is no gain, 1 is as good as full labels; it can leave that range.
"""

from __future__ import annotations


def gap_closed(method: float, floor: float, ceiling: float) -> float:
    """The share of the gap between floor and ceiling that a method closes.

    Args:
        method: score of the method, in the unit of the other two.
        floor: score of assuming negatives on the same labels.
        ceiling: score of full labels.

    Returns:
        The share, or NaN where there is no gap to close (ceiling ≤ floor).

    Example:
        >>> round(gap_closed(72.0, floor=66.0, ceiling=76.0), 4)
        0.6
    """
    gap = ceiling - floor
    return (method - floor) / gap if gap > 0 else float("nan")
