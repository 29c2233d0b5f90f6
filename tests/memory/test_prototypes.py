from __future__ import annotations

import pytest
import torch

from reference.patchcluster import distance, prototypes
from tagfill.memory import statistics as module
from tagfill.memory.statistics import FAR, Prototypes


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_distances_equal_the_formula(monkeypatch, at_once):
    monkeypatch.setattr(module, "_CLASSES_AT_ONCE", at_once)
    features = torch.randn(4, 5, 2, 3, generator=torch.Generator().manual_seed(0))
    cells = features.flatten(2).transpose(1, 2).tolist()
    marked = [(0, 0, 1), (1, 0, 4), (0, 2, 1), (3, 2, 0), (2, 2, 5)]
    found = Prototypes(3, 5)
    for image, label, cell in marked:
        found.add(features.flatten(2)[image, :, cell][None], torch.tensor([label]))
    expected = prototypes(cells, marked, 3)
    nearest, cell = found.nearest(features)
    for n in range(4):
        for c in range(3):
            if expected[c] is None:
                assert nearest[n, c] == FAR
                continue
            distances = [distance(place, expected[c]) for place in cells[n]]
            assert nearest[n, c].item() == pytest.approx(min(distances), abs=1e-5)
            assert cell[n, c] == distances.index(min(distances))
    assert found.known.tolist() == [True, False, True]


def test_pooled_features_are_one_cell():
    found = Prototypes(1, 2)
    found.add(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    distances, cell = found.nearest(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]))
    torch.testing.assert_close(distances, torch.tensor([[0.0], [1.0], [2.0]]))
    assert not cell.any()


def test_the_length_of_a_feature_does_not_matter_to_distances():
    found = Prototypes(1, 3)
    found.add(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]))
    torch.testing.assert_close(found.nearest(torch.tensor([[10.0, 20.0, 30.0]]))[0], torch.zeros(1, 1))
