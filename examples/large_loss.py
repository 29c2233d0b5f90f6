"""Large loss with BoostLU: the wrong negatives are those that the network learns last.

Every unknown label is read as absent. Once the first epoch is over, those that are in truth present stand out by
their large losses: `ll-r` rejects them, `ll-ct` corrects them for a step, `ll-cp` for good. BoostLU multiplies what
class maps say above zero, in training and afterwards, so that a small object is not averaged away. It can also be put
on a model that was trained without it. (Kim et al., CVPR 2022 and 2023)

    python examples/large_loss.py

A minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--methods", nargs="+", default=["ll-r", "ll-ct", "ll-cp"])
parser.add_argument("--out", type=Path, default=Path("runs/large-loss"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
part = tagfill.protocols.single_positive(data, seed=1200)


def show(name: str, run: tagfill.Run, boost: float | None = None) -> None:
    """Score a run on the test images; `boost` replaces the one that it was trained with."""
    table = tagfill.evaluate(run, part, split="test", features=cache, boost=boost)
    print(f"{name:<24}{100 * table.mean:>10.1f}")


print(f"{'method':<24}{'test mAP':>10}")
settings = {"features": cache, "epochs": args.epochs, "force": True}
plain = tagfill.train(part, method="an", out=args.out / "an", **settings)
show("an", plain)
show("an, boosted afterwards", plain, boost=5.0)
for method in args.methods:
    show(method, tagfill.train(part, method=method, out=args.out / method, **settings))
show("ll-r, BoostLU", tagfill.train(part, method="ll-r", boost=5.0, out=args.out / "ll-r-boost", **settings))
