from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from memory.cases import crops, single_positives
from reference import heatmaps as reference
from tagfill.images.geometry import Geometry
from tagfill.labels import LabelMatrix
from tagfill.memory import Heatmaps, SavedPart, Scores, Shard
from tagfill.memory.heatmaps import ScratchBuffers, cut, paste

IMAGES, CLASSES, SIZE, GRID = 5, 3, 8, (4, 4)
LABELS = single_positives(IMAGES, CLASSES)
ALL_IMAGES = torch.arange(IMAGES)


def heatmaps(path=None, labels: LabelMatrix = LABELS, size: int = SIZE, **options) -> Heatmaps:
    return Heatmaps(labels, Shard(np.arange(len(labels))), momentum=0.8, size=size, path=path, **options).allocate()


def steps(store: Heatmaps, images: int = IMAGES) -> np.ndarray:
    """The whole content, in steps of 1/255."""
    shown = store.read(torch.arange(images), Geometry.whole(images), (store.size, store.size))
    return (shown * 255).round().to(torch.uint8).numpy()


def visits(count: int) -> list[tuple[Geometry, torch.Tensor]]:
    draws = torch.Generator().manual_seed(4)
    return [(crops(IMAGES, seed), torch.rand(IMAGES, CLASSES, *GRID, generator=draws)) for seed in range(count)]


def as_view(geometry: Geometry, at: int) -> reference.View:
    return tuple(geometry.box[at].tolist()), bool(geometry.flip_x[at]), bool(geometry.flip_y[at])


def test_an_annotated_class_starts_at_one_everywhere_and_the_others_at_zero():
    expected = np.where(LABELS.dense() == 1, 255, 0)[:, :, None, None]
    np.testing.assert_array_equal(steps(heatmaps()), np.broadcast_to(expected, (IMAGES, CLASSES, SIZE, SIZE)))


def test_visits_equal_a_simulation_cell_by_cell():
    store = heatmaps()
    expected = steps(store).tolist()
    for geometry, maps in visits(4):
        store.update(ALL_IMAGES, geometry, maps)
        for n in range(IMAGES):
            for c in range(CLASSES):
                after = reference.update(expected[n][c], as_view(geometry, n), maps[n, c].tolist(), 0.8)
                expected[n][c] = [[round(value) for value in row] for row in after]
        assert steps(store).tolist() == expected


def test_targets_equal_a_simulation_cell_by_cell():
    store = heatmaps()
    geometry, maps = visits(1)[0]
    store.update(ALL_IMAGES, geometry, maps)
    content, views = steps(store).tolist(), crops(IMAGES, seed=9)
    target = store.read(ALL_IMAGES, views, (4, 3)).tolist()
    for n in range(IMAGES):
        for c in range(CLASSES):
            expected = reference.read(content[n][c], as_view(views, n), 4, 3)
            np.testing.assert_allclose(target[n][c], expected, atol=1e-6)


def test_cells_outside_the_window_are_untouched_whatever_their_value():
    """Every step from 0 to 255 lies outside the visited corner once, and must survive being read and written."""
    store = heatmaps(labels=LabelMatrix.from_dense(np.full((1, 1), -1, dtype=np.int8)), size=17)
    ladder = (torch.arange(17 * 17) % 256).to(torch.uint8).reshape(1, 17, 17, 1)
    store.load_state_dict({"values": ladder})
    no = np.array([False])
    corner = Geometry(np.array([[15 / 17, 0, 1, 1 / 17]], np.float32), no, no, ~no)
    store.update(torch.tensor([0]), corner, torch.ones(1, 1, 2, 2))
    changed = np.argwhere(steps(store, 1)[0, 0] != ladder[0, :, :, 0].numpy())
    assert changed.tolist() == [[0, 15], [0, 16]]


@pytest.mark.parametrize(("observed", "shown", "end"), [(1, 0.0, 2), (0, 1.0, 253)], ids=["falling", "rising"])
def test_rounding_stops_two_steps_before_the_end(observed, shown, end):
    store = heatmaps(labels=LabelMatrix.from_dense(np.array([[observed]], dtype=np.int8)))
    for _ in range(60):
        store.update(torch.tensor([0]), Geometry.whole(1), torch.full((1, 1, *GRID), shown))
    assert (steps(store, 1) == end).all()


def test_a_file_holds_what_memory_would(tmp_path):
    in_memory, on_disk = heatmaps(), heatmaps(tmp_path / "heatmaps.u8")
    for geometry, maps in visits(3):
        in_memory.update(ALL_IMAGES, geometry, maps)
        on_disk.update(ALL_IMAGES, geometry, maps)
    classes_last = steps(in_memory).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(np.fromfile(on_disk.disk.written(), np.uint8), classes_last.ravel())


def test_shards_hold_the_rows_of_the_whole():
    every = heatmaps()
    mine = torch.tensor([1, 4])
    part = Heatmaps(LABELS, Shard(mine.numpy()), momentum=0.8, size=SIZE, path=None).allocate()
    for geometry, maps in visits(2):
        every.update(ALL_IMAGES, geometry, maps)
        part.update(mine, geometry.take(mine.numpy()), maps[mine])
    views = crops(2, seed=5)
    assert torch.equal(part.read(mine, views, GRID), every.read(mine, views, GRID))


