"""Photos without any tag: what names of classes alone say about them."""

import csv
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from typer.testing import CliRunner

from tagfill.cli.app import app
from tagfill.curation import Suggestions
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.evidence import import_scores
from tagfill.filling import unlabeled

CLASSES = ("cup", "spoon", "plate")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Forty photos, and a prior that knows most of what they show."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(40):
        Image.new("RGB", (8, 8)).save(folder / f"{number:02d}.png")
    shown = np.random.default_rng(0).random((40, 3)) < 0.4

    def prior(data, features=None, progress=None):
        scores = 0.2 + 0.04 * shown + 0.005 * np.random.default_rng(1).normal(size=shown.shape)
        table = pa.table({"image": data.names(), **dict(zip(data.classes, scores.T, strict=True))})
        import_scores(table, data, name="prior", scale="cosines")

    monkeypatch.setattr(unlabeled, "score_with_prior", prior)
    return folder, shown


def test_names_of_classes_give_first_guesses_and_questions(photos, tmp_path):
    folder, shown = photos
    found = unlabeled.fill_unlabeled(folder, CLASSES, out=tmp_path / "filled", expected=1.2)
    assert found.expected_labels == pytest.approx(1.2, abs=0.02)
    with (tmp_path / "filled" / "filled.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    pairs = [(number, tag) for number, row in enumerate(rows) for tag in row["added"].split("; ") if tag]
    assert len(rows) == 40
    assert len(pairs) == found.added > 5
    assert np.mean([shown[number, CLASSES.index(tag)] for number, tag in pairs]) > 0.8
    questions = Suggestions.read(tmp_path / "filled" / "to-review.csv", Dataset.open(tmp_path / "filled" / "known"))
    assert len(questions) == found.questions > 0


def test_the_command_guesses_and_says_what_to_do_next(photos, tmp_path):
    words = ["fill", str(photos[0]), "--classes", "cup, spoon, plate", "--out", str(tmp_path / "filled")]
    done = CliRunner().invoke(app, [*words, "--json", "--keep", "probability=0.7"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["photos"] == 40


@pytest.mark.parametrize("classes", [["cup"], ["cup", "cup"], [" ", ""]])
def test_classes_must_be_two_and_different(photos, tmp_path, classes):
    with pytest.raises(TagfillError, match="two or more different classes"):
        unlabeled.fill_unlabeled(photos[0], classes, out=tmp_path / "filled")
