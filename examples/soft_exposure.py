"""Soft Exposure: an unknown label is judged by what is known nearby, and pushed more or less hard.

A third of the labels that are present was found by somebody, and about as many were found to be absent. `ne` leaves
all others out, `wne` as well but listens more to images of which little is known, `fe` calls them absent. `se` asks
which known labels of the same image and of alike images are near, and softens what it concludes by how near they are:
`se-l` by the labels alone, `se-i` by the images alone. (Kundu and Tighe, NeurIPS 2020)

    python examples/soft_exposure.py

Half a minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--methods", nargs="+", default=["ne", "wne", "fe", "se-l", "se-i", "se"])
parser.add_argument("--fraction", type=float, default=0.3, help="of the present labels, those that somebody found")
parser.add_argument("--out", type=Path, default=Path("runs/soft-exposure"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
part = tagfill.protocols.positive_fraction(data, fraction=args.fraction, ratio=1.25)

known = part.labels("train")
print(f"{known.positives.sum()} present and {known.negatives.sum()} absent labels are known of {len(known)} images")
print(f"{'method':<24}{'test mAP':>10}{'test mF1':>10}")
for method in args.methods:
    run = tagfill.train(part, method=method, features=cache, epochs=args.epochs, out=args.out / method, force=True)
    table = tagfill.evaluate(run, part, split="test", features=cache)
    print(f"{method:<24}{100 * table.mean:>10.1f}{100 * table.counts.mean_f1:>10.1f}")