def test_a_batch_that_is_computed_in_pieces_equals_its_images_alone():
    """Three images of these make more cells than are computed with at a time."""
    labels, draws = single_positives(5, 300), torch.Generator().manual_seed(0)
    together, alone = heatmaps(labels=labels, size=20), heatmaps(labels=labels, size=20)
    maps, views = torch.rand(5, 300, 10, 10, generator=draws), crops(5)
    together.update(ALL_IMAGES, views, maps)
    for n in range(5):
        alone.update(ALL_IMAGES[n : n + 1], views.take(np.array([n])), maps[n : n + 1])
    shown = together.read(ALL_IMAGES, views, GRID)
    for n in range(5):
        assert torch.equal(alone.read(ALL_IMAGES[n : n + 1], views.take(np.array([n])), GRID)[0], shown[n])


def test_saved_heatmaps_come_back():
    store, again = heatmaps(), heatmaps()
    store.update(ALL_IMAGES, *visits(1)[0])
    again.load_state_dict(store.state_dict())
    np.testing.assert_array_equal(steps(again), steps(store))


def test_heatmaps_on_disk_are_not_part_of_what_is_saved(tmp_path):
    assert heatmaps(tmp_path / "heatmaps.u8").state_dict() == {}


def test_bytes_are_those_of_the_file(tmp_path):
    store = heatmaps(tmp_path / "heatmaps.u8")
    assert (tmp_path / "heatmaps.u8").stat().st_size == store.bytes


@pytest.mark.parametrize(("observed", "shown", "end"), [(1, 0.0, 0), (0, 1.0, 255)], ids=["falling", "rising"])
def test_rounding_at_random_reaches_both_ends(observed, shown, end):
    store = heatmaps(labels=LabelMatrix.from_dense(np.array([[observed]], dtype=np.int8)), rounding="stochastic")
    for epoch in range(80):
        store.update(torch.tensor([0]), Geometry.whole(1), torch.full((1, 1, *GRID), shown), epoch)
    assert (steps(store, 1) == end).all()


def test_rounding_at_random_is_right_in_the_mean():
    """From 255 towards 0.3 the exact average is 0.8 · 255 + 0.2 · 76.5 = 219.3: three cells in ten are rounded up."""
    labels = LabelMatrix.from_dense(np.ones((1, 30), dtype=np.int8))
    store = heatmaps(labels=labels, size=28, rounding="stochastic", seed=3)
    store.update(torch.tensor([0]), Geometry.whole(1), torch.full((1, 30, *GRID), 0.3), epoch=2)
    found = steps(store, 1)
    assert set(np.unique(found)) == {219, 220}
    assert found.mean() == pytest.approx(219.3, abs=0.01)


def rounded(seed: int, epoch: int, images: list[int]) -> np.ndarray:
    store = heatmaps(rounding="stochastic", seed=seed)
    index = torch.tensor(images)
    store.update(index, Geometry.whole(len(images)), torch.full((len(images), CLASSES, *GRID), 0.3), epoch)
    return steps(store)


def test_the_noise_depends_on_seed_image_and_epoch_alone():
    together, alone = rounded(1, 2, [3, 0, 4]), rounded(1, 2, [4])
    np.testing.assert_array_equal(together[4], alone[4])
    assert not np.array_equal(rounded(1, 3, [4])[4], alone[4])
    assert not np.array_equal(rounded(2, 2, [4])[4], alone[4])
    no_label_of_its_own = LABELS.dense()[3] == LABELS.dense()[4]
    assert not np.array_equal(together[3][no_label_of_its_own], together[4][no_label_of_its_own])


def test_rounding_at_random_leaves_cells_outside_the_window_alone():
    store = heatmaps(labels=LabelMatrix.from_dense(np.full((1, 1), -1, dtype=np.int8)), size=17, rounding="stochastic")
    ladder = (torch.arange(17 * 17) % 256).to(torch.uint8).reshape(1, 17, 17, 1)
    store.load_state_dict({"values": ladder})
    no = np.array([False])
    corner = Geometry(np.array([[15 / 17, 0, 1, 1 / 17]], np.float32), no, no, ~no)
    store.update(torch.tensor([0]), corner, torch.ones(1, 1, 2, 2))
    assert np.argwhere(steps(store, 1)[0, 0] != ladder[0, :, :, 0].numpy()).tolist() == [[0, 15], [0, 16]]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_few_classes_per_image_are_saved_and_move_with_it(tmp_path, on_disk):
    labels, all_images = single_positives(7, 6), torch.arange(7)
    scores = Scores(labels, Shard(np.arange(7)), momentum=0.8).allocate()
    scores.update(all_images, torch.rand(7, 6, generator=torch.Generator().manual_seed(0)))
    store = heatmaps(tmp_path / "one.u8" if on_disk else None, labels, count=3)
    assert not store.chosen
    store.choose(scores)
    maps = torch.rand(7, 3, *GRID, generator=torch.Generator().manual_seed(1))
    store.update(all_images, crops(7), maps)
    files = {"heatmaps": store.disk.written()} if on_disk else {}
    part = SavedPart(Shard(np.arange(7)), store.state_dict(), files)
    moved = Heatmaps(labels, Shard(np.array([5, 2])), momentum=0.8, size=SIZE, path=None, count=3).allocate()
    moved.reshard([part])
    mine = torch.tensor([5, 2])
    assert moved.chosen
    assert torch.equal(moved.kept(mine), store.kept(mine))
    assert torch.equal(moved.read(mine, crops(2), GRID), store.read(mine, crops(2), GRID))


