"""Errors of estimates from tags alone; writes benchmarks/results/estimates.json and docs/benchmarks/estimates.md.

Reads cross-fitted logits, so that changes of the estimates are measured in seconds: a folder of files DATA-WAY.npz with
`Z` (N×L logits of models that were not trained on the image), `labels` (1 present, -1 unknown), `truth` (1, 0), and
optionally `fold` (N), `Zv` (folds×M×L) and `Yv` (M×L): logits of the fold models on images with complete labels.

    python benchmarks/estimates/run.py --logits FOLDER
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from page import page

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

from tagfill.curation.estimates import choose_additions, estimate_labels, measure_labels
from tagfill.probabilities import calibrate, sigmoid

RECORD = Record("estimates", ("curation", "inference"), libraries=("torch",))
DATA = {"voc": "VOC 2012", "scenes": "scenes", "coco": "COCO", "voc1200": "VOC 2012", "coco1200": "COCO"}
WAYS = {"one": "one per image", "random40": "at random", "small": "when small"}
TARGET = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, help="folder with DATA-WAY.npz")
    folder = parser.parse_args().logits
    results = RECORD.begin(" --logits FOLDER") | {"target": TARGET, "cases": []}
    for data in DATA:
        for way in WAYS:
            path = folder / f"{data}-{way}.npz"
            if path.exists():
                say(path.stem)
                results["cases"].append({"data": DATA[data], "way": WAYS[way], **case(dict(np.load(path)))})
    RECORD.write(results, page(results))


def case(content: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What is said without, from tags, and from complete labels, against the truth."""
    logits, labels, truth = content["Z"], content["labels"], content["truth"]
    estimates = estimate_labels(logits, labels)
    assert estimates is not None
    priors = (truth == 1).mean(0)
    found: dict[str, Any] = {
        "images": len(labels),
        "classes": labels.shape[1],
        "true": {
            "given": float((labels == 1).sum() / (truth == 1).sum()),
            "labels_per_image": float(priors.sum()),
            "missing": int(((labels < 0) & (truth == 1)).sum()),
        },
        "scores": quality(sigmoid(logits), labels, truth),
        "estimated": quality(estimates(logits, labels), labels, truth)
        | {
            "given": estimates.given_share,
            "labels_per_image": estimates.labels_per_image,
            "prior_error": float(np.abs(estimates.priors - priors).mean() / priors.mean()),
        },
    }
    if "Zv" in content:
        probability, parts = np.zeros(labels.shape), []
        for fold, complete in enumerate(content["Zv"]):
            rows = content["fold"] == fold
            part = measure_labels(calibrate(complete, content["Yv"]), logits[rows], labels[rows])
            probability[rows] = part(logits[rows], labels[rows])
            parts.append(part)
        found["measured"] = quality(probability, labels, truth) | {
            "given": float(np.mean([part.given_share for part in parts])),
            "labels_per_image": float(np.mean([part.labels_per_image for part in parts])),
        }
    return found


def quality(probability: NDArray[np.float64], labels: NDArray[np.int8], truth: NDArray[np.int8]) -> dict[str, Any]:
    """How far the probabilities of unknown pairs can be believed."""
    unknown, present = labels < 0, truth == 1
    added = choose_additions(probability, labels, precision=TARGET).mask
    bands = {}
    for low, high in ((0.5, 0.8), (0.8, 0.9), (0.9, 1.01)):
        band = unknown & (probability >= low) & (probability < high)
        bands[f"{low:g}"] = [float(present[band].mean()) if band.any() else None, int(band.sum())]
    return {
        "missing": float(probability[unknown].sum()),
        "precision": float(present[added].mean()) if added.any() else None,
        "found": float(present[added].sum() / present[unknown].sum()),
        "bands": bands,
    }


if __name__ == "__main__":
    main()
