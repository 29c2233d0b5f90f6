from __future__ import annotations

from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from memory.cases import modest
from methods.cases import batch_of, maps_of, task_of, visit
from reference.soft_exposure import taken
from reference.soft_exposure import temperatures as reference
from tagfill.contract import Prediction
from tagfill.errors import TagfillError
from tagfill.labels import LabelMatrix
from tagfill.losses import soft_exposure
from tagfill.memory import Memory
from tagfill.methods import create
from tagfill.methods import soft_exposure as evidence_soft_exposure
from tagfill.methods.soft_exposure import TemperatureRule, distances_to_images, distances_to_labels

IMAGES, CLASSES = 14, 6
FAMILY = ("se", "se-l", "se-i")
DEFAULTS = {
    "k": 10,
    "beta": 5.0,
    "gamma": 0.0,
    "temperature": "paper",
    "normalize": "joint",
    "reduce": "min",
    "prototype": "median",
    "distance": "cosine",
}


def case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features that are not negative and labels of every kind; images 0 and 1 and class 0 have no positive."""
    rng = np.random.default_rng(seed)
    labels = rng.choice([-1, -1, -1, 0, 1], (IMAGES, CLASSES)).astype(np.int8)
    labels[0] = -1
    labels[1] = np.minimum(labels[1], 0)
    labels[:, 0] = np.minimum(labels[:, 0], 0)
    return rng.random((IMAGES, 5)).astype(np.float32) ** 4, labels


def started(name: str, features: np.ndarray, labels: np.ndarray, **options):
    task = task_of(LabelMatrix.from_dense(labels), frozen_features=lambda: features)
    method = create(name, {name: options})
    method.setup(task)
    method.begin_epoch(1)
    return task, method


def family_of(name: str, options: dict) -> dict:
    """All settings of a method, for the reference."""
    uncovered = "negative" if name == "se" else "ignore"
    return {"by_labels": name != "se-i", "by_images": name != "se-l", "uncovered": uncovered, **DEFAULTS, **options}


def temperatures(method, labels: np.ndarray, index: list[int]) -> np.ndarray:
    return method.temperatures(torch.tensor(index), torch.from_numpy(labels[index])).numpy()


@pytest.mark.parametrize("name", FAMILY)
@modest
@given(
    seed=st.integers(0, 10**6),
    options=st.fixed_dictionaries(
        {},
        optional={
            "k": st.integers(1, 20),
            "beta": st.sampled_from([1.0, 5.0]),
            "gamma": st.sampled_from([0.0, 0.1, 0.9]),
            "temperature": st.sampled_from(["paper", "inverse"]),
            "normalize": st.sampled_from(["joint", "separate"]),
            "reduce": st.sampled_from(["min", "median5"]),
            "prototype": st.sampled_from(["median", "mean"]),
            "distance": st.sampled_from(["cosine", "euclidean"]),
            "uncovered": st.sampled_from(["ignore", "negative"]),
        },
    ),
)
def test_temperatures_equal_the_formulas(name, seed, options):
    options = {o: v for o, v in options.items() if not (name == "se-l" and o == "k")}
    options = {o: v for o, v in options.items() if not (name == "se-i" and o == "prototype")}
    features, labels = case(seed)
    _, method = started(name, features, labels, **options)
    found = temperatures(method, labels, list(range(IMAGES)))
    for n in range(IMAGES):
        expected = reference(features.tolist(), labels.tolist(), n, **family_of(name, options))
        np.testing.assert_allclose(found[n], expected, rtol=2e-3)


@pytest.mark.parametrize("name", FAMILY)
def test_the_loss_is_that_of_its_temperatures(name):
    features, labels = case(3)
    task, method = started(name, features, labels, positive_weight=2.0)
    index, prediction = [4, 0, 9], maps_of([4, 0, 9], CLASSES)
    terms = visit(method, task, index, prediction)
    temperature = torch.from_numpy(temperatures(method, labels, index))
    expected = soft_exposure(prediction.logits, torch.from_numpy(labels[index]), temperature, positive_weight=2.0)
    assert terms == {name: expected}


def test_se_has_a_temperature_for_every_unknown_label_and_for_no_other():
    features, labels = case(5)
    _, method = started("se", features, labels)
    found = temperatures(method, labels, list(range(IMAGES)))
    np.testing.assert_array_equal(found != 0, labels == -1)


def test_labels_alone_ignore_an_image_without_positives_or_without_negatives():
    features, labels = case(5)
    labels[2] = np.abs(labels[2])  # some positives, and nothing known to be absent
    labels[2, 1:3] = 1, -1
    labels[2][labels[2] == 0] = -1
    _, method = started("se-l", features, labels)
    found = temperatures(method, labels, list(range(IMAGES)))
    silent = ~(labels == 1).any(1) | ~(labels == 0).any(1)
    assert silent[:3].all()
    assert not silent.all()
    assert not found[silent].any()
    assert found[~silent][labels[~silent] == -1].all()


def test_images_alone_ignore_a_label_that_no_neighbor_knows():
    features = np.eye(4, 2, dtype=np.float32) + 1
    labels = np.array([[-1, -1, -1], [1, -1, 0], [-1, -1, -1], [-1, 1, -1]], dtype=np.int8)
    _, method = started("se-i", features, labels, k=1)
    neighbor = int(nearest_neighbor(method, 0))
    found = temperatures(method, labels, [0])[0]
    np.testing.assert_array_equal(found != 0, labels[neighbor] != -1)


def nearest_neighbor(method, image: int) -> int:
    return method._by_images._neighbors.read(torch.tensor([image]))[0][0, 0]


def test_the_maximum_is_over_labels_that_are_not_ignored():
    """The only neighbor is at a distance of 0.2 and shows the first class; d⁻ = 1 is missing evidence."""
    features = np.array([[1.0, 0.0], [0.8, 0.6]], np.float32)
    labels = np.array([[-1, -1], [1, -1]], dtype=np.int8)
    _, method = started("se-i", features, labels, k=1)
    assert temperatures(method, labels, [0])[0].tolist() == pytest.approx([np.exp(5 * 0.8), 0], rel=1e-4)


@pytest.mark.parametrize("name", FAMILY)
def test_order_of_classes_and_images_does_not_matter(name):
    features, labels = case(11)
    rng = np.random.default_rng(0)
    images, classes = rng.permutation(IMAGES), rng.permutation(CLASSES)
    _, one = started(name, features, labels)
    _, other = started(name, features[images], labels[images][:, classes])
    before = temperatures(one, labels, list(range(IMAGES)))
    after = temperatures(other, labels[images][:, classes], list(range(IMAGES)))
    np.testing.assert_allclose(after, before[images][:, classes], rtol=1e-3)


@pytest.mark.parametrize("name", FAMILY)
def test_the_scale_of_features_does_not_matter(name):
    features, labels = case(12)
    _, one = started(name, features, labels)
    _, other = started(name, features * np.linspace(1, 9, IMAGES, dtype=np.float32)[:, None], labels)
    every = list(range(IMAGES))
    np.testing.assert_allclose(temperatures(one, labels, every), temperatures(other, labels, every), rtol=1e-3)


@pytest.mark.parametrize("name", FAMILY)
def test_what_a_checkpoint_brings_is_not_computed_again(name):
    features, labels = case(2)
    task, method = started(name, features, labels)

    def refuse() -> np.ndarray:
        raise AssertionError("features were asked for")

    memory = Memory(task.labels, np.arange(IMAGES), seed=0, saved=task.memory.state_dict())
    resumed = create(name)
    resumed.setup(task_of(task.labels, memory=memory, frozen_features=refuse))
    every = list(range(IMAGES))
    np.testing.assert_array_equal(temperatures(resumed, labels, every), temperatures(method, labels, every))


def test_features_are_asked_for_once():
    features, labels = case(2)
    asked = []
    task = task_of(LabelMatrix.from_dense(labels), frozen_features=lambda: asked.append(1) or features)
    create("se").setup(task)
    assert asked == [1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_knows_its_images_as_if_it_were_alone(rank):
    features, labels = case(8)
    _, alone = started("se", features, labels)
    mine = np.random.default_rng(4).permutation(IMAGES)[rank::2]
    matrix = LabelMatrix.from_dense(labels)
    shared = create("se")
    memory = Memory(matrix, mine, seed=0)
    shared.setup(task_of(matrix, memory=memory, shard=mine, frozen_features=lambda: features))
    np.testing.assert_array_equal(
        temperatures(shared, labels, mine.tolist()), temperatures(alone, labels, mine.tolist())
    )


def test_memory_grows_with_images_and_classes_and_not_with_their_product():
    features, labels = case(1)
    task, _ = started("se", features, labels, k=3)
    assert task.memory.sizes() == {"class_distances": 4 * CLASSES**2, "neighbours": 8 * IMAGES * 3}


def test_decisions_are_raised_and_ignored_labels():
    features, labels = case(6)
    task, method = started("se-i", features, labels, k=2)
    assert method.decisions() is None
    index = [7, 0, 3]
    visit(method, task, index, maps_of(index, CLASSES))
    found = method.decisions()
    temperature, unknown = temperatures(method, labels, index), labels[index] == -1
    raised = {(index[r], c) for r, c in np.argwhere(temperature > 0)}
    silent = {(index[r], c) for r, c in np.argwhere((temperature == 0) & unknown)}
    entries = list(
        zip(found.image.tolist(), found.label.tolist(), found.kind.tolist(), found.value.tolist(), strict=True)
    )
    assert {entry[:2] for entry in entries if entry[2:] == ("pseudo-labelled", 1)} == raised
    assert {entry[:2] for entry in entries if entry[2:] == ("ignored", -1)} == silent
    assert len(entries) == len(raised) + len(silent) > 0


def test_one_constant_temperature_is_a_soft_negative():
    method = create("ls", {"ls": {"temperature": 2.0}})
    method.setup(task_of())
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    batch = batch_of([0, 1, 2, 3, 4, 5])
    expected = soft_exposure(logits, batch.labels, torch.full((6, 3), -2.0))
    assert method.loss(batch, Prediction(logits))["ls"] == expected


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("se", {"temperature": "warm"}, "temperature='warm' of method 'se': Input should be 'paper' or 'inverse'"),
        ("se-l", {"prototype": "mode"}, "prototype='mode' of method 'se-l': Input should be 'median' or 'mean'"),
        ("se-i", {"k": 0}, "'se-i' needs at least one neighbor; k is 0"),
        ("se", {"gamma": 1.0}, "gamma from 0 to 0.999, above which a temperature can be zero; they are 5.0 and 1.0"),
        ("ls", {"temperature": 0.0}, "'ls' needs a temperature of 0.001 or more; it is 0.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(TagfillError, match=message):
        create(name, {name: options})


each_reduction = pytest.mark.parametrize(("nearest", "reduce"), [(1, "min"), (5, "median5")])
apart = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])


@each_reduction
@modest
@given(
    between=arrays(np.float32, (8, 8), elements=apart), known=arrays(np.bool_, (3, 8)), step=st.sampled_from([1, 99])
)
def test_distances_to_known_labels_equal_a_loop(nearest, reduce, between, known, step):
    between = np.minimum(between, between.T)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence_soft_exposure, "_ENTRIES", step)
        found = distances_to_labels(between, known, nearest)
    for n in range(3):
        for c in range(8):
            expected = taken([float(between[c, o]) for o in range(8) if known[n, o]], reduce)
            assert found[n, c] == (np.inf if expected is None else expected)


@each_reduction
@modest
@given(
    labels=arrays(np.int8, (9, 3), elements=st.sampled_from([-1, 0, 1])),
    index=arrays(np.int64, (4, 7), elements=st.integers(0, 8)),
    distance=arrays(np.float32, (4, 7), elements=apart),
    state=st.sampled_from([0, 1]),
)
def test_distances_to_alike_images_equal_a_loop(nearest, reduce, labels, index, distance, state):
    found = distances_to_images(index, distance, LabelMatrix.from_dense(labels), state, nearest)
    for n in range(4):
        for c in range(3):
            with_label = [float(d) for m, d in zip(index[n], distance[n], strict=True) if labels[m, c] == state]
            expected = taken(with_label, reduce)
            assert found[n, c] == (np.inf if expected is None else expected)


def test_cannot_tell_is_no_evidence():
    undecided = LabelMatrix.from_entries(np.array([1]), np.array([0]), np.array([-1]), (2, 1))
    for state in (0, 1):
        assert np.isinf(distances_to_images(np.array([[1]]), np.array([[0.1]], np.float32), undecided, state)).all()


def one_row(present: list[float], absent: list[float], **options) -> list[float]:
    asked = np.ones((1, len(present)), dtype=bool)
    rows = np.array([present], np.float32), np.array([absent], np.float32)
    return TemperatureRule(**options).temperatures(*rows, asked)[0].tolist()


@pytest.mark.parametrize(
    ("distance", "size"), [(0.0, 148.413), (0.25, 42.521), (0.5, 12.182), (0.75, 3.490), (1.0, 1.0)]
)
def test_worked_example_of_temperatures(distance, size):
    assert one_row([2.0, distance], [distance, 1.0], normalize="separate")[0] == pytest.approx(-size, abs=1e-3)


def test_nearer_to_present_is_positive_and_a_tie_is_negative():
    signs = np.sign(one_row([0.2, 0.5, 0.5, 1.0], [0.5, 0.2, 0.5, 1.0]))
    assert signs.tolist() == [1, -1, -1, -1]


def test_no_evidence_at_all_is_a_hard_negative():
    assert one_row([np.inf, 0.3], [np.inf, 1.0])[0] == -1


def test_one_maximum_for_both_signs_keeps_their_order_and_two_do_not():
    present, absent = [0.4, 0.4], [0.5, 1.0]
    assert np.sign(one_row(present, absent)).tolist() == [1, 1]
    assert np.sign(one_row(present, absent, normalize="separate")).tolist() == [-1, -1]


def test_the_farthest_label_of_an_image_is_scaled_to_one():
    assert one_row([0.1, 0.5], [0.2, 0.3])[1] == pytest.approx(-exp(5 * (1 - 0.3 / 0.5)), rel=1e-5)


def test_labels_that_are_not_asked_for_have_no_temperature_and_no_say():
    rows = np.array([[0.1, 9.0]], np.float32), np.array([[0.2, 9.0]], np.float32)
    found = TemperatureRule().temperatures(*rows, np.array([[True, False]]))[0]
    assert found.tolist() == pytest.approx([exp(5 * 0.5), 0], rel=1e-5)


def test_inverse_is_hard_where_the_paper_is_soft():
    assert one_row([0.0, 1.0], [1.0, 1.0], temperature="inverse") == pytest.approx([1.0, -exp(5)])


def test_gamma_is_added_to_both_signs():
    assert one_row([0.0, 1.0], [1.0, 1.0], gamma=0.25) == pytest.approx([exp(5) + 0.25, -0.75])


def test_distances_of_zero_throughout_are_not_divided_by():
    assert one_row([0.0], [0.0]) == pytest.approx([-exp(5)])


def test_any_beta_gives_numbers():
    assert np.isfinite(one_row([0.0, 1.0], [1.0, 0.5], beta=1e4)).all()
