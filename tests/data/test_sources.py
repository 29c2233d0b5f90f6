from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace

import fsspec
import numpy as np
import pytest
import torch

from data.cases import NAMES, VIEWS, read, scenes, tiny
from methods.cases import task_of
from tagfill.contract import Batch, Prediction
from tagfill.data import FeatureCache, FeatureSource, PixelSource, Sampler, extract
from tagfill.data.sources import chunks
from tagfill.dataset import Dataset
from tagfill.errors import ImageError, TagfillError
from tagfill.images import CROP, EVAL, decode, load_view, render
from tagfill.methods import create
from tagfill.models import Classifier, create_head


@pytest.mark.parametrize(("size", "lengths"), [(0, []), (3, [3]), (4, [4]), (9, [4, 4, 1])])
def test_chunks_contain_everything_in_order(size, lengths):
    parts = chunks(np.arange(size), 4)
    assert [len(part) for part in parts] == lengths
    assert [number for part in parts for number in part] == list(range(size))


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


def test_a_batch_contains_the_requested_images_with_their_labels():
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
def test_another_epoch_or_seed_draws_another_crop(epoch, seed):
    (other,) = source(seed=seed).train(BATCHES[:1], epoch=epoch)
    assert not np.array_equal(other.geometry.box, drawn()[0].geometry.box)


def test_evaluation_uses_whole_images_of_the_requested_split():
    (batch,) = source().evaluate("val", np.array([2, 0]))
    assert batch.labels.tolist() == scenes().labels("val").dense()[[2, 0]].tolist()
    assert batch.geometry.box.tolist() == [[0, 0, 1, 1]] * 2
    name = scenes().names(scenes().split("val")[[2]])[0]
    expected = render(decode(scenes().root, name), batch.geometry.take(np.array([0])), (32, 48))
    np.testing.assert_array_equal(batch.inputs[0].permute(1, 2, 0).numpy(), expected)


def test_nothing_to_evaluate_yields_no_batch():
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


def test_the_strong_view_of_a_pair_is_that_of_a_single_load():
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


FEATURE_BATCHES = Sampler(12, 4, seed=0).batches(1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> FeatureCache:
    return extract(scenes(), tiny(), tmp_path_factory.mktemp("cache"), views=VIEWS, dtype="float32")


def feature_source(cache: FeatureCache, *, maps: bool = True, seed: int = 0) -> FeatureSource:
    return FeatureSource(scenes(), cache, maps=maps, seed=seed)


def view_of(cache: FeatureCache, batch: Batch, at: int) -> str:
    """The name of the view that a batch shows of an image, found by its features."""
    row = scenes().split("train")[int(batch.index[at])]
    found = [
        name
        for name in NAMES
        if torch.equal(read(cache, [(name, row)], maps=batch.inputs.ndim == 4)[0][0], batch.inputs[at])
    ]
    assert len(found) == 1
    return found[0]


def views_drawn(cache: FeatureCache, epoch: int, **options) -> list[str]:
    batches = feature_source(cache, **options).train(FEATURE_BATCHES, epoch)
    return [view_of(cache, batch, at) for batch in batches for at in range(len(batch.index))]


def test_every_view_is_drawn_eventually(cache):
    assert {view for epoch in (1, 2, 3) for view in views_drawn(cache, epoch)} == set(NAMES)


def test_a_visit_draws_the_same_view_with_maps_and_without(cache):
    assert views_drawn(cache, 1, maps=True) == views_drawn(cache, 1, maps=False)


@pytest.mark.parametrize("change", [{"epoch": 2}, {"epoch": 1, "seed": 1}], ids=["epoch", "seed"])
def test_another_epoch_or_seed_draws_other_views(cache, change):
    assert views_drawn(cache, **change) != views_drawn(cache, 1)


def test_a_view_does_not_depend_on_its_batch(cache):
    (alone,) = feature_source(cache).train([FEATURE_BATCHES[1][2:3]], epoch=1)
    second = list(feature_source(cache).train(FEATURE_BATCHES, epoch=1))[1]
    assert torch.equal(alone.inputs[0], second.inputs[2])


def test_a_batch_contains_the_requested_images_with_their_labels_from_a_cache(cache):
    for batch, index in zip(feature_source(cache).train(FEATURE_BATCHES, epoch=1), FEATURE_BATCHES, strict=True):
        assert batch.index.tolist() == index.tolist()
        assert batch.labels.tolist() == scenes().labels("train").dense()[index].tolist()


def test_evaluation_uses_the_eval_view_of_the_requested_split(cache):
    (batch,) = feature_source(cache).evaluate("val", np.array([3, 1]))
    expected, _ = read(cache, [("eval", scenes().split("val")[at]) for at in (3, 1)], maps=True)
    assert torch.equal(batch.inputs, expected)
    assert batch.labels.tolist() == scenes().labels("val").dense()[[3, 1]].tolist()


def classifier(*, backbone: bool) -> Classifier:
    trunk = tiny()
    head = create_head("cam", trunk.channels, len(scenes().classes), seed=0)
    model = Classifier(trunk if backbone else None, head, "cam", scenes().classes)
    model.freeze(backbone=True)
    return model.train()


def pixels_of(batch: Batch) -> torch.Tensor:
    """The views of a batch of features, rendered from the images by the geometry that the cache recorded."""
    names = scenes().names(scenes().split("train")[batch.index.numpy()])
    views = [
        render(decode(scenes().root, name), batch.geometry.take(np.array([at])), (64, 64))
        for at, name in enumerate(names)
    ]
    return torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2)


