"""A contestant: Tagfill's training of the head, of the top, or of the whole network, an epoch a round."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from contest import TurnsWithPeak

from tagfill.dataset import Dataset
from tagfill.training import Saving, build_recipe, start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--pretrained", required=True)
    parser.add_argument("--train", required=True, choices=("head", "top", "all"))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--features", type=Path, help="a cache of the last features, or of an inner stage")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    settings: dict[str, Any] = {
        "dataset": str(options.folder),
        "method": "an",
        "backbone": options.backbone,
        "pretrained": False if options.pretrained == "none" else options.pretrained,
        "batch_size": options.batch,
        "image_size": 224,
        "precision": options.precision,
    }
    recipe = build_recipe(settings, features=options.features, epochs=1000, train=options.train)
    with tempfile.TemporaryDirectory(prefix="top-") as out:
        start(
            Dataset.open(options.folder),
            recipe,
            out=Path(out) / "run",
            workers=0 if options.features else 1,
            saving=Saving(every_minutes=None),
            progress=TurnsWithPeak(),
        )


if __name__ == "__main__":
    main()
