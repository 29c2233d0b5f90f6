"""The package `datasets` itself reads what Tagfill writes, and Tagfill reads its objects and files.

It is installed into a folder of its own: the project does not need it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = """
import sys
from pathlib import Path
import datasets
from PIL import Image
from tagfill.dataset import Dataset
from tagfill.formats import hf

folder = Path(sys.argv[1])
(folder / "photos").mkdir()
for number in range(5):
    Image.new("RGB", (6, 4), (number * 50, 0, 0)).save(folder / "photos" / f"{number}.png")
images = [{"image": f"{n}.png", "split": "train" if n < 4 else "val"} for n in range(5)]
said = [("0.png", "cup", True), ("0.png", "fork", False), ("1.png", "fork", None), ("4.png", "spoon", True)]
rows = [{"image": image, "label": label, "present": state, "source": "ann"} for image, label, state in said]
data = Dataset.from_records("set", root=folder / "photos", classes=["cup", "spoon", "fork"], images=images, rows=rows)

def states(dataset):
    labels = dataset.labels()
    names = [dataset.names()[i] for i in labels.images()]
    return sorted((n, dataset.classes[c], int(v)) for n, c, v in zip(names, labels.classes, labels.values))

hf.write(data, folder / "hub")
loaded = datasets.load_dataset(str(folder / "hub"), cache_dir=str(folder / "cache"))
assert list(loaded) == ["train", "validation"], list(loaded)
row = loaded["train"][0]
assert row["image"].size == (6, 4)
names = loaded["train"].features["labels"].feature.names
assert [names[code] for code in row["labels"]] == ["cup"] and [names[code] for code in row["absent"]] == ["fork"]

live = hf.from_datasets(loaded, images_to=folder / "live")
assert states(live) == states(data)
streamed = datasets.load_dataset(str(folder / "hub"), streaming=True, cache_dir=str(folder / "cache"))
assert states(hf.from_datasets(streamed, images_to=folder / "streamed")) == states(data)
loaded.save_to_disk(str(folder / "saved"))
assert states(hf.read(folder / "saved", images_to=folder / "from-saved")) == states(data)

features = datasets.Features(
    {"image": datasets.Image(), "labels": datasets.Sequence(datasets.ClassLabel(names=["cup", "spoon"]))}
)
made = datasets.Dataset.from_dict({"image": [str(folder / "photos" / "3.png")], "labels": [[1]]}, features=features)
made.to_parquet(str(folder / "made.parquet"))
read = hf.read(folder / "made.parquet", images_to=folder / "from-made", absent_means="absent")
assert states(read) == [("3.png", "cup", 0), ("3.png", "spoon", 1)], states(read)
print("same labels")
"""


def test_the_package_reads_what_is_written_and_is_read(tmp_path):
    packages = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
    subprocess.run([*pip, "datasets==5.2.0", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0"], check=True)
    script = Path(tmp_path / "bridge.py")
    script.write_text(f"import sys\nsys.path.append({str(packages)!r})\n{SCRIPT}", encoding="utf-8")
    (tmp_path / "work").mkdir()
    found = subprocess.run([sys.executable, script, tmp_path / "work"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip().endswith("same labels")