def trained(cache: FeatureCache, name: str, *, pixels: bool) -> list[tuple[dict[str, float], torch.Tensor]]:
    """Losses and head gradients of two epochs, from images or from the cache."""
    labels = scenes().labels("train")
    task, method = (
        task_of(labels, classes=scenes().classes),
        create(name, {"scl": {"weight": 1.0}} if "scl" in name else {}),
    )
    method.setup(task)
    maps = "maps" in method.needs
    model = classifier(backbone=pixels)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
    results = []
    for epoch in (1, 2):
        method.begin_epoch(epoch)
        for batch in feature_source(cache, maps=maps).train(FEATURE_BATCHES, epoch):
            task.memory.begin_step()
            prediction = model(pixels_of(batch) if pixels else batch.inputs, maps=maps)
            terms = method.loss(batch, prediction)
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            results.append(({k: float(v.detach()) for k, v in terms.items()}, model.head.fc.weight.grad.clone()))
            optimizer.step()
            seen = None if prediction.maps is None else prediction.maps.detach()
            method.observe(batch, Prediction(prediction.logits.detach(), seen))
    return results


@pytest.mark.parametrize("name", ["an", "en+scl"])
def test_training_from_the_cache_equals_training_from_the_images(cache, name):
    for (one, one_gradient), (other, other_gradient) in zip(
        trained(cache, name, pixels=False), trained(cache, name, pixels=True), strict=True
    ):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
        torch.testing.assert_close(one_gradient, other_gradient, rtol=1e-2, atol=1e-4)


def test_the_geometry_of_a_crop_is_needed_to_find_its_features(cache):
    """The agreement above is not an accident of features that are alike in all views."""
    (batch,) = feature_source(cache).train(FEATURE_BATCHES[:1], epoch=1)
    shifted = Batch(batch.index, batch.labels, batch.inputs, batch.geometry.take(np.array([1, 2, 3, 0])))
    model = classifier(backbone=True)
    right, wrong = (model(pixels_of(one), maps=True).maps for one in (batch, shifted))
    expected = model(batch.inputs, maps=True).maps
    assert (right - expected).abs().max() < 1e-4 < (wrong - expected).abs().max()


@pytest.fixture(scope="module")
def paired(tmp_path_factory) -> FeatureCache:
    return extract(scenes(), tiny(), tmp_path_factory.mktemp("pairs"), views="eval,pairs:2", dtype="float32")


def test_pairs_come_view_major(paired):
    drawn = set()
    for epoch in (1, 2, 3):
        for batch in FeatureSource(scenes(), paired, maps=False, seed=0, pairs=True).train(FEATURE_BATCHES, epoch):
            assert batch.views == ("weak", "strong")
            count = len(batch.index)
            assert batch.geometry.exact.tolist() == [True] * count + [False] * count
            for at, row in enumerate(batch.index.tolist()):  # the training split is the head of the image table
                found = [
                    pair
                    for pair, names in enumerate(paired.pairs)
                    if torch.equal(read(paired, [(n, row) for n in names], maps=False)[0], batch.inputs[at::count])
                ]
                assert len(found) == 1
                drawn.add(found[0])
    assert drawn == {0, 1}


def test_strong_views_are_not_drawn_alone(paired):
    for batch in feature_source(paired).train(FEATURE_BATCHES, 1):
        assert batch.geometry.exact.all()


def test_a_cache_without_pairs_is_refused(cache):
    with pytest.raises(TagfillError, match=r"has no weak and strong views .* add them with 'tagfill features --views"):
        next(iter(FeatureSource(scenes(), cache, maps=False, seed=0, pairs=True).train(FEATURE_BATCHES, 1)))


def test_a_view_of_another_training_split_is_not_drawn(cache):
    """One cache serves datasets with other splits of the same images; `flip` and the crops cover twelve images only."""
    splits = ["train"] * 14 + ["val"] * 2 + ["test"] * 4
    other = scenes().with_splits(splits).replace(folder=None)
    (batch,) = FeatureSource(other, cache, maps=False, seed=0).train([np.arange(14)], 1)
    assert torch.equal(batch.inputs, read(cache, [("eval", row) for row in range(14)], maps=False)[0])


# Batches of pixels from a dataset whose images are behind a URL.


INDEX = [np.array([3, 0, 11])]


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Says nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    handler = functools.partial(Silent, directory=str(scenes().root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def memory() -> Iterator[str]:
    files = fsspec.filesystem("memory")
    for name in scenes().names():
        files.pipe(f"/scenes/{name}", (scenes().root / name).read_bytes())
    yield "memory://scenes"
    files.rm("/scenes", recursive=True)


@pytest.mark.parametrize("place", ["web", "memory"])
def test_a_saved_dataset_with_a_url_yields_the_batches_of_its_folder(place, request, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    url = request.getfixturevalue(place)
    scenes().replace(root=url).save(tmp_path / "data")

    remote = Dataset.open(tmp_path / "data")

    assert remote.root == url
    (here,) = PixelSource(scenes(), (32, 48), CROP, seed=5).train(INDEX, epoch=2)
    (there,) = PixelSource(remote, (32, 48), CROP, seed=5).train(INDEX, epoch=2)
    assert torch.equal(here.inputs, there.inputs)
    assert torch.equal(here.labels, there.labels)


def test_an_image_that_the_server_lacks_is_named(web, tmp_path, monkeypatch):
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    source = PixelSource(scenes().replace(root=f"{web}/elsewhere"), (32, 48), CROP, seed=5)

    with pytest.raises(ImageError, match=r"there is no such file below http://127\.0\.0\.1"):
        list(source.train(INDEX, epoch=0))
