from __future__ import annotations

import pytest

from protocols.cases import made
from tagfill.errors import DatasetError
from tagfill.protocols import budget, describe, summary

DATA = made()


def test_summary_adds_shares_to_the_record():
    part = budget(DATA, percent=50, kind="I", seed=4)

    facts = summary(part)

    assert facts["name"] == "budget"
    assert facts["kept"]["share"] == 0.5
    assert facts["kept"]["positives_per_image"] == facts["kept"]["positives"] / 60


def test_description_is_for_people():
    part = budget(DATA, percent=50, kind="I", seed=4)
    kept = part.protocol["kept"]

    lines = describe(part).splitlines()

    assert lines[0].startswith("budget (percent=50, kind=I, ")
    assert lines[0].endswith("seed=4) of made")
    assert lines[1] == "images: train 60, val 20, test 10"
    assert lines[2] == (
        f"kept for training: {kept['positives']} positives, {kept['negatives']} negatives; 240 unknown (50 % known)"
    )
    assert lines[4] == "annotation time: 240 s"


def test_a_dataset_that_was_not_simulated_is_refused():
    with pytest.raises(DatasetError, match="made was not simulated"):
        summary(DATA)
