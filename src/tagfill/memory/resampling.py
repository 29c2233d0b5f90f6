"""Bilinear resizing between a map of the whole image and a view of it, as small matrices.

Resizing is linear and separable, so cutting a window out of a W×W map, mirroring it and resizing it to G×G is
A H Bᵀ with one G×W matrix for each direction; a whole batch with different windows is then two products. Classes lie
innermost, so that both are products of matrices a row of which holds all classes.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from tagfill.contract import Geometry
from tagfill.memory.room import Room


@lru_cache(maxsize=4096)
def _resize(source: int, target: int) -> Tensor:
    """target×source weights of bilinear resizing with half-pixel centres, edges held."""
    at = ((torch.arange(target, dtype=torch.float64) + 0.5) * source / target - 0.5).clamp(min=0)
    left = at.floor().long().clamp(max=source - 1)
    right = (left + 1).clamp(max=source - 1)
    share = at - left
    weights = torch.zeros(target, source, dtype=torch.float64)
    row = torch.arange(target)
    weights.index_put_((row, left), 1 - share, accumulate=True)
    weights.index_put_((row, right), share, accumulate=True)
    return weights


@lru_cache(maxsize=4096)
def _cut(start: int, stop: int, flip: bool, size: int, grid: int) -> Tensor:
    """grid×size: from a map of the whole image to what a view shows of it."""
    matrix = torch.zeros(grid, size)
    matrix[:, start:stop] = _resize(stop - start, grid).float()
    return matrix.flip(0) if flip else matrix


@lru_cache(maxsize=4096)
def _paste(start: int, stop: int, flip: bool, size: int, grid: int) -> Tensor:
    """size×grid: from a view back into the map; rows outside of the window are zero."""
    matrix = torch.zeros(size, grid)
    matrix[start:stop] = _resize(grid, stop - start).float()
    return matrix.flip(1) if flip else matrix


def _matrices(kind: str, geometry: Geometry, size: int, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The matrices of all views, for rows and for columns of the map."""
    make = _cut if kind == "cut" else _paste
    windows = geometry.windows(size).tolist()
    down = [make(w[1], w[3], bool(f), size, grid[0]) for w, f in zip(windows, geometry.flip_y, strict=True)]
    across = [make(w[0], w[2], bool(f), size, grid[1]) for w, f in zip(windows, geometry.flip_x, strict=True)]
    return torch.stack(down), torch.stack(across)


def cut(
    maps: Tensor, geometry: Geometry, grid: tuple[int, int], *, out: Tensor | None = None, room: Room | None = None
) -> Tensor:
    """What each view shows of its image's maps: B×W×W×L to B×G×G×L.

    Args:
        maps: B×W×W×L float32.
        geometry: of the views.
        grid: rows and columns of the result.
        out: where it is written to, if not to new memory.
        room: for what is computed in between.
    """
    down, across = _matrices("cut", geometry, maps.shape[1], grid)
    return torch.matmul(across[:, None], _rows(down, maps, room or Room()), out=out)


def paste(views: Tensor, geometry: Geometry, size: int, *, room: Room | None = None) -> tuple[Tensor, Tensor]:
    """The views' maps in the frame of their images, and a B×W×W×1 mask of the part that they show.

    Args:
        views: B×G×G×L float32.
        geometry: of the views.
        size: W.
        room: for the result, B×W×W×L, which is overwritten when it is used again; zero outside of the window.
    """
    room = room or Room()
    down, across = _matrices("paste", geometry, size, (views.shape[1], views.shape[2]))
    maps = room.take("pasted", (len(views), size, size, views.shape[3]))
    torch.matmul(across[:, None], _rows(down, views, room), out=maps)
    visible = (down.sum(-1) > 0)[:, :, None, None] & (across.sum(-1) > 0)[:, None, :, None]
    return maps, visible


def _rows(down: Tensor, maps: Tensor, room: Room) -> Tensor:
    """Maps with other rows: B×H×W×L to B×H'×W×L."""
    count, height, width, classes = maps.shape
    resized = room.take("rows", (count, down.shape[1], width * classes))
    torch.bmm(down, maps.reshape(count, height, width * classes), out=resized)
    return resized.view(count, -1, width, classes)
