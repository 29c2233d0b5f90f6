"""Several reviewers in one session, and the rows that their decisions become."""

import threading
from dataclasses import replace

import pytest

from tagfill.curation.decisions import apply_decisions
from tagfill.curation.review import BulkDecision, Decision, apply_log, fingerprint, open_session
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

from .cases import photos, suggestions


def decision(session, id_, place, present=True, **changes):
    one = session.suggestions[place]
    fields = {"id": id_, "place": place, "image": one.image, "label": one.label, "present": present}
    return Decision(**{**fields, **changes})


@pytest.fixture
def data(tmp_path):
    return photos(tmp_path)


@pytest.fixture
def session(data):
    with open_session(data, suggestions(data)) as session:
        yield session


def reviewed(data):
    rows = Dataset.open(data.folder).rows().to_pylist()
    return [(row["image"], row["label"], row["present"]) for row in rows if row["source"] == "review"]


def test_a_decision_is_on_disk_when_it_is_confirmed(session):
    (now,) = session.decide([decision(session, "x", 0, seconds=2.5)], "me")
    assert (now.number, now.decision.present, now.refused) == (1, True, None)
    assert session.log.path.read_bytes() == session.log.entries[0].line()
    assert (session.log.entries[0].who, session.log.entries[0].seconds, session.log.entries[0].previous) == (
        "me",
        2.5,
        "unknown",
    )


def test_the_same_decision_counts_once(session):
    for _ in range(2):
        (now,) = session.decide([decision(session, "x", 0)], "me")
        assert not now.refused
    assert len(session.log.entries) == 1


def test_a_reviewer_who_has_not_seen_the_newest_decision_is_refused(session):
    session.decide([decision(session, "x", 0, True)], "one")
    (now,) = session.decide([decision(session, "y", 0, False)], "two")
    assert (now.refused, now.decision.who, now.decision.present) == ("one already decided cup: present.", "one", True)
    (now,) = session.decide([decision(session, "z", 0, False, seen=1)], "two")
    assert (now.refused, now.decision.present) == (None, False)
    assert [entry.previous for entry in session.log.entries] == ["unknown", "present"]


