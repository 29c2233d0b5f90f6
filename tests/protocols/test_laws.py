"""Laws that hold for every protocol."""

from __future__ import annotations

import pytest

from protocols.cases import SIZES, kept, made, observed, shuffled, truth
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.protocols import PROTOCOLS

OPTIONS = {
    "single-positive": {},
    "k-positives": {"num_pos": 2, "num_neg": 1},
    "budget": {"percent": 30, "kind": "SP"},
    "random-entries": {"proportion": 0.4},
    "random-per-image": {"proportion": 0.4},
    "fixed-per-class": {"per_class": 7},
    "dropped-positives": {"keep": 0.5},
    "positive-fraction": {"fraction": 0.3},
    "hierarchy": {},
}
PUBLISHED = {"single-positive", "k-positives"}  # drawn in the order of images, as published

DATA = made(hierarchical=True)
each = pytest.mark.parametrize("name", PROTOCOLS)
each_hashed = pytest.mark.parametrize("name", [name for name in PROTOCOLS if name not in PUBLISHED])


def simulate(name: str, data: Dataset = DATA, seed: int = 3) -> Dataset:
    return PROTOCOLS[name](data, seed=seed, **OPTIONS[name])


@each
def test_kept_labels_are_true(name):
    labels = truth(DATA)

    for image, found in kept(simulate(name)).items():
        assert found.items() <= labels[image].items()


@each
def test_some_labels_are_kept_and_some_dropped(name):
    counts = simulate(name).protocol["kept"]

    assert counts["positives"] > 0
    assert counts["unknown"] > 0


@each
def test_validation_and_test_images_keep_every_row(name):
    part = simulate(name)

    for split in ("val", "test"):
        assert truth(part, split) == truth(DATA, split)


@each
def test_validation_rows_that_the_draw_would_keep_are_flagged(name):
    part = simulate(name)
    swapped = {"train": "val", "val": "train", "test": "test"}
    other = simulate(name, DATA.with_splits([swapped[split] for split in DATA.split_of_images()]))

    assert observed(part) == {(image, label) for image, labels in kept(other).items() for label in labels}


@each
def test_same_seed_same_labels(name):
    assert kept(simulate(name)) == kept(simulate(name))


@each
def test_another_seed_keeps_other_labels(name):
    assert kept(simulate(name, seed=3)) != kept(simulate(name, seed=4))


@each_hashed
def test_order_of_images_rows_and_classes_does_not_matter(name):
    part, other = simulate(name), simulate(name, shuffled(DATA))

    assert kept(part) == kept(other)
    assert observed(part) == observed(other)
    assert part.protocol["hash"] == other.protocol["hash"]


@pytest.mark.parametrize("name", ["random-entries", "random-per-image", "dropped-positives", "hierarchy"])
def test_labels_of_an_image_do_not_depend_on_other_images(name):
    fewer = made(sizes={"train": 20}, hierarchical=True)

    found = kept(simulate(name, fewer))

    everything = kept(simulate(name))
    assert found == {image: everything[image] for image in found}


@each
def test_the_protocol_is_recorded(name):
    part = simulate(name)

    record = part.protocol
    assert record["name"] == name
    assert record["seed"] == 3
    assert record["parameters"].items() >= OPTIONS[name].items()
    assert record["source"] == "made"
    assert record["images"] == SIZES
    assert len(record["hash"]) == 64


@each
def test_counts_are_those_of_the_rows(name):
    part = simulate(name)

    values = [value for labels in kept(part).values() for value in labels.values()]
    counts = part.protocol["kept"]
    assert counts["positives"] == sum(values)
    assert counts["negatives"] == len(values) - sum(values)
    assert counts["unknown"] == SIZES["train"] * len(part.classes) - len(values)
    assert counts["images"] == sum(bool(labels) for labels in kept(part).values())


@each
def test_a_saved_result_is_the_same_and_knows_its_truth(name, tmp_path):
    data = DATA.save(tmp_path / "truth")

    part = simulate(name, data)
    opened = part.save(tmp_path / "part")

    assert opened.truth == tmp_path / "truth"
    assert opened.protocol == part.protocol
    assert kept(opened) == kept(part)
    assert opened.identities == part.identities


@each
def test_negative_seed_is_refused(name):
    with pytest.raises(TagfillError, match="The seed is -1; give 0 or more"):
        simulate(name, seed=-1)


@pytest.mark.parametrize("name", ["single-positive", "k-positives", "budget", "random-per-image", "hierarchy"])
def test_incomplete_truth_is_refused_by_protocols_that_require_it(name):
    rows = DATA.rows()
    incomplete = DATA.replace(annotations=rows.slice(40), hierarchy=(("cat", "animal"),))

    with pytest.raises(TagfillError, match=rf"The {name} protocol draws from complete labels, but in split train of"):
        simulate(name, incomplete)


@pytest.mark.parametrize("name", ["random-entries", "fixed-per-class", "dropped-positives", "positive-fraction"])
def test_unknown_labels_of_the_truth_stay_unknown(name):
    incomplete = DATA.replace(annotations=DATA.rows().slice(40), hierarchy=())
    labels = truth(incomplete)

    for image, found in kept(simulate(name, incomplete)).items():
        assert found.items() <= labels[image].items()
