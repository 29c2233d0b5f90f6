"""Photos whose labels are made complete: the draw, finishing and undoing, and the move to a split after a kill."""

import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tagfill.curation import Suggestions
from tagfill.curation.complete import Completion, Draws, complete_images
from tagfill.curation.review import Decision, apply_log, open_session
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError

from .cases import photos

NOTHING = Suggestions.empty()


def completing(data, count=3, **settings):
    return open_session(Dataset.open(data.folder), NOTHING, complete=Completion(count, **settings))


def names_of(data, split):
    data = Dataset.open(data.folder)
    return set(data.names(data.split(split))) if split in data.splits else set()


def test_a_draw_is_random_and_a_larger_one_continues_it(tmp_path):
    data = photos(tmp_path, 40)
    with completing(data, 10) as session:
        first = session.photos
    with completing(data, 20) as session:
        assert session.photos[:10] == first
        assert len(set(session.photos)) == 20
    assert first != sorted(first)
    with completing(photos(tmp_path / "same", 40), 10) as session:
        assert session.photos == first
    with completing(photos(tmp_path / "other", 40), 10, seed=7) as session:
        assert session.photos != first
    with pytest.raises(TagfillError, match="drawn with --seed 0"), completing(data, 20, seed=7):
        pass


def test_finishing_makes_every_other_class_absent_and_moves_the_photo(tmp_path):
    data = photos(tmp_path)
    with completing(data) as session:
        image = session.photos[0]
        session.decide([Decision("x", image, "tree", True, 2.0)], "me")
        assert not session.is_finished(image)
        session.finish(image, "f", "me", 3.0)
        session.finish(image, "f", "me", 3.0)  # sent again
        assert session.is_finished(image)
        assert [(tag.given, tag.state) for tag in session.tags(image)] == [
            ("unknown", "absent"),
            ("present", "present"),
            ("unknown", "present"),
        ]
    assert names_of(data, "val") == {image}
    after = Dataset.open(data.folder)
    assert after.labels("val").dense().tolist() == [[0, 1, 1]]
    rows = [row for row in after.rows().to_pylist() if row["source"] == "review"]
    assert [(row["label"], row["present"], row["seconds"]) for row in rows] == [
        ("tree", True, 2.0),
        ("cup", False, 3.0),
    ]
    assert all(row["time"] is not None for row in rows)
    assert len(names_of(data, "train")) == 5


def test_the_drawn_photos_are_those_that_are_not_complete(tmp_path):
    data = photos(tmp_path)
    with completing(data, 4) as session:
        for number, image in enumerate(session.photos):
            session.finish(image, f"f{number}", "me")
    with completing(data, 100) as session:
        assert len(session.photos) == 6  # all there are
        for number, image in enumerate(session.photos):
            session.finish(image, f"g{number}", "me")
    assert len(names_of(data, "val")) == 6
    with completing(data, 100) as session:
        assert all(session.is_finished(image) for image in session.photos)


def test_undoing_takes_the_photo_back(tmp_path):
    data = photos(tmp_path)
    with completing(data) as session:
        one, two, _ = session.photos
        session.finish(one, "f", "me")
        session.finish(two, "g", "me")
        session.undo("g", "u", "me")
        assert not session.is_finished(two)
    assert names_of(data, "val") == {one}
    with completing(data) as session:
        session.undo("f", "v", "me")
        assert [tag.state for tag in session.tags(one)] == ["unknown", "present", "unknown"]
    assert names_of(data, "val") == set()
    assert len(Dataset.open(data.folder).rows()) == 6


def test_cannot_tell_is_complete(tmp_path):
    data = photos(tmp_path)
    with completing(data) as session:
        image = session.photos[0]
        session.decide([Decision("x", image, "tree", None)], "me")
        session.finish(image, "f", "me")
    assert names_of(data, "val") == {image}
    assert Dataset.open(data.folder).labels("val").dense().tolist() == [[0, 1, -1]]


def test_a_hierarchy_implies_tags_and_contradictions_are_refused(tmp_path):
    data = photos(tmp_path)
    data.replace(hierarchy=(("cup", "tree"),)).save(data.folder)
    with completing(data, 2) as session:
        one, two = session.photos
        session.decide([Decision("x", one, "cup", True)], "me")
        assert session.is_finished(one)  # each cup is a tree
        session.decide([Decision("y", two, "cup", True), Decision("z", two, "tree", False)], "me")
        with pytest.raises(TagfillError, match="'cup' is present and 'tree' is absent"):
            session.finish(two, "f", "me")
        session.undo("z", "u", "me")
        session.finish(two, "g", "me")
    assert names_of(data, "val") == {one, two}


def test_unsuitable_splits_are_refused(tmp_path):
    data = photos(tmp_path)
    splits = np.array(["train", "train", "train", "train", "val", "val"], dtype=object)
    data.with_splits(splits).save(data.folder)
    with (
        pytest.raises(TagfillError, match="'val' of dataset photos has 2 photos with incomplete labels"),
        completing(data),
    ):
        pass
    with pytest.raises(TagfillError, match="give another split to --split"), completing(data, split="train"):
        pass
    with completing(data, split="checked") as session:
        session.finish(session.photos[0], "f", "me")
    assert len(names_of(data, "checked")) == 1


def test_a_draw_that_is_damaged_is_named(tmp_path):
    data = photos(tmp_path)
    with completing(data):
        pass
    (data.folder / "review" / "complete.json").write_text("{")
    with pytest.raises(TagfillError, match=r"complete\.json is damaged"), completing(data):
        pass


@pytest.mark.parametrize("point", ["append", "rows", "splits"])
def test_finished_photos_survive_kill_9(tmp_path, point):
    """Killed after the log has the decisions, before or while they become rows, and before the splits are written."""
    data = photos(tmp_path)
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        from tagfill.curation import Suggestions, review
        from tagfill.curation.complete import Completion
        from tagfill.dataset import Dataset

        def die(*arguments, **settings):
            os.kill(os.getpid(), signal.SIGKILL)

        with review.open_session(Dataset.open(sys.argv[1]), Suggestions.empty(), complete=Completion(3)) as session:
            session.finish(session.photos[0], "f", "me")
            session.finish(session.photos[1], "g", "me")
            print(*session.photos[:2], flush=True)
            if "{point}" == "append":
                die()
            setattr(review, {{"rows": "apply_decisions", "splits": "move_complete"}}["{point}"], die)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(data.folder)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    confirmed = set(done.stdout.split())
    assert len(confirmed) == 2
    assert names_of(data, "val") == set()
    apply_log(Dataset.open(data.folder))
    assert names_of(data, "val") == confirmed
    after = Dataset.open(data.folder)
    assert complete_images(after, after.split("val")).all()
    content = {path: path.read_bytes() for path in data.folder.glob("*.parquet")}
    assert apply_log(Dataset.open(data.folder)) == 0
    assert content == {path: path.read_bytes() for path in content}
    assert [len(draw.images) for draw in Draws.read(data.folder / "review").draws] == [3]
