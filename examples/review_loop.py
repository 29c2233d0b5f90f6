"""The loop: train, suggest what is probably missing, have it decided, train again.

Each training image has one known label. `suggest` ranks what nobody looked at by how probable it is, with models that
did not see the image in question. Here the complete labels of the scenes play the reviewer; with photos of your own
that is the page of `tagfill review`, whose decisions become the same rows. They come back into the dataset, the
features are still right, and a second model learns from both.

    python examples/review_loop.py

Half a minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--decisions", type=int, default=1800, help="what the reviewer decides; an hour at 2 s each")
parser.add_argument("--out", type=Path, default=Path("runs/review-loop"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
part = tagfill.protocols.single_positive(data, seed=1200)
settings = {"method": "en", "features": cache, "epochs": args.epochs, "force": True}

first = tagfill.train(part, out=args.out / "first", **settings)
found = tagfill.suggest(part, first, folds=2, missing=args.decisions, wrong=0, minimum=0.0, features=cache, jobs=1)

place = {image: number for number, image in enumerate(data.names())}
truth = data.labels().dense()
decisions = [
    {
        "image": one["image"],
        "label": one["label"],
        "present": bool(truth[place[one["image"]], data.classes.index(one["label"])] == 1),
        "source": "review",
    }
    for one in found.suggestions.table.to_pylist()
]
reviewed = part.with_records(decisions)
second = tagfill.train(reviewed, out=args.out / "second", **settings)

right = sum(decision["present"] for decision in decisions) / len(decisions)
random = (data.labels("train").dense()[part.labels("train").dense() == -1] == 1).mean()
print(f"{right:.0%} of {len(decisions)} suggested labels are there; of as many random ones it would be {random:.0%}")
print(f"{'model':<24}{'test mAP':>10}")
for name, run in (("before the review", first), ("after it", second)):
    print(f"{name:<24}{100 * tagfill.evaluate(run, data, split='test', features=cache).mean:>10.1f}")
for seen in tagfill.predict(second, Path(data.root) / data.names(data.split("test")[:1])[0], top_k=3):
    print(f"{Path(seen.image).name}: {', '.join(f'{label} {score:.0%}' for label, score in seen.scores.items())}")