def test_two_threads_decide_everything_once(session):
    def work(who):
        for place in range(len(session.suggestions)):
            session.decide([decision(session, f"{who}{place}", place, who == "a")], who)

    threads = [threading.Thread(target=work, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.log.entries) == len(session.suggestions)
    assert len({entry.pair for entry in session.current_decisions()}) == len(session.suggestions)
    assert [entry.number for entry in session.log.entries] == list(range(1, len(session.suggestions) + 1))


def test_undo_restores_the_previous_decision(session):
    session.decide([decision(session, "x", 0, True)], "me")
    session.decide([decision(session, "y", 0, None, seen=1)], "me")
    (now,) = session.undo("y", "u1", "me")
    assert now.decision.id == "x"
    (now,) = session.undo("y", "u1", "me")  # sent again
    assert now.decision.id == "x"
    (now,) = session.undo("x", "u2", "me")
    assert now.decision is None
    assert len(session.log.entries) == 4


def test_undo_keeps_newer_decisions_of_others(session):
    session.decide([decision(session, "x", 0, True)], "one")
    session.decide([decision(session, "y", 0, False, seen=1)], "two")
    (now,) = session.undo("x", "u", "one")
    assert now.decision.id == "y"
    with pytest.raises(TagfillError, match="no decision 'z' to undo"):
        session.undo("z", "u", "one")


def test_a_group_is_undone_at_once(session):
    session.decide([decision(session, f"g/{place}", place) for place in range(4)], "me", group="g")
    assert len(session.current_decisions()) == 4
    assert all(now.decision is None for now in session.undo("g", "u", "me"))


def test_a_decision_about_other_suggestions_is_refused_and_the_rest_of_its_batch_saved(session):
    batch = [
        decision(session, "x", 0),
        decision(session, "y", 1, image="other.jpg"),
        Decision("z", "a", "b", True, place=99),
        decision(session, "w", 2),
        decision(session, "w", 2),  # twice in one batch
    ]
    statuses = session.decide(batch, "me")
    refused = [now.refused is not None for now in statuses]
    assert refused == [False, True, True, False, False]
    assert all("another file of suggestions" in now.refused for now in statuses[1:3])
    assert [entry.id for entry in session.log.entries] == ["x", "w"]


def bulk(session, id_="b", **changes):
    shown = session.select_open("cup", "missing", 0.5, "")
    fields = {"label": "cup", "kind": "missing", "minimum": 0.5, "present": True}
    return BulkDecision(**{"id": id_, "count": len(shown), "fingerprint": fingerprint(shown), **fields, **changes})


def test_a_bulk_decision_covers_what_was_shown_or_nothing(session):
    shown = bulk(session)
    for other in ({"minimum": 0.0}, {"count": 2}, {"fingerprint": "0"}, {"label": "tree"}):
        with pytest.raises(TagfillError, match="look at them again"):
            session.decide_bulk(replace(shown, **other), "me")
    assert session.log.entries == []
    assert len(session.decide_bulk(shown, "me")) == shown.count == 3
    assert len(session.decide_bulk(shown, "me")) == 3  # sent again
    assert len(session.log.entries) == 3


def test_a_bulk_decision_is_refused_if_as_many_others_match(session):
    session.decide([decision(session, "x", 0)], "other")
    shown = bulk(session)
    session.undo("x", "u", "other")
    session.decide([decision(session, "y", 1)], "other")
    assert bulk(session).count == shown.count
    with pytest.raises(TagfillError, match="look at them again"):
        session.decide_bulk(shown, "me")


def test_changes_show_what_others_decided(session):
    session.decide([decision(session, "x", 0), decision(session, "y", 3)], "me")
    newest, statuses = session.changes(1)
    assert newest == 2
    assert [now.place for now in statuses] == [3]


@pytest.mark.parametrize("tables", ["parquet", "csv"])
def test_decisions_become_newer_rows(tmp_path, tables):
    data = photos(tmp_path, tables=tables)
    with open_session(data, suggestions(data)) as session:
        session.decide(
            [
                decision(session, "x", 0, True, seconds=2.0),
                decision(session, "y", 1, False),
                decision(session, "z", 2, None),
            ],
            "me",
        )
    after = Dataset.open(data.folder)
    rows = [row for row in after.rows().to_pylist() if row["source"] == "review"]
    assert [(row["image"], row["label"], row["present"], row["kind"]) for row in rows] == [
        ("00000.jpg", "cup", True, "image"),
        ("00001.jpg", "cup", False, "image"),
        ("00002.jpg", "cup", None, "image"),
    ]
    assert [row["time"] for row in rows] == [entry.timestamp for entry in session.log.entries]
    assert rows[0]["seconds"] == 2.0
    assert after.labels("train").dense()[:4, 0].tolist() == [1, 0, -1, -1]
    assert (after.labels("train").dense()[:, 1] == 1).all()


def test_applying_twice_changes_nothing_and_undo_removes_the_row(data):
    with open_session(data, suggestions(data)) as session:
        session.decide([decision(session, "x", 0), decision(session, "y", 1)], "me")
    before = data.annotations.read_bytes()
    with open_session(Dataset.open(data.folder), suggestions(data)) as session:
        assert data.annotations.read_bytes() == before
        session.undo("x", "u", "me")
    assert reviewed(data) == [("00001.jpg", "cup", True)]


def test_decisions_of_a_killed_review_become_rows(data):
    with open_session(data, suggestions(data)) as session:
        session.decide([decision(session, "x", 0)], "me")
        log = session.log.path.read_bytes()
    rows = data.annotations.read_bytes()
    apply_decisions(
        Dataset.open(data.folder), session.log.entries, []
    )  # as if it had been killed before its rows were written
    assert reviewed(data) == []
    assert session.log.path.read_bytes() == log
    assert apply_log(Dataset.open(data.folder)) == 1
    assert data.annotations.read_bytes() == rows
    assert apply_log(Dataset.open(data.folder)) == 0


def test_rows_of_another_log_stay(data):
    with open_session(data, suggestions(data)) as session:
        session.decide([decision(session, "x", 0)], "me")
    (data.folder / "review" / "decisions.jsonl").unlink()
    with open_session(Dataset.open(data.folder), suggestions(data)) as session:
        session.decide([decision(session, "y", 1)], "me")
    assert len(reviewed(data)) == 2


def test_a_second_session_is_refused(data, session):
    with (
        pytest.raises(TagfillError, match="Another process is reviewing"),
        open_session(data, suggestions(data)),
    ):
        pass


def test_a_session_needs_a_folder(data):
    nowhere = data.replace(folder=None)
    with pytest.raises(TagfillError, match="save the dataset first"), open_session(nowhere, suggestions(data)):
        pass


def test_a_session_knows_all_decisions_of_its_log(data):
    with open_session(data, suggestions(data)) as session:
        session.decide([decision(session, "x", 0)], "me")
        session.decide([decision(session, "y", 1)], "me")
        session.undo("x", "u", "me")
    with open_session(Dataset.open(data.folder), suggestions(data)) as again:
        assert [again.status(place).decision is None for place in (0, 1, 2)] == [True, False, True]
        assert again.status(0).number == 3
