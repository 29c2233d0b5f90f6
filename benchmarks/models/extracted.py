"""A contestant: Tagfill's extraction of the plain view, from image files to a synced and hashed cache, every round."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contest import BACKBONE, SIZE, TurnsWithPeak

from tagfill.data import FeatureCache, extract
from tagfill.dataset import Dataset
from tagfill.models import create_backbone


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Dataset.open(options.folder)
    backbone = create_backbone(BACKBONE, pretrained="bundled", image_size=SIZE)
    turns = TurnsWithPeak()
    while True:  # the manifest stays, so that the look that decides on bytes happens once, in the round to warm up
        cache = extract(dataset, backbone, options.out, views="eval", workers=options.workers, progress=turns)
        options.out.with_name(f"{options.out.name}-size.json").write_text(json.dumps(size(cache)), encoding="utf-8")
        shutil.rmtree(options.out / "views")


def size(cache: FeatureCache) -> dict[str, Any]:
    """Bytes of a view of an image: as the layout states them, and all files together."""
    manifest = cache.manifest
    rows, columns = manifest.grid
    maps = rows * columns * manifest.channels * np.dtype(manifest.dtype).itemsize
    pooled, geometry, row = 4 * manifest.channels, 4 * 7, 8
    views = sum(view.rows for view in manifest.views.values())
    written = sum(path.stat().st_size for path in cache.folder.rglob("*") if path.is_file())
    return {
        "views": views,
        "dtype": manifest.dtype,
        "stated_bytes": maps + pooled + geometry + row,
        "bytes": written / views,
    }


if __name__ == "__main__":
    main()
