from __future__ import annotations

from math import isnan

import pytest

from tagfill.metrics import gap_closed


@pytest.mark.parametrize(("method", "share"), [(60, 0), (80, 1), (75, 0.75), (55, -0.25), (82, 1.1)])
def test_share_of_the_way_from_floor_to_ceiling(method, share):
    assert gap_closed(method, floor=60, ceiling=80) == pytest.approx(share)


def test_unit_does_not_matter():
    assert gap_closed(0.75, 0.6, 0.8) == pytest.approx(gap_closed(75, 60, 80))


@pytest.mark.parametrize("ceiling", [60, 59])
def test_without_a_gap_there_is_no_share(ceiling):
    assert isnan(gap_closed(70, floor=60, ceiling=ceiling))
