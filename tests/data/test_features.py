from __future__ import annotations

import numpy as np
import pytest
import torch

from data.cases import NAMES, VIEWS, read, scenes, tiny
from methods.cases import task_of
from tagfill.contract import Batch, Prediction
from tagfill.data import FeatureCache, FeatureSource, Sampler, extract
from tagfill.errors import TagfillError
from tagfill.images import decode, render
from tagfill.methods import create
from tagfill.models import Classifier, create_head

BATCHES = Sampler(12, 4, seed=0).batches(1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> FeatureCache:
    return extract(scenes(), tiny(), tmp_path_factory.mktemp("cache"), views=VIEWS, dtype="float32")


def source(cache: FeatureCache, *, maps: bool = True, seed: int = 0) -> FeatureSource:
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
    batches = source(cache, **options).train(BATCHES, epoch)
    return [view_of(cache, batch, at) for batch in batches for at in range(len(batch.index))]


def test_every_view_is_drawn_sooner_or_later(cache):
    assert {view for epoch in (1, 2, 3) for view in views_drawn(cache, epoch)} == set(NAMES)


def test_a_visit_draws_the_same_view_with_maps_and_without(cache):
    assert views_drawn(cache, 1, maps=True) == views_drawn(cache, 1, maps=False)


@pytest.mark.parametrize("change", [{"epoch": 2}, {"epoch": 1, "seed": 1}], ids=["epoch", "seed"])
def test_another_epoch_or_seed_draws_other_views(cache, change):
    assert views_drawn(cache, **change) != views_drawn(cache, 1)


def test_a_view_does_not_depend_on_its_batch(cache):
    (alone,) = source(cache).train([BATCHES[1][2:3]], epoch=1)
    second = list(source(cache).train(BATCHES, epoch=1))[1]
    assert torch.equal(alone.inputs[0], second.inputs[2])


def test_a_batch_holds_the_images_asked_for_with_their_labels(cache):
    for batch, index in zip(source(cache).train(BATCHES, epoch=1), BATCHES, strict=True):
        assert batch.index.tolist() == index.tolist()
        assert batch.labels.tolist() == scenes().labels("train").dense()[index].tolist()


def test_evaluation_shows_the_plain_view_of_the_split_asked_for(cache):
    (batch,) = source(cache).evaluate("val", np.array([3, 1]))
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
        for batch in source(cache, maps=maps).train(BATCHES, epoch):
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
    (batch,) = source(cache).train(BATCHES[:1], epoch=1)
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
        for batch in FeatureSource(scenes(), paired, maps=False, seed=0, pairs=True).train(BATCHES, epoch):
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
    for batch in source(paired).train(BATCHES, 1):
        assert batch.geometry.exact.all()


def test_pairs_are_refused_where_there_are_none(cache):
    with pytest.raises(TagfillError, match=r"has no weak and strong views .* add them with 'tagfill features --views"):
        next(iter(FeatureSource(scenes(), cache, maps=False, seed=0, pairs=True).train(BATCHES, 1)))


def test_a_view_of_another_training_split_is_not_drawn(cache):
    """One cache serves datasets that divide the same images anew; `flip` and the crops cover twelve images only."""
    splits = ["train"] * 14 + ["val"] * 2 + ["test"] * 4
    other = scenes().with_splits(splits).replace(folder=None)
    (batch,) = FeatureSource(other, cache, maps=False, seed=0).train([np.arange(14)], 1)
    assert torch.equal(batch.inputs, read(cache, [("eval", row) for row in range(14)], maps=False)[0])
