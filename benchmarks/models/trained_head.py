"""A contestant: Tagfill's training of a head, on a cache or on images through the frozen backbone; an epoch a round."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from contest import BACKBONE, SIZE, TurnsWithPeak

from tagfill.dataset import Dataset
from tagfill.training import Saving, make_recipe, start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--head", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--cache", action="store_true")
    options = parser.parse_args()
    source: dict[str, Any] = {"image_size": SIZE}
    if options.cache:
        source = {"features": str(options.folder / "cache")}
    recipe = make_recipe(
        {
            "dataset": str(options.folder),
            "method": "an",
            "backbone": BACKBONE,
            "head": options.head,
            **({"head_options": options.options} if options.options else {}),
            "batch_size": options.batch,
            "stages": [{"input": "cache" if options.cache else "images", "train": "head", "epochs": 100_000}],
            **source,
        }
    )
    with tempfile.TemporaryDirectory(prefix="models-") as own:
        start(
            Dataset.open(options.folder),
            recipe,
            out=Path(own) / "run",
            workers=0 if options.cache else 1,
            saving=Saving(every_minutes=None),
            progress=TurnsWithPeak(),
        )


if __name__ == "__main__":
    main()
