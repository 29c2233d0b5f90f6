"""Several reviewers at one desk, and the rows that their decisions become."""

import threading

import pytest

from tagfill.curation import server
from tagfill.curation.decisions import apply_decisions
from tagfill.curation.review import ReviewSession, Verdict
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

from .cases import photos, suggestions


def verdict(desk, id_, place, present=True, **changes):
    one = desk.suggestions[place]
    return Verdict(**{"id": id_, "place": place, "image": one.image, "label": one.label, "present": present, **changes})


@pytest.fixture
def data(tmp_path):
    return photos(tmp_path)


@pytest.fixture
def desk(data):
    with server.open_session(data, suggestions(data)) as desk:
        yield desk


def reviewed(data):
    rows = Dataset.open(data.folder).rows().to_pylist()
    return [(row["image"], row["label"], row["present"]) for row in rows if row["source"] == "review"]


def test_a_decision_is_on_disk_when_it_is_confirmed(desk):
    (now,) = desk.decide([verdict(desk, "x", 0, seconds=2.5)], "me")
    assert (now.number, now.decision.present, now.refused) == (1, True, False)
    assert desk.log.path.read_bytes() == desk.log.entries[0].line()
    assert (desk.log.entries[0].who, desk.log.entries[0].seconds, desk.log.entries[0].previous) == (
        "me",
        2.5,
        "unknown",
    )


def test_the_same_decision_counts_once(desk):
    for _ in range(2):
        (now,) = desk.decide([verdict(desk, "x", 0)], "me")
        assert not now.refused
    assert len(desk.log.entries) == 1


def test_who_has_not_seen_the_newest_decision_is_refused(desk):
    desk.decide([verdict(desk, "x", 0, True)], "one")
    (now,) = desk.decide([verdict(desk, "y", 0, False)], "two")
    assert (now.refused, now.decision.who, now.decision.present) == (True, "one", True)
    (now,) = desk.decide([verdict(desk, "z", 0, False, seen=1)], "two")
    assert (now.refused, now.decision.present) == (False, False)
    assert [entry.previous for entry in desk.log.entries] == ["unknown", "present"]