def test_a_few_classes_state_their_bytes(tmp_path):
    store = heatmaps(tmp_path / "heatmaps.u8", count=2)
    lists = store.state_dict()["classes"].nbytes
    expected = (tmp_path / "heatmaps.u8").stat().st_size + lists
    assert store.bytes == expected


def test_batches_that_were_expected_are_read_ahead_two_before_their_turn(tmp_path, monkeypatch):
    """The second batch lost an image that could not be decoded, and the third one all of them."""
    store, asked = heatmaps(tmp_path / "heatmaps.u8", single_positives(12, CLASSES)), []
    monkeypatch.setattr(store.disk, "read_ahead", lambda rows: asked.append(rows.tolist()))
    store.expect([np.arange(start, start + 2) for start in range(0, 12, 2)])
    assert asked == [[0, 1], [2, 3]]
    for images in ([0, 1], [3], [6, 7]):
        store.read(torch.tensor(images), Geometry.whole(len(images)), GRID)
    assert asked == [[0, 1], [2, 3], [4, 5], [6, 7], [10, 11]]


VIEW_SIZE, VIEW_GRID = 14, (7, 5)
VIEWS = crops(12)
MAPS = torch.rand(12, 3, VIEW_SIZE, VIEW_SIZE, generator=torch.Generator().manual_seed(0))
SEEN = torch.rand(12, 3, *VIEW_GRID, generator=torch.Generator().manual_seed(1))


def resized(values: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return F.interpolate(values[None], size=size, mode="bilinear", align_corners=False)[0]


def classes_last(maps: torch.Tensor) -> torch.Tensor:
    return maps.permute(0, 2, 3, 1)


def mirrored(values: torch.Tensor, view: int) -> torch.Tensor:
    flips = [dim for dim, flip in ((-1, VIEWS.flip_x[view]), (-2, VIEWS.flip_y[view])) if flip]
    return values.flip(flips)


@pytest.mark.parametrize("view", range(12))
def test_cutting_slices_mirrors_and_resizes(view):
    left, top, right, bottom = VIEWS.windows(VIEW_SIZE)[view]
    expected = resized(mirrored(MAPS[view, :, top:bottom, left:right], view), VIEW_GRID)
    found = cut(classes_last(MAPS), VIEWS, VIEW_GRID)[view].permute(2, 0, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("view", range(12))
def test_pasting_mirrors_back_and_resizes_into_the_window(view):
    left, top, right, bottom = VIEWS.windows(VIEW_SIZE)[view]
    maps = paste(classes_last(SEEN), VIEWS, VIEW_SIZE)[0].permute(0, 3, 1, 2)
    expected = resized(mirrored(SEEN[view], view), (bottom - top, right - left))
    torch.testing.assert_close(maps[view, :, top:bottom, left:right], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("view", range(12))
def test_visible_cells_are_those_of_the_window(view):
    left, top, right, bottom = VIEWS.windows(VIEW_SIZE)[view]
    expected = torch.zeros(VIEW_SIZE, VIEW_SIZE, dtype=torch.bool)
    expected[top:bottom, left:right] = True
    _, visible = paste(classes_last(SEEN), VIEWS, VIEW_SIZE)
    assert torch.equal(visible[view, :, :, 0], expected)


def test_one_half_of_a_map_shown_at_its_own_resolution_is_copied():
    half = Geometry(np.array([[0.5, 0, 1, 1]], dtype=np.float32), np.array([True]), np.array([False]), np.array([True]))
    maps = torch.arange(16.0).reshape(1, 4, 4, 1)
    assert cut(maps, half, (4, 2))[0, :, :, 0].tolist() == [[3, 2], [7, 6], [11, 10], [15, 14]]


def test_buffers_that_were_used_before_leave_no_trace():
    scratch = ScratchBuffers()
    cut(9 * classes_last(MAPS), VIEWS, VIEW_GRID, scratch=scratch)
    paste(9 * classes_last(SEEN), VIEWS, VIEW_SIZE, scratch=scratch)
    few, views = slice(2, 5), VIEWS.take(np.arange(2, 5))
    assert torch.equal(
        cut(classes_last(MAPS[few]), views, VIEW_GRID, scratch=scratch), cut(classes_last(MAPS[few]), views, VIEW_GRID)
    )
    assert torch.equal(
        paste(classes_last(SEEN[few]), views, VIEW_SIZE, scratch=scratch)[0],
        paste(classes_last(SEEN[few]), views, VIEW_SIZE)[0],
    )
