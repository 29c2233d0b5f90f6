"""The leaderboard of the demonstration.

<!-- numbers: demo -->
"""

from __future__ import annotations

from filling.results import results, table


def demonstration(arguments: str, top: str) -> str:
    """Score, share of the gap closed, annotation time and notes."""
    found = results("demo")
    assert found is not None, "run python benchmarks/demo/run.py first"
    rows = [
        [
            f"`{row['method']}`",
            row["note"] or "defaults",
            f"{row['test_mAP']:.2f}",
            f"{row['gap_closed']:.0%}",
            _duration(row["annotation_seconds"]),
        ]
        for row in found["rows"]
    ]
    return table(["method", "notes", "test mAP", "gap closed", "annotation"], rows, left=2)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
