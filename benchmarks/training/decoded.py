"""CPU milliseconds to make one view: Tagfill against Pillow with torchvision; prints one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from ordinary import Photos

from tagfill.images import CROP, load_view


def main() -> None:
    torch.set_num_threads(1)  # as in a worker
    folder = Path(sys.argv[1]) / "images"
    ordinary = Photos(folder, set())
    names = sorted(path.name for path in folder.iterdir())
    taken: dict[str, list[float]] = {"ordinary": [], "tagfill": []}
    for epoch in range(3):
        for index, name in enumerate(names):
            begin = time.process_time()
            ordinary[index]
            middle = time.process_time()
            load_view(folder, name, CROP, (224, 224), seed=0, epoch=epoch, index=index)
            taken["ordinary"].append(middle - begin)
            taken["tagfill"].append(time.process_time() - middle)
    print(json.dumps({name: 1000 * statistics.mean(values) for name, values in taken.items()}))


if __name__ == "__main__":
    main()