def test_two_threads_decide_everything_once(desk):
    def work(who):
        for place in range(len(desk.suggestions)):
            desk.decide([verdict(desk, f"{who}{place}", place, who == "a")], who)

    threads = [threading.Thread(target=work, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(desk.log.entries) == len(desk.suggestions)
    assert len({entry.pair for entry in desk.live()}) == len(desk.suggestions)
    assert [entry.number for entry in desk.log.entries] == list(range(1, len(desk.suggestions) + 1))


def test_undo_brings_back_what_was_before(desk):
    desk.decide([verdict(desk, "x", 0, True)], "me")
    desk.decide([verdict(desk, "y", 0, None, seen=1)], "me")
    (now,) = desk.undo("y", "u1", "me")
    assert now.decision.id == "x"
    (now,) = desk.undo("y", "u1", "me")  # sent again
    assert now.decision.id == "x"
    (now,) = desk.undo("x", "u2", "me")
    assert now.decision is None
    assert len(desk.log.entries) == 4


def test_undo_leaves_what_somebody_else_decided_since(desk):
    desk.decide([verdict(desk, "x", 0, True)], "one")
    desk.decide([verdict(desk, "y", 0, False, seen=1)], "two")
    (now,) = desk.undo("x", "u", "one")
    assert now.decision.id == "y"
    with pytest.raises(TagfillError, match="no decision 'z' to undo"):
        desk.undo("z", "u", "one")


def test_a_group_is_undone_at_one_stroke(desk):
    desk.decide([verdict(desk, f"g/{place}", place) for place in range(4)], "me", group="g")
    assert len(desk.live()) == 4
    assert all(now.decision is None for now in desk.undo("g", "u", "me"))


def test_verdicts_about_other_suggestions_do_not_count(desk):
    with pytest.raises(TagfillError, match="another file of suggestions"):
        desk.decide([verdict(desk, "x", 0, image="other.jpg")], "me")
    with pytest.raises(TagfillError, match="another file of suggestions"):
        desk.decide([Verdict("x", 99, "a", "b", True)], "me")
    assert desk.log.entries == []


def test_changes_tell_what_others_did(desk):
    desk.decide([verdict(desk, "x", 0), verdict(desk, "y", 3)], "me")
    newest, standings = desk.changes(1)
    assert newest == 2
    assert [now.place for now in standings] == [3]


@pytest.mark.parametrize("tables", ["parquet", "csv"])
def test_decisions_become_newer_rows(tmp_path, tables):
    data = photos(tmp_path, tables=tables)
    with server.open_session(data, suggestions(data)) as desk:
        desk.decide(
            [verdict(desk, "x", 0, True, seconds=2.0), verdict(desk, "y", 1, False), verdict(desk, "z", 2, None)], "me"
        )
    after = Dataset.open(data.folder)
    rows = [row for row in after.rows().to_pylist() if row["source"] == "review"]
    assert [(row["image"], row["label"], row["present"], row["kind"]) for row in rows] == [
        ("00000.jpg", "cup", True, "image"),
        ("00001.jpg", "cup", False, "image"),
        ("00002.jpg", "cup", None, "image"),
    ]
    assert [row["time"] for row in rows] == [entry.moment for entry in desk.log.entries]
    assert rows[0]["seconds"] == 2.0
    assert after.labels("train").dense()[:4, 0].tolist() == [1, 0, -1, -1]
    assert (after.labels("train").dense()[:, 1] == 1).all()


def test_folding_twice_changes_nothing_and_undoing_takes_the_row_away(data):
    with server.open_session(data, suggestions(data)) as desk:
        desk.decide([verdict(desk, "x", 0), verdict(desk, "y", 1)], "me")
    before = data.annotations.read_bytes()
    with server.open_session(Dataset.open(data.folder), suggestions(data)) as desk:
        assert data.annotations.read_bytes() == before
        desk.undo("x", "u", "me")
    assert reviewed(data) == [("00001.jpg", "cup", True)]


def test_a_killed_review_is_caught_up(data):
    with server.open_session(data, suggestions(data)) as desk:
        desk.decide([verdict(desk, "x", 0)], "me")
        log = desk.log.path.read_bytes()
    rows = data.annotations.read_bytes()
    apply_decisions(
        Dataset.open(data.folder), desk.log.entries, []
    )  # as if it had been killed before its rows were written
    assert reviewed(data) == []
    assert desk.log.path.read_bytes() == log
    assert server.apply(Dataset.open(data.folder)) == 1
    assert data.annotations.read_bytes() == rows
    assert server.apply(Dataset.open(data.folder)) == 0


def test_rows_of_another_log_stay(data):
    with server.open_session(data, suggestions(data)) as desk:
        desk.decide([verdict(desk, "x", 0)], "me")
    (data.folder / "review" / "decisions.jsonl").unlink()
    with server.open_session(Dataset.open(data.folder), suggestions(data)) as desk:
        desk.decide([verdict(desk, "y", 1)], "me")
    assert len(reviewed(data)) == 2


def test_a_second_desk_is_refused(data, desk):
    with (
        pytest.raises(TagfillError, match="Another process is reviewing"),
        server.open_session(data, suggestions(data)),
    ):
        pass


def test_a_desk_needs_a_folder(data):
    nowhere = data.replace(folder=None)
    with pytest.raises(TagfillError, match="save the dataset first"), server.open_session(nowhere, suggestions(data)):
        pass


def test_desk_knows_all_decisions_of_its_log(data):
    with server.open_session(data, suggestions(data)) as desk:
        desk.decide([verdict(desk, "x", 0)], "me")
        desk.decide([verdict(desk, "y", 1)], "me")
        desk.undo("x", "u", "me")
    with server.open_session(Dataset.open(data.folder), suggestions(data)) as again:
        assert isinstance(again, ReviewSession)
        assert [again.standing(place).decision is None for place in (0, 1, 2)] == [True, False, True]
        assert again.standing(0).number == 3
