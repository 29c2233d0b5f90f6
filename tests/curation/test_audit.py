"""An audit: the sample is uniform, the intervals hold, and decisions about it become rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reference import intervals
from tagfill.curation import Suggestions
from tagfill.curation.audit import ADDED, LEFT_OUT, AuditSample, Share, draw_sample, estimate_recall, wilson
from tagfill.curation.review import AUDIT, Decision, open_session
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

from .cases import photos


def filled(folder, count=40):
    """Photos with a dog each; a cup was added to the even ones."""
    data = photos(folder, count)
    rows = [{"image": name, "label": "cup", "present": True, "source": "fill"} for name in data.names()[::2]]
    return data.with_records(rows).save(data.folder)


@pytest.mark.parametrize(("hits", "decisions"), [(0, 7), (1, 9), (113, 120), (120, 120), (5, 10)])
def test_the_interval_is_the_inverted_score_test(hits, decisions):
    assert wilson(hits, decisions) == pytest.approx(intervals.wilson(hits, decisions), abs=1e-4)


def test_without_decisions_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.94])
def test_intervals_cover_the_share_as_often_as_they_say(share):
    assert intervals.coverage(wilson, 120, share) == pytest.approx(0.95, abs=0.025)


def share_of(hits, decisions, population):
    return Share(hits / decisions, *wilson(hits, decisions), hits, decisions, 0, 0, population)


def test_recall_follows_from_both_samples():
    recall = estimate_recall(share_of(90, 100, 1000), share_of(2, 100, 10_000))
    assert recall.share == pytest.approx(900 / (900 + 200))
    assert recall.low < recall.share < recall.high
    nothing_missed = estimate_recall(share_of(90, 100, 1000), share_of(0, 100, 10_000))
    assert (nothing_missed.share, nothing_missed.high) == (1.0, 1.0)
    assert nothing_missed.low < 0.95  # a hundred pairs cannot exclude that some are missing


def test_intervals_of_recall_hold_at_least_as_often_as_they_say():
    rng = np.random.default_rng(0)
    right, lost = rng.binomial(120, 0.9, 400), rng.binomial(120, 0.03, 400)
    truth = 900 / (900 + 300)
    found = [
        estimate_recall(share_of(int(k), 120, 1000), share_of(int(m), 120, 10_000))
        for k, m in zip(right, lost, strict=True)
    ]
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.95


def test_the_populations_are_what_was_added_and_what_was_left_out(tmp_path):
    data = filled(tmp_path)
    sample = draw_sample(data, source="fill", added=1000, left_out=1000)
    assert sample.population == {ADDED: 20, LEFT_OUT: 60}
    assert set(sample.pairs[ADDED]) == {(name, "cup") for name in data.names()[::2]}
    odd = {(name, "cup") for name in data.names()[1::2]}
    assert set(sample.pairs[LEFT_OUT]) == odd | {(name, "tree") for name in data.names()}  # no dog: it is annotated


def test_every_pair_is_as_likely_to_be_drawn(tmp_path):
    data = filled(tmp_path, 10)
    data = data.replace(annotations=data.rows())  # in memory: many draws
    counts = {ADDED: {}, LEFT_OUT: {}}
    for seed in range(200):
        sample = draw_sample(data, source="fill", added=2, left_out=3, seed=seed)
        for name, pairs in sample.pairs.items():
            for pair in pairs:
                counts[name][pair] = counts[name].get(pair, 0) + 1
    for name, size, drawn in ((ADDED, 5, 2), (LEFT_OUT, 15, 3)):
        assert len(counts[name]) == size
        expected = 200 * drawn / size
        statistic = sum((count - expected) ** 2 / expected for count in counts[name].values())
        assert statistic < size - 1 + 4 * np.sqrt(2 * (size - 1))  # chi-squared, four deviations


def test_an_audit_states_precision_and_continues_with_the_same_sample(tmp_path):
    data = filled(tmp_path)
    sample = draw_sample(data, source="fill", added=10, left_out=30)
    with open_session(data, sample.questions(), source=AUDIT) as session:
        half = session.suggestions[:20]
        for one in half:
            session.decide([Decision(one.image + one.label, one.image, one.label, None, place=one.place)], "me")
        assert sample.result(session).added.share is None
        for one in half:
            session.undo(one.image + one.label, f"u{one.place}", "me")
    again = draw_sample(Dataset.open(data.folder), source="fill", added=10, left_out=30)
    assert again == sample
    wrong = sample.pairs[ADDED][0]
    with open_session(data, again.questions(), source=AUDIT) as session:
        for one in session.suggestions:
            present = one.label == "cup" and (one.image, one.label) != wrong
            decision = Decision(
                f"2{one.place}", one.image, one.label, present, 1.0, session.status(one.place).number, one.place
            )
            session.decide([decision], "me")
        result = again.result(session)
    cups = sum(label == "cup" for _, label in sample.pairs[LEFT_OUT])
    assert (result.added.hits, result.added.decisions, result.left_out.hits) == (9, 10, cups)
    assert result.sentences()[1] == "Precision 90 %, between 60 and 98, from 10 decisions"
    assert json.loads(json.dumps(result.to_json()))["precision"]["share"] == 0.9
    after = Dataset.open(data.folder)
    rows = [row for row in after.rows().to_pylist() if row["source"] == "audit"]
    assert len(rows) == 40
    position = after.names().index(wrong[0])
    assert after.labels().dense()[position, 0] == 0  # the wrong tag is corrected
    assert draw_sample(after, source="fill", added=10, left_out=30) == sample


def test_what_a_review_decided_is_asked_again(tmp_path):
    data = photos(tmp_path)
    with open_session(data, Suggestions.empty()) as session:
        session.decide([Decision("x", "00000.jpg", "cup", True)], "me")
    sample = draw_sample(Dataset.open(data.folder), source="review")
    with open_session(data, sample.questions(), source=AUDIT) as session:
        assert sample.pairs[ADDED] == [("00000.jpg", "cup")]
        assert session.current_decisions() == []


def test_predictions_are_audited_where_nothing_was_annotated(tmp_path):
    data = photos(tmp_path)
    rows = [
        {"image": name, "label": label, "probability": 0.5, "present": label != "tree"}
        for name in data.names()[:4]
        for label in data.classes
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    sample = draw_sample(data, predictions=tmp_path / "p.parquet")
    assert sample.population == {ADDED: 4, LEFT_OUT: 4}  # cups and trees of four photos; their dogs are annotated
    assert {label for _, label in sample.pairs[LEFT_OUT]} == {"tree"}


def test_an_audit_of_nothing_says_so(tmp_path):
    with pytest.raises(TagfillError, match="no tags with source fill to audit; its sources are none"):
        draw_sample(photos(tmp_path), source="fill")
    with pytest.raises(TagfillError, match="give one of them"):
        draw_sample(photos(tmp_path))


def test_questions_do_not_tell_what_was_added(tmp_path):
    sample: AuditSample = draw_sample(filled(tmp_path), source="fill")
    table = sample.questions().table
    assert set(table["probability"].to_pylist()) == {0.5}
    order = [
        pair in set(sample.pairs[ADDED])
        for pair in zip(*(table[c].to_pylist() for c in ("image", "label")), strict=True)
    ]
    assert order != sorted(order, reverse=True)  # mixed
