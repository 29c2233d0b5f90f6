"""Wrong labels: cleanlab judges probabilities that Tagfill made, beside Tagfill's own doubts.

The labels of the scenes are complete, but some of them were changed. Each image is scored by a model that was not
trained on it; cleanlab says which labels it takes for wrong, and its answers become suggestions for `tagfill review`.

    pip install 'tagfill[cleanlab]'
    python examples/label_issues.py

Half a minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import numpy as np
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class

import tagfill
from tagfill.curation.cleanlab import arrays, issues_as_suggestions

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--changed", type=float, default=0.02, help="share of the training labels that are made wrong")
parser.add_argument("--out", type=Path, default=Path("runs/label-issues"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
training = set(data.names(data.split("train")))
random = np.random.default_rng(0)
rows, changed = [], set()
for image, states in zip(data.names(), data.labels().dense(), strict=True):
    for label, present in zip(data.classes, states == 1, strict=True):
        swap = image in training and random.random() < args.changed
        rows.append({"image": image, "label": label, "present": bool(present != swap)})
        if swap:
            changed.add((image, label))
wrong = tagfill.Dataset.from_records("changed", data.root, data.classes, data.images.to_pylist(), rows)
wrong = wrong.save(args.out / "data")

run = tagfill.train(wrong, method="bce", features=cache, epochs=args.epochs, out=args.out / "run", force=True)
given = arrays(wrong, run, folds=2, jobs=1)
issues = find_multilabel_issues_per_class(given.labels, given.pred_probs, min_examples_per_class=1, n_jobs=1)
by_cleanlab = issues_as_suggestions(wrong, given, issues)
by_cleanlab.save(args.out / "issues.parquet")
by_tagfill = tagfill.suggest(wrong, run, folds=2, missing=0, jobs=1).suggestions

print(f"{len(changed)} of {len(training) * len(data.classes)} labels were changed")
print(f"{'doubted by':<12}{'wrong, %':>10}{'found, %':>10}{'labels':>8}")
for name, found in (("cleanlab", by_cleanlab), ("Tagfill", by_tagfill)):
    pairs = set(zip(found.table["image"].to_pylist(), found.table["label"].to_pylist(), strict=True))
    if pairs:
        right = len(pairs & changed)
        print(f"{name:<12}{100 * right / len(pairs):>10.1f}{100 * right / len(changed):>10.1f}{len(pairs):>8}")
print(f"look at them: tagfill review {args.out / 'data'} --suggestions {args.out / 'issues.parquet'}")
