"""Scores of files become evidence, and bad files one sentence."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from evidence.cases import CLASSES, make_dataset, make_scores, make_truth
from tagfill import Dataset, TagfillError
from tagfill.evidence import (
    ScoreMatrix,
    evidence_path,
    find_scale,
    import_scores,
    list_evidence,
    open_evidence,
    read_class_map,
)

IMAGES = 12


@pytest.fixture
def data(tmp_path):
    return make_dataset(tmp_path / "data", make_truth(IMAGES))


def long_table(scores, kept=None):
    image, label = np.nonzero(np.ones(scores.shape, bool) if kept is None else kept)
    columns = {"image": [f"{i}.jpg" for i in image], "label": [CLASSES[c] for c in label]}
    return pa.table({**columns, "score": scores[image, label]})


def wide_table(scores):
    return pa.table({"image": [f"{i}.jpg" for i in range(len(scores))], **dict(zip(CLASSES, scores.T, strict=True))})


@pytest.mark.parametrize("layout", ["long", "wide"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_long_and_wide_files_of_both_types_give_the_same_scores(data, tmp_path, layout, suffix):
    scores = make_scores(make_truth(IMAGES)).astype(np.float32).astype(float)
    table = (long_table if layout == "long" else wide_table)(scores)
    path = tmp_path / f"scores.{suffix}"
    (pacsv.write_csv if suffix == "csv" else pq.write_table)(table, path)

    result = import_scores(path, data.folder, name="clip", scale="cosines")

    assert result.layout == layout
    found = open_evidence(Dataset.open(data.folder), "clip")
    np.testing.assert_allclose(found.scores.rows(np.arange(IMAGES)), scores, rtol=1e-6)
    assert (found.scale, found.source, list_evidence(data)) == ("cosines", path.name, ["clip"])


def test_missing_pairs_stay_missing(data):
    scores = make_scores(make_truth(IMAGES))
    kept = np.random.default_rng(0).random(scores.shape) < 0.4
    import_scores(long_table(scores, kept), data, name="some", scale="cosines")
    found = open_evidence(data, "some")
    assert len(found) == kept.sum()
    assert (np.isnan(found.scores.rows(np.arange(IMAGES))) == ~kept).all()

    blank = wide_table(np.where(kept, scores, np.nan))
    import_scores(blank, data, name="blank", scale="cosines")
    np.testing.assert_array_equal(
        found.scores.rows(np.arange(IMAGES)), open_evidence(data, "blank").scores.rows(np.arange(IMAGES))
    )


def test_a_dataset_may_grow_after_the_import(data):
    from tagfill.dataset.dataset import add_images

    import_scores(long_table(make_scores(make_truth(IMAGES))), data, name="clip", scale="cosines")
    before = open_evidence(data, "clip")
    grown = add_images(data.folder, ["new.jpg"])
    after = open_evidence(grown, "clip")
    assert len(after) == len(before)
    assert np.isnan(after.scores.rows(np.array([IMAGES]))).all()


def test_their_classes_are_mapped_and_the_largest_score_counts(data, tmp_path):
    table = pa.table(
        {"image": ["0.jpg"] * 3, "label": ["mug", "tea cup", "dog"], "score": [0.1, 0.9, 0.5]}
    )  # fmt: skip
    (tmp_path / "map.csv").write_text("mug,cup\n")
    class_map = read_class_map([str(tmp_path / "map.csv"), "tea cup=cup"])
    result = import_scores(table, data, name="a", scale="probabilities", class_map=class_map, skip_unknown=True)
    assert result.skipped_labels == ("dog",)
    assert result.to_json()["images_without_scores"] == IMAGES - 1
    found = open_evidence(data, "a").scores.rows(np.array([0]))[0]
    assert found[0] == pytest.approx(0.9)
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize(
    ("scores", "scale"),
    [
        ([[-3.0, 7.0]], "logits"),
        ([[-0.1, 0.3]], "cosines"),
        ([[0.25, 0.75], [1.0, 0.0]], "softmax"),
        ([[0.01, 0.99], [0.9, 0.8]], "probabilities"),
    ],
)
def test_the_scale_is_found(scores, scale):
    assert find_scale(ScoreMatrix.from_dense(np.array(scores))) == scale


def test_probabilities_and_cosines_that_look_alike_are_refused():
    with pytest.raises(TagfillError, match="probabilities or cosines"):
        find_scale(ScoreMatrix.from_dense(np.array([[0.21, 0.25, 0.31]])))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"image": ["0.jpg"], "label": ["cpu"], "score": [1.0]}, {}, "'cpu' is no class.*--map"),
        ({"image": ["x.jpg"], "label": ["cup"], "score": [1.0]}, {}, "no image 'x.jpg'.*look like '0.jpg'"),
        ({"image": ["0.jpg"], "label": ["cup"], "p": [1.0]}, {}, "no column 'score'.*one of: p"),
        ({"file": ["0.jpg"], "cup": [1.0]}, {}, "no column 'image'"),
        ({"image": ["0.jpg"] * 2, "label": ["cup"] * 2, "score": [1.0, 2.0]}, {}, "'0.jpg' and label 'cup' twice"),
        ({"image": ["0.jpg"], "label": ["cup"], "score": [np.inf]}, {}, "row 0: a score is infinite"),
        ({"image": ["0.jpg"], "label": ["cup"], "score": ["high"]}, {}, "scores are numbers"),
        ({"image": [None], "label": ["cup"], "score": [1.0]}, {}, "'image' has"),
        ({"image": ["0.jpg"], "cup": [7.0]}, {"scale": "probabilities"}, "is 7, but probabilities are between 0 and 1"),
        ({"image": ["0.jpg"], "cup": [7.0]}, {"scale": "odds"}, "scale is 'odds'"),
        ({"image": ["0.jpg"], "cup": [7.0]}, {"name": "../clip"}, "cannot be named"),
        ({"image": ["0.jpg"], "cup": [7.0]}, {"class_map": {"mug": "cpu"}}, "no class 'cpu'"),
        ({"image": ["0.jpg"], "cup": [np.nan]}, {}, "no score"),
    ],
)
def test_bad_tables_are_refused_with_a_sentence(data, columns, options, message):
    with pytest.raises(TagfillError, match=message):
        import_scores(pa.table(columns), data, **{"name": "clip", **options})
    assert list_evidence(data) == []


def test_existing_evidence_is_replaced_only_if_asked(data):
    table = pa.table({"image": ["0.jpg"], "cup": [7.0]})
    import_scores(table, data, name="clip")
    with pytest.raises(TagfillError, match="exists already"):
        import_scores(table, data, name="clip")
    import_scores(table, data, name="clip", force=True)


def test_damaged_evidence_is_named(data):
    path = evidence_path(data, "clip")
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    with pytest.raises(TagfillError, match=r"clip\.parquet is damaged"):
        open_evidence(data, "clip")
    with pytest.raises(TagfillError, match=r"There is no evidence 'cilp'.*did you mean 'clip'"):
        open_evidence(data, "cilp")
