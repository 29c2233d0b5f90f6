"""PatchML and PatchCluster: what the same hours of annotation buy as tags and as points.

Annotators have a tenth of the time that it would take to look at every label of every image. They spend it on tags (1
s each), or on tags with a point on what is there (1.4 s more), and so on fewer of them. `patchml` teaches the point
to the cell of the class maps that it lies in; `patchcluster` looks for cells like those in images that nobody looked
at. mAP-loc asks whether a class map lights up where the object is, and not only whether the tag is right.

    python examples/points.py

A minute on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--percent", type=float, default=10.0, help="of the time that complete tags would take")
parser.add_argument("--out", type=Path, default=Path("runs/points"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
tags = tagfill.protocols.budget(data, percent=args.percent, kind="I")  # of the image
points = tagfill.protocols.budget(data, percent=args.percent, kind="SP")  # a single point on what is present

runs = {
    "tags": (tags, "patchml", {}),
    "points": (points, "patchml", {"w_patch": 5.0}),
    "points, PatchCluster": (points, "patchml+patchcluster", {"w_patch": 5.0}),
}
print(f"{'labels':<24}{'test mAP':>10}{'mAP-loc':>10}{'minutes':>10}{'labels':>8}")
for name, (part, method, options) in runs.items():
    run = tagfill.train(
        part,
        method=method,
        options={"patchml": options},
        head="cam",
        features=cache,
        epochs=args.epochs,
        out=args.out / name.replace(", ", "-"),
        force=True,
    )
    table = tagfill.evaluate(run, data, split="test", features=cache, localize="minmax")
    minutes, known = part.protocol["kept"]["seconds"] / 60, part.labels("train").known.sum()
    print(f"{name:<24}{100 * table.mean:>10.1f}{100 * table.localized.mean:>10.1f}{minutes:>10.0f}{known:>8,}")
