"""Query2Label: each class asks the image where it is, by attention over the cells of the features.

The head is a choice beside the method. `linear` averages the cells and `cam` classifies each of them; `query` has a
small transformer in which a learned question for each class attends to the cells, which costs more weights and often
ranks better. It has no class maps, but its attention tells where it looked. Here it learns from complete labels, and
from one label per image. (Liu et al., arXiv 2107.10834)

    python examples/query_head.py

Three minutes on one core, and two more the first time, for the features of 1,200 scenes.
"""

import argparse
from pathlib import Path

import tagfill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", type=int, default=600, help="training images; a third as many validate, two thirds test")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--heads", nargs="+", default=["linear", "cam", "query"])
parser.add_argument("--out", type=Path, default=Path("runs/query-head"))
args = parser.parse_args()

data = tagfill.scenes.make(train=args.train, val=args.train // 3, test=2 * args.train // 3)
cache = tagfill.features(data)
single = tagfill.protocols.single_positive(data, seed=1200)

settings = {"linear": {"lr": 1e-3}, "cam": {"lr": 1e-3}, "query": {"lr": 3e-4, "width": 128, "heads": 4}}

print(f"{'labels and head':<24}{'test mAP':>10}{'weights':>12}")
for labels, part, method in (("complete", data, "asl"), ("single", single, "role")):
    for head in args.heads:
        run = tagfill.train(
            part,
            method=method,
            head=head,
            features=cache,
            epochs=args.epochs,
            out=args.out / f"{labels}-{head}",
            force=True,
            **settings[head],
        )
        table = tagfill.evaluate(run, part, split="test", features=cache)
        model = tagfill.models.Classifier.load(run.model_folder)
        weights = sum(parameter.numel() for parameter in model.head.parameters())
        print(f"{labels + ', ' + head:<24}{100 * table.mean:>10.1f}{weights:>12,}")
