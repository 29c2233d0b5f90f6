from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from data.cases import scenes
from tagfill.data import PixelSource
from tagfill.images import CROP, EVAL, decode, load_view, render

BATCHES = [np.array([3, 0, 11]), np.array([7, 8])]


def source(workers: int = 0, seed: int = 5, view=CROP) -> PixelSource:
    return PixelSource(scenes(), (32, 48), view, seed=seed, workers=workers)


def drawn(**options) -> list:
    return list(source(**options).train(BATCHES, epoch=2))


def same(one, other) -> bool:
    return (
        torch.equal(one.index, other.index)
        and torch.equal(one.labels, other.labels)
        and torch.equal(one.inputs, other.inputs)
        and all(
            np.array_equal(getattr(one.geometry, n), getattr(other.geometry, n)) for n in ("box", "flip_x", "flip_y")
        )
    )


def test_the_number_of_workers_changes_nothing():
    assert all(same(one, other) for one, other in zip(drawn(), drawn(workers=2), strict=True))


def test_a_batch_holds_the_images_asked_for_with_their_labels():
    for batch, index in zip(drawn(), BATCHES, strict=True):
        assert batch.index.tolist() == index.tolist()
        assert batch.labels.tolist() == scenes().labels("train").dense()[index].tolist()


def test_pixels_are_those_of_the_geometry():
    for batch in drawn():
        for at, image in enumerate(batch.index.tolist()):
            name = scenes().names(scenes().split("train")[[image]])[0]
            expected = render(decode(scenes().root, name), batch.geometry.take(np.array([at])), (32, 48))
            np.testing.assert_array_equal(batch.inputs[at].permute(1, 2, 0).numpy(), expected)


def test_a_crop_does_not_depend_on_its_batch():
    (alone,) = source().train([np.array([11])], epoch=2)
    assert torch.equal(alone.inputs[0], drawn()[0].inputs[2])


@pytest.mark.parametrize(("epoch", "seed"), [(3, 5), (2, 6)], ids=["epoch", "seed"])
def test_another_epoch_or_seed_crops_elsewhere(epoch, seed):
    (other,) = source(seed=seed).train(BATCHES[:1], epoch=epoch)
    assert not np.array_equal(other.geometry.box, drawn()[0].geometry.box)


def test_evaluation_shows_whole_images_of_the_split_asked_for():
    (batch,) = source().evaluate("val", np.array([2, 0]))
    assert batch.labels.tolist() == scenes().labels("val").dense()[[2, 0]].tolist()
    assert batch.geometry.box.tolist() == [[0, 0, 1, 1]] * 2
    name = scenes().names(scenes().split("val")[[2]])[0]
    expected = render(decode(scenes().root, name), batch.geometry.take(np.array([0])), (32, 48))
    np.testing.assert_array_equal(batch.inputs[0].permute(1, 2, 0).numpy(), expected)


def test_nothing_to_evaluate_gives_no_batch():
    assert list(source(view=EVAL).evaluate("val", np.array([], dtype=np.int64))) == []


def pairs(**options) -> list:
    return list(PixelSource(scenes(), (32, 48), CROP, seed=5, pairs=True, **options).train(BATCHES, epoch=2))


def test_a_pair_is_the_weak_view_and_the_same_crop_distorted():
    for batch, single in zip(pairs(), drawn(), strict=True):
        count = len(batch.index)
        assert batch.views == ("weak", "strong")
        assert batch.labels.tolist() == single.labels.tolist()
        assert torch.equal(batch.inputs[:count], single.inputs)
        assert not (batch.inputs[count:] == single.inputs).all()
        assert batch.geometry.box.tolist() == 2 * single.geometry.box.tolist()
        assert batch.geometry.flip_x.tolist() == 2 * single.geometry.flip_x.tolist()
        assert batch.geometry.exact.tolist() == [True] * count + [False] * count


def test_a_strong_view_is_that_of_looking_once():
    (batch, _), rows = pairs(), scenes().split("train")
    for at, image in enumerate(batch.index.tolist()):
        name = scenes().names(rows[[image]])[0]
        expected, _ = load_view(scenes().root, name, replace(CROP, strong=True), (32, 48), seed=5, epoch=2, index=image)
        np.testing.assert_array_equal(batch.inputs[len(batch.index) + at].permute(1, 2, 0).numpy(), expected)


def test_pairs_do_not_depend_on_the_number_of_workers():
    assert all(same(one, other) for one, other in zip(pairs(), pairs(workers=2), strict=True))


def test_a_bad_image_is_missing_from_both_views(tmp_path):
    shutil.copytree(scenes().root, tmp_path / "images")
    data, bad = scenes().replace(root=tmp_path / "images"), []
    (tmp_path / "images" / data.names(data.split("train"))[0]).write_bytes(b"not an image")
    source = PixelSource(data, (32, 48), CROP, seed=5, pairs=True, on_bad=bad.append)

    batches = list(source.train([np.array([3, 0, 11]), np.array([0])], epoch=2))

    assert [batch.index.tolist() for batch in batches] == [[3, 11], []]
    assert [len(batch.inputs) for batch in batches] == [4, 0]
    assert torch.equal(batches[0].inputs, pairs()[0].inputs[[0, 2, 3, 5]])
    assert len(bad) == 2
