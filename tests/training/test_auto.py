"""The method `auto`: what it chooses, and that its run is a run like any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tagfill
from tagfill.errors import TagfillError
from tagfill.methods import needs_negatives
from tagfill.models import Classifier
from tagfill.training import auto, build_recipe, cross_fitting, resume
from tagfill.training import run as run_module
from tagfill.training.evaluation import LoadedModel


def train(material, out, **settings):
    return tagfill.train(
        settings.pop("dataset", material.single),
        **{"method": "auto", "features": material.cache, "epochs": 2, "out": out, **material.settings, **settings},
    )


@pytest.fixture(scope="module")
def run(material, tmp_path_factory):
    return train(material, tmp_path_factory.mktemp("auto") / "run")


def chosen(material, dataset, **settings):
    return auto.choose(dataset, build_recipe({"dataset": "x", "method": "auto", **settings}, features=material.cache))


def without_evidence(material, folder):
    return tagfill.Dataset.open(material.single).replace(folder=None).save(folder / "without evidence")


def with_negatives(material, count):
    """The dataset after a review in which some labels turned out to be absent."""
    single = tagfill.Dataset.open(material.single)
    labels = tagfill.Dataset.open(material.full).labels("train").dense()
    absent = [(image, label) for image, label in np.argwhere(labels == 0)][:count]
    names = single.names(single.split("train"))
    return single.with_records(
        [{"image": names[image], "label": single.classes[label], "present": False} for image, label in absent]
    )


def test_tags_alone_are_learned_by_an_ensemble_with_a_boost(material, run):
    model = Classifier.load(run.model_folder)
    assert (model.head_name, model.head.members, model.head.boost, model.head.compete) == ("ensemble", 4, 5.0, 0.2)
    description = run.description()["auto"]
    assert description["members"] == ["wan", "lda", "lda-soft", "lda-cells"]
    trained = {folder.name for folder in run.members_folder.iterdir()}
    assert trained == {"wan", "em"}  # the others are computed, and em only gives the logits their scale
    assert "No label is known to be absent" in description["reason"]
    assert description["reason"] in (run.folder / "log.txt").read_text()


def test_the_reason_names_what_else_is_known(material):
    single = tagfill.Dataset.open(material.single)
    plain = chosen(material, single).reason
    first, *others = single.names(single.split("train"))[:4]
    point = {"image": first, "label": single.classes[0], "present": True, "kind": "point", "x": 0.5, "y": 0.5}
    rows = single.rows()
    bare = single.replace(annotations=rows.filter([name not in others for name in rows["image"].to_pylist()]))
    more = bare.with_records([point]).replace(hierarchy=((single.classes[0], single.classes[1]),))
    reason = chosen(material, more).reason
    for said in (
        "follow from the hierarchy",
        "have no label; lda-soft learns from these too",
        "1 points count as tags",
    ):
        assert said in reason
        assert said not in plain


@pytest.mark.parametrize("scale", [None, "ll-r"])
def test_the_ensemble_adds_what_its_members_predict(material, tmp_path, monkeypatch, scale):
    monkeypatch.setattr(auto, "COMPETE", 0.0)  # competing classes have a test of their own
    dataset = tagfill.Dataset.open(material.single)
    options = {"members": ["wan", "em"]} | ({} if scale is None else {"scale": scale})
    run = train(material, tmp_path / "run", epochs=1, options={"auto": options})

    def logits(folder, boost=None):
        model = LoadedModel.open(folder, dataset, features=material.cache, boost=boost)
        return {split: np.concatenate([p.logits for _, p in model.predict(split)]) for split in ("train", "test")}

    members = [logits(run.folder / "members" / name, boost=5.0) for name in ("wan", "em")]
    total = sum((m["test"] - m["train"].mean(0)) / m["train"].std(0) for m in members) / 2
    scales = members if scale is None else [logits(run.folder / "members" / scale, boost=5.0)]
    level, spread = (sum(f(m["train"], axis=0) for m in scales) / len(scales) for f in (np.mean, np.std))
    np.testing.assert_allclose(logits(run.folder)["test"], level + spread * total, rtol=1e-3, atol=1e-3)


def test_evaluation_takes_the_run(material, run):
    found = tagfill.evaluate(run, tagfill.Dataset.open(material.single), split="test", features=material.cache)
    assert 0 < found.mean < 1
    assert run.best["val_mAP"] > 0
    assert found.thresholds_from.startswith("saved with the model")
    assert found.calibration_from == "measured"


@pytest.mark.parametrize("stop_in", ["fit_discriminants", "member_recipe"])
def test_a_stopped_run_ends_like_an_uninterrupted_one(material, run, tmp_path, monkeypatch, stop_in):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(auto, stop_in, stop)
    with pytest.raises(KeyboardInterrupt):
        train(material, tmp_path / "run")
    monkeypatch.undo()
    resumed = resume(tmp_path / "run")
    name = "model.safetensors"
    assert (resumed.model_folder / name).read_bytes() == (run.model_folder / name).read_bytes()


def test_what_is_known_decides(material):
    full = tagfill.Dataset.open(material.full)
    some = tagfill.protocols.random_entries(full, proportion=0.5)
    assert chosen(material, full).members == ("bce", "lda-soft", "lda-cells")
    assert chosen(material, some).members == ("csl", "lda-soft", "lda-cells")
    reviewed = chosen(material, with_negatives(material, 5))
    assert reviewed.members == ("wan", "lda", "lda-soft", "lda-cells")
    assert "Few labels are known to be absent" in reviewed.reason
    none = tagfill.protocols.dropped_positives(full, keep=0.0)
    with pytest.raises(TagfillError, match="is known to be present; annotate some"):
        chosen(material, none)


def test_given_settings_are_kept_and_a_chosen_recipe_is_not_chosen_again(material):
    single, full = tagfill.Dataset.open(material.single), tagfill.Dataset.open(material.full)
    given = chosen(material, single, options={"auto": {"members": ["an", "em"]}}, head_options={"boost": 2.0})
    assert given.members == ("an", "em")
    assert given.recipe.head_options == {"boost": 2.0}
    assert auto.choose(full, given.recipe).members == ("an", "em")
    with pytest.raises(TagfillError, match="method"):
        chosen(material, single, options={"auto": {"members": ["em", "wann"]}})
    with pytest.raises(TagfillError, match="method 'auto'"):
        chosen(material, single, options={"auto": {"member": ["em"]}})
    with pytest.raises(TagfillError, match="needs a method that is trained"):
        chosen(material, single, options={"auto": {"members": ["lda"]}})


def test_models_that_cannot_be_combined_are_not(material):
    choice = chosen(material, tagfill.Dataset.open(material.single), head="linear")
    assert choice.members == ("wan",)
    assert "linear head cannot be combined" in choice.reason


def test_one_member_is_boosted_at_inference(material, tmp_path):
    run = train(material, tmp_path / "run", epochs=1, options={"auto": {"members": ["em"]}})
    head = Classifier.load(run.model_folder).head
    assert (type(head).__name__, head.boost, head.boost_train) == ("CamHead", 5.0, False)
    member = Classifier.load(run.folder / "members" / "em" / "best").head
    torch.testing.assert_close(head.fc.weight, member.fc.weight)


def test_methods_that_need_negatives_warn_on_positives_alone(material, tmp_path):
    run = train(material, tmp_path / "run", method="ignore", epochs=1)
    assert "'ignore' learns from labels that are known to be absent" in (run.folder / "log.txt").read_text()
    assert needs_negatives("patchml", {"patchml": {"image_unknown": "selective"}}) is None
    assert needs_negatives("patchml+patchcluster") == "patchml"


@pytest.mark.parametrize(("better", "taken"), [("ll-r", "ll-r"), ("wan", "wan"), (None, "wan")])
def test_two_methods_that_suit_the_data_are_compared_on_what_is_known(material, tmp_path, monkeypatch, better, taken):
    monkeypatch.setattr(auto, "_LEAST_COMPARED", 1)
    monkeypatch.setattr(run_module, "_fit_auto", lambda run, *arguments, **settings: run)  # choosing is enough here
    asked = []

    def curve(dataset, recipe, held_out, *settings):
        asked.append((recipe.method, len(held_out)))
        return [50.0, 91.0 if recipe.method == better else 90.0]

    monkeypatch.setattr(cross_fitting, "_curve", curve)
    run = train(material, tmp_path / "run", dataset=without_evidence(material, tmp_path))
    assert run.recipe.options["auto"]["members"] == [taken, "lda", "lda-soft", "lda-cells"]
    assert run.recipe.options["auto"]["scale"] == "em"
    assert f"{taken} is taken" in run.description()["auto"]["reason"]
    size = len(tagfill.Dataset.open(material.single).split("train"))
    assert [method for method, _ in asked] == ["wan"] * 3 + ["ll-r"] * 3
    assert sum(count for _, count in asked) == 2 * size
    assert chosen(material, tagfill.Dataset.open(material.single), options=run.recipe.options).rival is None


@pytest.mark.parametrize(("together", "joins"), [((90.4, 90.5, 90.6), True), ((90.4, 89.4, 90.3), False)])
def test_evidence_of_other_taggers_joins_if_it_helps(material, tmp_path, monkeypatch, together, joins):
    monkeypatch.setattr(auto, "_LEAST_COMPARED", 1)
    monkeypatch.setattr(run_module, "_fit_auto", lambda run, *arguments, **settings: run)
    monkeypatch.setattr(cross_fitting, "_curve", lambda *arguments: [90.0])
    monkeypatch.setattr(cross_fitting, "_scores_of_sum", lambda first, second: ((90.0, 90.0, 90.0), together))
    run = train(material, tmp_path / "run")
    members = ["wan", *(["evidence"] if joins else []), "lda", "lda-soft", "lda-cells"]
    assert run.recipe.options["auto"]["members"] == members
    reason = run.description()["auto"]["reason"]
    assert "wan with evidence 90." in reason
    assert ("wan and evidence are taken" in reason) == joins


def test_folds_have_the_evidence_of_their_dataset(material, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_LEAST_COMPARED", 1)
    run = train(material, tmp_path / "run", epochs=1)
    assert " with evidence " in run.description()["auto"]["reason"]
    taken = run.recipe.options["auto"]["members"]
    assert Classifier.load(run.model_folder).head.members == len(taken)


def test_an_interrupted_comparison_goes_on(material, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "_LEAST_COMPARED", 1)
    begun = cross_fitting.start

    def stop_at_the_rival(dataset, recipe, **settings):
        if recipe.method == "ll-r":
            raise KeyboardInterrupt
        return begun(dataset, recipe, **settings)

    monkeypatch.setattr(cross_fitting, "start", stop_at_the_rival)
    data = without_evidence(material, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(material, tmp_path / "run", dataset=data, epochs=1)
    started = []
    monkeypatch.setattr(cross_fitting, "start", lambda *a, **k: started.append(a[1].method) or begun(*a, **k))
    run = train(material, tmp_path / "run", dataset=data, epochs=1)
    assert started == ["ll-r"] * 3
    assert "By cross-fitting (AUC of known tags in percent: wan " in run.description()["auto"]["reason"]
    assert not (run.folder / "candidates").exists()
    assert run.finished
