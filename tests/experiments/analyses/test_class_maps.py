"""Agreement of class maps, and attention."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from experiments.analyses.conftest import read_table
from tagfill.experiments.analyses import analyze
from tagfill.experiments.analyses.class_maps import centered_gaussian, compare_maps, extremes
from tagfill.experiments.analyses.inputs import open_runs


def test_the_maps_of_a_model_agree_with_themselves(runs: dict[str, str], tmp_path: Path) -> None:
    same = open_runs([runs["an"]])[0]

    found = compare_maps(same, same, "test", images=100)

    assert found.agreement == pytest.approx(np.ones(len(found.agreement)))
    assert (found.attribution["top", "positive", 0] >= found.attribution["bottom", "positive", 0]).all()
    truth = same.dataset.labels("test").dense()
    assert len(found.agreement) == (truth == 1).sum()
    assert len(found.attribution["top", "negative", 1]) == (truth == 0).sum()


def test_cam_agreement_pictures_scores_of_all_columns(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("cam-agreement", [runs["bce"], runs["an"], runs["ll-r"]], out=tmp_path, rows=2)

    rows = read_table(tmp_path, "maps")
    assert list(rows[0])[2:] == ["full labels", "an", "an, boosted", "ll-r + boost 5"]
    assert len(rows) == 2
    assert float(rows[0]["an, boosted"]) >= float(rows[0]["an"])
    assert -1 <= section.facts["median"]["control"] <= section.facts["median"]["agreement"] <= 1


def test_extremes_are_means_of_the_first_and_last_cells():
    cells = np.random.default_rng(6).normal(size=(4, 49))

    low, high = extremes(cells)

    for row, (a, b) in enumerate(zip(low, high, strict=True)):
        ordered = sorted(cells[row].tolist())
        assert (a, b) == pytest.approx((sum(ordered[:2]) / 2, sum(ordered[-2:]) / 2))


def test_gaussian_falls_with_the_distance_from_the_center():
    values = centered_gaussian(7, 7)

    distance = {(row, column): (row - 3) ** 2 + (column - 3) ** 2 for row in range(7) for column in range(7)}
    for a, near in distance.items():
        for b, far in distance.items():
            assert (values[a] > values[b]) == (near < far)


def test_attention_of_queries_is_drawn_on_images(runs: dict[str, str], tmp_path: Path) -> None:
    section = analyze("attention", [runs["query"]], out=tmp_path, images=2)

    assert len(section.figures[0].data.rows) == 2  # type: ignore[union-attr]
    assert min(Image.open(BytesIO(section.figures[0].png)).size) > 192
