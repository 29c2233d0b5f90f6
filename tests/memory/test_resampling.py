from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from memory.cases import crops
from tagfill.images.geometry import Geometry
from tagfill.memory.heatmaps import ScratchBuffers, cut, paste

SIZE, GRID = 14, (7, 5)
VIEWS = crops(12)
MAPS = torch.rand(12, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
SEEN = torch.rand(12, 3, *GRID, generator=torch.Generator().manual_seed(1))


def resized(values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return F.interpolate(values[None], size=size, mode="bilinear", align_corners=False)[0]


def classes_last(maps: torch.Tensor) -> torch.Tensor:
    return maps.permute(0, 2, 3, 1)


def mirrored(values: torch.Tensor, view: int) -> torch.Tensor:
    flips = [dim for dim, flip in ((-1, VIEWS.flip_x[view]), (-2, VIEWS.flip_y[view])) if flip]
    return values.flip(flips)


@pytest.mark.parametrize("view", range(12))
def test_cutting_slices_mirrors_and_resizes(view):
    left, top, right, bottom = VIEWS.windows(SIZE)[view]
    expected = resized(mirrored(MAPS[view, :, top:bottom, left:right], view), GRID)
    found = cut(classes_last(MAPS), VIEWS, GRID)[view].permute(2, 0, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("view", range(12))
def test_pasting_mirrors_back_and_resizes_into_the_window(view):
    left, top, right, bottom = VIEWS.windows(SIZE)[view]
    maps = paste(classes_last(SEEN), VIEWS, SIZE)[0].permute(0, 3, 1, 2)
    expected = resized(mirrored(SEEN[view], view), (bottom - top, right - left))
    torch.testing.assert_close(maps[view, :, top:bottom, left:right], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("view", range(12))
def test_visible_cells_are_those_of_the_window(view):
    left, top, right, bottom = VIEWS.windows(SIZE)[view]
    expected = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    expected[top:bottom, left:right] = True
    _, visible = paste(classes_last(SEEN), VIEWS, SIZE)
    assert torch.equal(visible[view, :, :, 0], expected)


def test_one_half_of_a_map_shown_at_its_own_resolution_is_copied():
    half = Geometry(np.array([[0.5, 0, 1, 1]], dtype=np.float32), np.array([True]), np.array([False]), np.array([True]))
    maps = torch.arange(16.0).reshape(1, 4, 4, 1)
    assert cut(maps, half, (4, 2))[0, :, :, 0].tolist() == [[3, 2], [7, 6], [11, 10], [15, 14]]


def test_buffers_that_were_used_before_leave_no_trace():
    scratch = ScratchBuffers()
    cut(9 * classes_last(MAPS), VIEWS, GRID, scratch=scratch)
    paste(9 * classes_last(SEEN), VIEWS, SIZE, scratch=scratch)
    few, views = slice(2, 5), VIEWS.take(np.arange(2, 5))
    assert torch.equal(
        cut(classes_last(MAPS[few]), views, GRID, scratch=scratch), cut(classes_last(MAPS[few]), views, GRID)
    )
    assert torch.equal(
        paste(classes_last(SEEN[few]), views, SIZE, scratch=scratch)[0], paste(classes_last(SEEN[few]), views, SIZE)[0]
    )
