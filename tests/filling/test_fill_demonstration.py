"""The demonstration of filling in, on a few scenes."""

from __future__ import annotations

import pytest

from tagfill.filling.demonstration import compare_with_truth, demonstrate
from tagfill.scenes import make


@pytest.mark.long
def test_scenes_are_filled_in_and_compared_with_the_truth(tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    found = demonstrate(tmp_path, sizes=(60, 1, 20), jobs=1)
    one = found.result.summary
    assert (one.photos, one.tagged_photos, one.given) == (81, 60, 60)
    truth = make(train=60, val=1, test=20).labels()
    assert found.missing == truth.positives.sum() - 60
    assert found.right <= min(one.added, found.missing)
    assert compare_with_truth(found.result, make(train=60, val=1, test=20)) == found
    assert f"{one.added:,} tags" in found.sentence() or "No tag" in found.sentence()
