"""EN, CL and SCL: leave out what is probably there, and stay close to what was predicted before.

An image with one known label shows about three things. `en` counts how many positives each class ought to have, and
leaves that many of the likeliest unknown labels out instead of calling them absent. `cl` asks a prediction to agree
with earlier ones of the same image, `scl` asks it place by place, through the crops: it needs class maps, which the
head `cam` gives. Both are terms to add. (Verelst et al., WACV 2023)

    python examples/expected_negatives.py

Half a minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--methods", nargs="+", default=["an", "en", "en+cl", "en+scl"])
parser.add_argument("--out", type=Path, default=Path("runs/expected-negatives"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)  # the whole image, its mirror image and two crops, by a frozen backbone
part = tagfill.protocols.single_positive(data, seed=1200)

# How many labels an image has is counted on the validation images, whose labels are complete. Without such images, say
# it: options={"en": {"expected": 2.9}}.
print(f"{'method':<24}{'test mAP':>10}")
for method in args.methods:
    options = {"scl": {"weight": 0.1}} if "scl" in method else {}
    run = tagfill.train(
        part,
        method=method,
        options=options,
        head="cam",
        features=cache,
        epochs=args.epochs,
        out=args.out / method,
        force=True,
    )
    table = tagfill.evaluate(run, part, split="test", features=cache)
    print(f"{method:<24}{100 * table.mean:>10.1f}")

decisions = run.metrics()[-1].get("decisions", {})  # none in the first epoch, in which `en` is `an`
print(f"In its last epoch, {method} left out {decisions.get('ignored', 0)} unknown labels as probably present.")
