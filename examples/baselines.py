"""Baselines side by side: what a loss alone makes of labels that nobody looked at.

Each training image keeps one of its labels. `an` reads the others as absent and is the floor, `full` knows them all
and is the ceiling; between them are losses that weigh absent labels less (`wan`), forget easy ones (`asl`), claim
nothing (`em-apl`), distrust large ones (`hill`), or take confident predictions for labels (`splc`). `compare` trains
all of them with the same settings and ranks them; a second call with the same settings only reads what is there.

    python examples/baselines.py

Two minutes on two cores, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--methods", default="wan,asl,em-apl,hill,splc", help="names, joined by commas")
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--seeds", type=int, default=1, help="runs of each method; take three for a table to believe")
parser.add_argument("--jobs", type=int, default=None, help="processes at once; one a core by default")
parser.add_argument("--out", type=Path, default=Path("runs/baselines"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)  # a frozen backbone looks at every image once; all runs below share what it saw
part = tagfill.protocols.single_positive(data, seed=1200).save(args.out / "data")

board = tagfill.compare(
    part,
    args.methods,
    out=args.out / f"{args.train}-images-{args.epochs}-epochs",
    features=cache,
    epochs=args.epochs,
    seeds=args.seeds,
    jobs=args.jobs,
    report=False,  # True writes report.html beside the leaderboard
)

print(f"{'method':<24}{'test mAP':>10}{'gap closed':>12}")
for score in board.scores:
    print(f"{score.name:<24}{score.mean:>10.1f}{score.gap_closed:>12.0%}")
