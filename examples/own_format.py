"""Your own format: from a file that nobody else writes to a trained model.

A dataset is images, classes, and a row for each thing that somebody looked at: this image, this label, present or
not. What nobody looked at has no row. So a reader of your format is a loop that collects rows; this one reads notes
such as

    images/train/00007.png | train | cup yes, spoon no, bell ?

    python examples/own_format.py

Some seconds, and two minutes the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

ANSWERS = {"yes": True, "no": False, "?": None}  # None: somebody looked, and cannot tell


def read_notes(path: Path, root: Path) -> tagfill.Dataset:
    """A dataset from a file of notes; images lie below `root`."""
    images, rows, classes = [], [], set()
    for line in path.read_text(encoding="utf-8").splitlines():
        image, split, notes = (part.strip() for part in line.split("|"))
        images.append({"image": image, "split": split})
        for note in filter(None, notes.split(", ")):
            label, answer = note.split()
            classes.add(label)
            rows.append({"image": image, "label": label, "present": ANSWERS[answer], "source": path.name})
    return tagfill.Dataset.from_records(path.stem, root, sorted(classes), images, rows)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--out", type=Path, default=Path("runs/own-format"))
args = parser.parse_args()

# A file to read: notes on the embedded scenes, of which a quarter of the training labels is known.
scenes = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
known = tagfill.protocols.random_entries(scenes, proportion=0.25)
lines = []
for image, split, labels in zip(
    scenes.names(), scenes.images["split"].to_pylist(), known.labels().dense(), strict=True
):
    words = [f"{name} {'yes' if z == 1 else 'no'}" for name, z in zip(scenes.classes, labels, strict=True) if z >= 0]
    lines.append(f"{image} | {split} | {', '.join(words)}")
args.out.mkdir(parents=True, exist_ok=True)
(args.out / "notes.txt").write_text("\n".join(lines), encoding="utf-8")

data = read_notes(args.out / "notes.txt", scenes.root).save(args.out / "dataset")  # a folder for `tagfill inspect`
print(f"{data.labels('train').known.sum()} known labels of {len(data.split('train'))} training images")
cache = tagfill.features(scenes)  # of the same list of images; features(data) would do, too
print(f"{'method':<24}{'test mAP':>10}")
for method in ("ignore", "an"):
    run = tagfill.train(data, method=method, features=cache, epochs=args.epochs, out=args.out / method, force=True)
    print(f"{method:<24}{100 * tagfill.evaluate(run, data, split='test', features=cache).mean:>10.1f}")
