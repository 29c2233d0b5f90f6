"""Linear discriminants: their formula, what missing tags do to them, and the targets of the second round."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tagfill
from reference import discriminant as reference
from tagfill.models import Classifier
from tagfill.probabilities import calibrate
from tagfill.rng import generator
from tagfill.training import discriminant as module
from tagfill.training.auto import _source
from tagfill.training.discriminant import Moments, discriminant, fit_discriminants, soft_targets, weighted_means
from tagfill.training.evaluation import LoadedModel


def test_the_weights_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(50, 4)).astype(np.float32), (rng.random((50, 2)) < 0.4).astype(np.float32)
    means, counts = weighted_means(torch.from_numpy(x), lambda rows: labels[rows])
    moments = Moments.of(torch.from_numpy(x))
    weight, bias = discriminant(moments, means - moments.mean, 0.5)
    np.testing.assert_array_equal(counts, labels.sum(0))
    covariance = np.cov(x.T, bias=True)
    shrunk = covariance + 0.5 * np.trace(covariance) / 4 * np.eye(4)
    for c in range(2):
        direction = np.linalg.inv(shrunk) @ (x[labels[:, c] == 1].mean(0) - x.mean(0))
        logits = x @ direction
        expected = (logits - logits.mean()) / logits.std() - 2
        np.testing.assert_allclose(x @ weight[c].numpy() + bias[c].item(), expected, atol=1e-4)


def test_a_class_without_tags_and_constant_features_give_finite_heads():
    for features in (torch.zeros(6, 3), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))):
        weight, bias = discriminant(Moments.of(features), torch.zeros(2, 3, dtype=torch.float64), 5.0)
        assert torch.isfinite(weight).all()
        torch.testing.assert_close(bias, torch.full((2,), -2.0))


def test_the_share_of_given_tags_corrects_the_targets():
    rng = np.random.default_rng(1)
    logits = np.where(rng.random((20_000, 1)) < 0.3, 6.0, -6.0)  # the model is sure and right
    labels = np.where((logits > 0) & (rng.random(logits.shape) < 0.4), 1, -1)
    targets = soft_targets(logits, labels, tags_only=True)(slice(None))
    unknown = labels == -1
    assert targets[~unknown].min() == 1
    assert targets[unknown & (logits > 0)].mean() == pytest.approx(1.0, abs=0.05)  # a plain score would be 0.4
    assert targets[unknown & (logits < 0)].mean() < 0.01
    labels[:200] = np.where(logits[:200] > 0, labels[:200], 0)
    assert (soft_targets(logits, labels, tags_only=True)(slice(0, 200))[labels[:200] == 0] == 0).all()


@pytest.fixture(scope="module")
def backbone(material, tmp_path_factory):
    run = tagfill.train(
        material.single,
        method="an",
        features=material.cache,
        epochs=1,
        out=tmp_path_factory.mktemp("an") / "run",
        **material.settings,
    )
    return run.recipe, Classifier.load(run.model_folder)


def fit(material, backbone, dataset, names=("lda", "lda-soft"), boost=5.0):
    recipe, model = backbone
    return fit_discriminants(names, model, dataset, lambda made: _source(made, dataset, recipe), boost=boost, seed=0)


@pytest.mark.parametrize("known", ["tags", "present and absent"])
def test_both_rounds_equal_the_reference(material, partial, backbone, known):
    dataset, tags_only = tagfill.Dataset.open(material.single if known == "tags" else partial), known == "tags"
    recipe, model = backbone
    loaded = LoadedModel(model, dataset, _source(model, dataset, recipe))
    positions, features = module._pooled_features(loaded, seed=0)
    x, labels = features.double().numpy(), dataset.labels("train").rows(positions)
    logits, order = np.zeros(labels.shape), generator(0, "discriminant folds").permutation(len(labels))
    for fold in range(3):
        held_out = np.isin(np.arange(len(x)), order[fold::3])
        heads = reference.first_round(x[~held_out], labels[~held_out], tags_only=tags_only)
        logits[held_out] = np.stack([x[held_out] @ weight + bias for weight, bias in heads], axis=1)
    shown = np.where(labels == 1, 1, 0) if tags_only else labels
    soft = reference.targets(calibrate(logits, shown)(logits), labels, tags_only=tags_only)

    expected = [reference.first_round(x, labels, tags_only=tags_only), reference.second_round(x, soft, labels)]
    for computed, heads in zip(fit(material, backbone, dataset, boost=1.0), expected, strict=True):
        found = x @ computed.head.fc.weight.detach().double().numpy().reshape(len(heads), -1).T
        found += computed.head.fc.bias.detach().numpy()
        np.testing.assert_allclose(found, np.stack([x @ w + b for w, b in heads], axis=1), atol=2e-3)


def test_cells_that_show_a_tag_teach_a_discriminant_of_their_own(material, backbone, monkeypatch):
    monkeypatch.setattr(module, "_MOST_CELLS", 10**9)  # all cells
    dataset, (recipe, model) = tagfill.Dataset.open(material.single), backbone
    loaded = LoadedModel(model, dataset, _source(model.convert_head("cam", boost=2.0), dataset, recipe))
    maps = torch.cat([prediction.features for _, prediction in loaded.predict("train")]).double().numpy()
    labels, width = dataset.labels("train").dense(), len(dataset.classes)
    first = reference.first_round(maps.mean((2, 3)), labels, tags_only=True)
    cells = maps.transpose(0, 2, 3, 1).reshape(-1, maps.shape[1])
    expected = reference.cells_round(maps, labels, first, cells)
    (computed,) = fit(material, backbone, dataset, names=("lda-cells",), boost=1.0)
    found = cells @ computed.head.fc.weight.detach().double().numpy().reshape(width, -1).T
    found += computed.head.fc.bias.detach().numpy()
    np.testing.assert_allclose(found, np.stack([cells @ w + b for w, b in expected], axis=1), atol=5e-3)


def test_discriminants_rank_better_than_chance_and_use_the_second_round(material, backbone):
    recipe, _ = backbone
    dataset = tagfill.Dataset.open(material.full)
    tags = tagfill.protocols.dropped_positives(dataset, keep=0.5, seed=0)
    scores = {}
    for name, model in zip(("lda", "lda-soft"), fit(material, backbone, tags), strict=True):
        loaded = LoadedModel(model, dataset, _source(model, dataset, recipe))
        logits = np.concatenate([prediction.logits for _, prediction in loaded.predict("train")])
        scores[name] = np.nanmean(tagfill.metrics.average_precision(logits, dataset.labels("train").dense()))
    chance = (dataset.labels("train").dense() == 1).mean()
    assert scores["lda"] > chance + 0.05
    assert scores["lda-soft"] > chance + 0.05
    assert scores["lda"] != scores["lda-soft"]


def test_images_without_a_label_take_part_in_the_second_round_only(material, backbone):
    single = tagfill.Dataset.open(material.single)
    part = single.with_splits(np.where(np.arange(len(single)) < 20, "other", single.split_of_images()))
    rows, first = single.rows(), single.names(np.arange(20))
    kept = rows.filter(~np.isin(rows["image"].to_numpy(zero_copy_only=False), first))
    unlabeled = single.replace(annotations=kept, folder=None)
    for dataset in (part, unlabeled):
        assert len(dataset.labels("train").unannotated()) == (0 if dataset is part else 20)
    (few, few_soft), (more, more_soft) = fit(material, backbone, part), fit(material, backbone, unlabeled)
    torch.testing.assert_close(few.head.fc.weight, more.head.fc.weight, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(few_soft.head.fc.weight, more_soft.head.fc.weight, rtol=1e-2)


def test_many_images_are_sampled(material, backbone, monkeypatch):
    monkeypatch.setattr(module, "_MOST_IMAGES", 60)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 16)
    small = fit(material, backbone, tagfill.Dataset.open(material.single))
    again = fit(material, backbone, tagfill.Dataset.open(material.single))
    assert torch.equal(small[1].head.fc.weight, again[1].head.fc.weight)
    assert torch.isfinite(small[1].head.fc.weight).all()
