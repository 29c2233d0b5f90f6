import numpy as np
import pytest

from reference import label_errors as reference
from tagfill.curation.label_errors import FEWEST, LabelErrors, NoiseModel, find_label_errors, fit_noise, suspicion


def annotated(seed=0, images=1500, classes=4, *, swapped=0, only_tags=False):
    """Scores of images with about one class each, and annotations of which some tags moved to an absent class."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, classes)) < 0.25
    logits = np.where(truth, 2.0, -2.5) + rng.normal(0, 1.2, truth.shape)
    labels, wrong = truth.astype(np.int8), np.zeros(truth.shape, bool)
    image, tag = np.nonzero(truth)
    for chosen in rng.permutation(len(image))[:swapped]:
        row = image[chosen]
        free = np.flatnonzero(labels[row] == 0)
        if not len(free):
            continue
        new = rng.choice(free)
        labels[row, tag[chosen]], labels[row, new] = 0, 1
        wrong[row, tag[chosen]], wrong[row, new] = truth[row, tag[chosen]], not truth[row, new]
    if only_tags:
        labels[labels == 0] = -1
        wrong &= labels == 1
    return logits, labels, wrong


def pairs(found):
    return list(zip(found.image.tolist(), found.label.tolist(), strict=True))


@pytest.mark.parametrize("only_tags", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_correct_annotations_are_not_doubted(seed, only_tags):
    logits, labels, _ = annotated(seed, only_tags=only_tags)
    found = find_label_errors(logits, labels)
    assert len(found) == 0
    assert found.reason == "correct annotations explain the scores"
    assert found.annotations == (labels >= 0).sum()


@pytest.mark.parametrize("only_tags", [False, True])
def test_wrong_annotations_are_found_and_their_number_is_estimated(only_tags):
    logits, labels, wrong = annotated(1, swapped=120, only_tags=only_tags)
    found = find_label_errors(logits, labels)
    assert found.reason is None
    assert 0.5 * wrong.sum() < len(found) < 1.2 * wrong.sum()
    assert wrong[found.image, found.label].mean() > 0.75
    assert (labels[found.image, found.label] >= 0).all()
    assert (np.diff(found.suspicion) <= 0).all()
    assert found.low_tags > found.hard_tags
    assert str(found).startswith(f"{len(found)} of {(labels >= 0).sum():,} annotations are doubted, most suspicious")


def test_the_fit_is_a_maximum_of_the_likelihood():
    logits, labels, _ = annotated(2, 400, 3, swapped=30)
    model = fit_noise(logits, labels == 1, labels != 1)
    at = [model.slope, *model.offset, *model.wrong_tag, model.missed_tag]

    def objective(values):
        return reference.objective(logits.tolist(), labels.tolist(), values[0], values[1:4], values[4:7], values[7])

    best = objective(at)
    for position in range(len(at)):
        for factor in (0.95, 1.05):
            changed = [value * factor if number == position else value for number, value in enumerate(at)]
            assert objective(changed) < best + 1e-3


def test_doubts_equal_the_reference():
    logits, labels, _ = annotated(3, 500, 3, swapped=60)
    model = fit_noise(logits, labels == 1, labels != 1)
    fitted = (model.slope, model.offset.tolist(), model.wrong_tag.tolist(), model.missed_tag)
    found = find_label_errors(logits, labels)
    tags, of_tags = reference.doubted_tags(logits.tolist(), labels.tolist(), *fitted)
    absent = reference.doubted_absent(logits.tolist(), labels.tolist(), *fitted)
    assert tags
    assert absent
    assert [pair for pair in pairs(found) if labels[pair] == 1] == tags
    assert [pair for pair in pairs(found) if labels[pair] == 0] == absent
    suspected = suspicion(logits, labels)
    assert [suspected[pair] for pair in of_tags] == pytest.approx(list(of_tags.values()), abs=1e-9)


@pytest.mark.parametrize("only_tags", [False, True])
def test_permuting_images_and_classes_permutes_the_doubts(only_tags):
    logits, labels, _ = annotated(4, swapped=120, only_tags=only_tags)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(logits.shape[0]), rng.permutation(logits.shape[1])
    permuted = find_label_errors(logits[rows][:, columns], labels[rows][:, columns])
    back = {(int(rows[image]), int(columns[label])) for image, label in pairs(permuted)}
    found = find_label_errors(logits, labels)
    assert len(found) > 0
    assert back == set(pairs(found))


def test_a_lower_score_makes_a_tag_more_suspicious_and_an_absence_less():
    z = np.linspace(-60, 60, 50)[:, None]
    tag, absent = NoiseModel(0.7, np.array([0.3]), np.array([0.01]), 0.2).log_odds(z)
    assert (np.diff(tag[:, 0]) < 0).all()
    assert (np.diff(absent[:, 0]) > 0).all()


def test_a_tag_is_more_suspicious_beside_a_likely_class_that_is_not_tagged():
    logits, labels, _ = annotated(5, swapped=60, only_tags=True)
    row = int(np.flatnonzero((labels == 1).sum(1) == 1)[0])
    tag = int(labels[row].argmax())
    before = suspicion(logits, labels)[row, tag]
    changed = logits.copy()
    changed[row, (tag + 1) % 4] = 8.0
    assert suspicion(changed, labels)[row, tag] > before + 1


def test_known_values():
    logits, labels, wrong = annotated(6, swapped=100)
    found = find_label_errors(logits, labels)
    assert (len(found), int(wrong[found.image, found.label].sum()), int(wrong.sum())) == (154, 149, 196)
    assert pairs(found)[:3] == [(991, 2), (550, 3), (1434, 1)]


def test_few_annotations_are_no_evidence():
    logits, labels, _ = annotated(7, images=24)
    labels[:] = -1
    labels[: FEWEST - 1, 0] = 1
    found = find_label_errors(logits, labels)
    assert (len(found), found.classes, found.reason) == (0, 0, f"no class has {FEWEST} annotations to compare")
    assert find_label_errors(logits, np.full(labels.shape, -1)).reason == "nothing is annotated as present"


def test_scores_that_do_not_separate_are_no_evidence():
    logits, labels, _ = annotated(8)
    shuffled = np.random.default_rng(0).permuted(logits, axis=0)
    found = find_label_errors(shuffled, labels)
    assert len(found) == 0
    assert "do not separate" in found.reason
    one = logits.copy()
    one[:, 0] = shuffled[:, 0]
    assert find_label_errors(one, labels).classes == 3


def test_extreme_and_constant_scores_are_finite():
    _, labels, _ = annotated(9, images=200)
    with np.errstate(all="raise"):
        found = find_label_errors(np.where(labels == 1, 1e4, -1e4), labels)
        assert len(found) == 0
        assert len(find_label_errors(np.zeros(labels.shape), labels)) == 0
        assert np.isfinite(suspicion(np.where(labels == 1, 1e4, -1e4), labels)).all()


def test_one_class_works():
    logits, labels, wrong = annotated(10, classes=2, swapped=80)
    found = find_label_errors(logits[:, :1], labels[:, :1])
    assert len(found) > 0
    assert wrong[found.image, 0].mean() > 0.5


def test_errors_in_one_class_are_found_there():
    rng = np.random.default_rng(3)
    tags = rng.integers(0, 3, 600)
    wrong = np.isin(np.arange(600), np.flatnonzero(tags == 0)[:60])
    logits = np.where(np.arange(3) == np.where(wrong, 1, tags)[:, None], 4.0, -4.0) + rng.normal(0, 1, (600, 3))
    found = find_label_errors(logits, np.where(np.arange(3) == tags[:, None], 1, -1))
    assert 30 < len(found) <= 60
    assert wrong[found.image].all()
    assert (found.label == 0).all()


def test_doubts_of_several_parts_are_merged_in_order():
    logits, labels, _ = annotated(4, swapped=120)
    parts = [find_label_errors(logits[half], labels[half]) for half in (slice(None, 750), slice(750, None))]
    merged = LabelErrors.merge(parts)
    assert len(merged) == len(parts[0]) + len(parts[1]) > 0
    assert (np.diff(merged.suspicion) <= 0).all()
    assert merged.annotations == labels.size
    nothing = LabelErrors.none("nothing is annotated")
    assert LabelErrors.merge([nothing, nothing]).reason == nothing.reason
    assert str(nothing) == "No annotation is doubted: nothing is annotated"
