"""EPR, ROLE and LinearInit: one positive label per image, and the expected number of labels.

`epr` learns from the known positives and holds the classifier to the number of labels that an image has on average.
`role` also estimates every unknown label, in a table that is trained along. LinearInit is a way to train the whole
network: first the head on features of the frozen backbone, then everything, from that head and that table. In Tagfill
these are two stages of one run. (Cole et al., CVPR 2021)

    python examples/single_positives.py

Five minutes on one core, most of it in the second stage; two more the first time, for features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15, help="of heads")
parser.add_argument("--network-epochs", type=int, default=1, help="of the whole network, which are the long ones")
parser.add_argument("--out", type=Path, default=Path("runs/single-positives"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
part = tagfill.protocols.single_positive(data, seed=1200)

print(f"{'method':<24}{'test mAP':>10}")
for method in ("an", "epr", "role"):
    run = tagfill.train(part, method=method, features=cache, epochs=args.epochs, out=args.out / method, force=True)
    table = tagfill.evaluate(run, part, split="test", features=cache)
    print(f"{method:<24}{100 * table.mean:>10.1f}")

stages = [
    {"name": "linear", "input": "cache", "epochs": args.epochs, "optimizer": {"lr": 1e-3}},
    {
        "name": "everything",
        "input": "images",
        "train": "all",
        "epochs": args.network_epochs,
        "optimizer": {"lr": 1e-4},
        "start": {"head": "best", "memory": "best"},  # the memory of ROLE is its table
    },
]
run = tagfill.train(part, method="role", features=cache, stages=stages, out=args.out / "linear-init", force=True)
table = tagfill.evaluate(run, part, split="test")  # on images: the backbone is not the one of the cache any more
print(f"{'role, LinearInit':<24}{100 * table.mean:>10.1f}")
