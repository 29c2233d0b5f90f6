"""Speed of average precision; writes benchmarks/results/metrics.json and docs/benchmarks/metrics.md.

Tagfill, scikit-learn, torchmetrics and a bare sort of the scores take turns on the same arrays, one thread each.
torchmetrics sees 100 classes and is extrapolated; needs the extra `bench`.

    python benchmarks/metrics/run.py           125,000 images × 5,000 classes; about ten minutes and 4 GB
    python benchmarks/metrics/run.py --quick   20,000 × 200, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from page import PREVALENCE, page
from sklearn.metrics import average_precision_score

import tagfill.torchvision_remedy  # noqa: F401  (before torchmetrics, which imports torchvision)
from tagfill.metrics import average_precision

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "models")]

from bookkeeping import Record, say
from contest import ExtraMemory

RECORD = Record("metrics", ("metrics",))
SHOWN_TO_TORCHMETRICS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small run that writes no file")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    images, classes, block = (20_000, 200, 100) if quick else (125_000, 5_000, 500)
    results: dict[str, Any] = {
        **RECORD.begin(),
        "images": images,
        "classes": classes,
        **measure(images, classes, block),
    }
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def measure(images: int, classes: int, block: int) -> dict[str, Any]:
    """CPU seconds of each over all classes, by blocks, so that what disturbs one round disturbs all contestants."""
    say("arrays")
    random = np.random.default_rng(0)
    scores = random.random((images, classes), dtype=np.float32)
    labels = np.zeros((images, classes), dtype=np.int8)
    labels.ravel()[random.integers(0, images * classes, int(PREVALENCE * images * classes))] = 1
    say("everything in one call")
    memory = ExtraMemory()
    begin = time.process_time()
    average_precision(scores, labels)
    whole, extra = time.process_time() - begin, memory.mb()
    contestants: dict[str, Callable[[NDArray[np.float32], NDArray[np.int8]], Any]] = {
        "tagfill": average_precision,
        "sort": sort,
        "scikit-learn": scikit_learn,
    }
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    differences = []
    for start in range(0, classes, block):
        say(f"classes {start}–{start + block}")
        part = slice(start, start + block)
        found = {}
        for name, contestant in contestants.items():
            begin = time.process_time()
            found[name] = contestant(scores[:, part], labels[:, part])
            taken[name].append(time.process_time() - begin)
        differences.append(float(np.abs(found["tagfill"] - found["scikit-learn"]).max()))
    say("torchmetrics")
    few = slice(0, SHOWN_TO_TORCHMETRICS)
    begin = time.process_time()
    torchmetrics_values(scores[:, few], labels[:, few])
    seconds = time.process_time() - begin
    ratios = [b / a for a, b in zip(taken["tagfill"], taken["scikit-learn"], strict=True)]
    return {
        "seconds": {name: round(sum(values), 2) for name, values in taken.items()},
        "whole": round(whole, 2),
        "times_scikit_learn": [round(ratio, 2) for ratio in ratios],
        "times_the_sort": [round(a / b, 3) for a, b in zip(taken["tagfill"], taken["sort"], strict=True)],
        "torchmetrics": {"classes": SHOWN_TO_TORCHMETRICS, "seconds": round(seconds, 2)},
        "largest_difference": max(differences),
        "arrays_mb": round((scores.nbytes + labels.nbytes) / 2**20, 1),
        "tagfill_beyond_the_arrays_mb": round(extra, 1),
    }


def sort(scores: NDArray[np.float32], labels: NDArray[np.int8]) -> None:
    """What cannot be saved: each class's scores, contiguous and sorted."""
    np.ascontiguousarray(scores.T).sort(axis=1)


def scikit_learn(scores: NDArray[np.float32], labels: NDArray[np.int8]) -> NDArray[np.float64]:
    columns = zip(np.ascontiguousarray(labels.T), np.ascontiguousarray(scores.T), strict=True)
    return np.array([average_precision_score(label, score) for label, score in columns])


def torchmetrics_values(scores: NDArray[np.float32], labels: NDArray[np.int8]) -> Any:
    from torchmetrics.functional.classification import multilabel_average_precision

    target = torch.from_numpy(labels.astype(np.int64))
    return multilabel_average_precision(torch.from_numpy(scores.copy()), target, labels.shape[1], average=None)


if __name__ == "__main__":
    main()
