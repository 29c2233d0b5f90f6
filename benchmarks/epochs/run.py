"""Which epoch to keep, and which method, without complete labels; writes benchmarks/results/epochs.json and its page.

Uses the features and the draws of tags that `benchmarks/fill/run.py` left in its work folder.

    python benchmarks/epochs/run.py --work runs/fill --voc VOCdevkit --coco PHOTOS LABELS.csv.gz
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from page import page
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "fill"))

from bookkeeping import Record, say
from cases import Case, cases

from tagfill import losses
from tagfill.data import FeatureCache
from tagfill.metrics import average_precision, roc_auc
from tagfill.training.cross_fitting import choose_epoch

RECORD = Record("epochs", ("losses", "metrics", "training"), libraries=("torch",))
EPOCHS, SHORT, FOLDS, BATCH, RATE = 50, 10, 3, 16, 1e-3
TRAIN_PHOTOS, TEST_PHOTOS = 1000, 1000
METHODS = ("an", "wan", "em")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/fill"))
    parser.add_argument("--voc", type=Path)
    parser.add_argument("--coco", type=Path, nargs=2, metavar=("PHOTOS", "LABELS"))
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = RECORD.begin() | {"epochs": EPOCHS, "short": SHORT, "folds": FOLDS, "cases": []}
    for case in cases(options.work.absolute(), options.voc, options.coco):
        for seed in range(options.seeds):
            say(f"{case.name}, draw {seed}")
            results["cases"].append(summarize(measure(case, options.work.absolute(), seed)))
    RECORD.write(results, page(results))


def measure(case: Case, work: Path, seed: int) -> dict[str, Any]:
    """Per method and epoch: mAP on test photos with all labels, and cross-fitted mAP and AUC of the known tags.

    What an earlier call has measured is read.
    """
    outcome = work / "epochs" / f"{case.name.replace(' ', '-').lower()}-{seed}.json"
    if outcome.exists():
        return dict(json.loads(outcome.read_text(encoding="utf-8")))
    folder = work / case.name.replace(" ", "-").lower() / f"seed-{seed}"
    with (folder / "tags.csv").open(encoding="utf-8", newline="") as file:
        given = {row["image"]: row["tag"] for row in csv.DictReader(file)}
    cache = FeatureCache.open(next((folder / "filled" / "work").glob("features-*")))
    names = image_names(cache.folder)
    classes = sorted({tag for tags in case.truth.values() for tag in tags})
    column = {name: at for at, name in enumerate(classes)}
    order = np.random.default_rng(seed).permutation([row for row, name in enumerate(names) if name in given])
    count = min(TRAIN_PHOTOS, 2 * len(order) // 3)
    train, test = np.sort(order[:count]), np.sort(order[count : count + TEST_PHOTOS])
    labels = np.full((len(train), len(classes)), -1)
    labels[np.arange(len(train)), [column[given[names[row]]] for row in train]] = 1
    truth = np.zeros((len(test), len(classes)), dtype=int)
    for place, row in enumerate(test):
        truth[place, [column[tag] for tag in case.truth[names[row]]]] = 1
    plain = {view: pooled(cache, view, train) for view in ("eval", *cache.weak_views)}
    found: dict[str, Any] = {"case": case.name, "seed": seed, "photos": len(train), "classes": len(classes)}
    for method in METHODS:
        whole = train_head(method, plain, np.arange(len(train)), labels, pooled(cache, "eval", test), seed)
        curve = [mean_ap(logits, truth) for logits in whole]
        held = np.zeros((EPOCHS, *labels.shape), dtype=np.float32)
        folds = np.random.default_rng(seed).permutation(len(train)) % FOLDS
        for fold in range(FOLDS):
            inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            held[:, outside] = train_head(method, plain, inside, labels, plain["eval"][outside], seed)
        tags = (labels == 1).astype(int)
        found[method] = {
            "test": curve,
            "cross_fitted_mAP": [mean_ap(logits, tags) for logits in held],
            "cross_fitted_AUC": [mean_auc(logits, tags) for logits in held],
        }
    outcome.parent.mkdir(exist_ok=True)
    outcome.write_text(json.dumps(found), encoding="utf-8")
    return found


def summarize(found: dict[str, Any]) -> dict[str, Any]:
    """Test mAP after the epochs that the rules choose."""
    rows = []
    for method in METHODS:
        test, rules = found[method]["test"], {}
        for name in ("AUC", "mAP"):
            scores = np.array([found[method][f"cross_fitted_{name}"]])
            epochs = [choose_epoch(scores[:, :count]) for count in (EPOCHS, SHORT)]
            rules[name] = {"epochs": epochs, "test": [test[epoch - 1] for epoch in epochs]}
            rules[name]["of_short"] = found[method][f"cross_fitted_{name}"][SHORT - 1]
        best = int(np.argmax(test))
        rows.append(
            {"method": method, "short": test[SHORT - 1], "long": test[-1], "best": test[best], "best_epoch": best + 1}
            | {"chosen": rules}
        )
    return {name: found[name] for name in ("case", "seed", "photos", "classes")} | {"methods": rows}


def image_names(folder: Path) -> list[str]:
    """Names of the images of a cache, in the order of its rows."""
    import pyarrow.parquet as pq

    names: list[str] = pq.read_table(folder / "images.parquet")["image"].to_pylist()
    return names


def pooled(cache: FeatureCache, view: str, rows: NDArray[np.int64]) -> Tensor:
    """Mean features of images: n×D."""
    opened = cache.view(view)
    return torch.from_numpy(np.asarray(opened.pooled(opened.find(rows)), dtype=np.float32))


def train_head(
    method: str, views: dict[str, Tensor], rows: NDArray[np.int64], labels: NDArray[np.int64], test: Tensor, seed: int
) -> NDArray[np.float32]:
    """Logits of test images after each epoch of a linear head: epochs×n×L."""
    torch.manual_seed(seed)
    crops = [features for name, features in views.items() if name != "eval"] or [views["eval"]]
    known = torch.from_numpy(labels)
    head = torch.nn.Linear(test.shape[1], labels.shape[1])
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    found = []
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        order = rng.permutation(rows)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            loss = loss_of(method, head(crops[rng.integers(len(crops))][batch]), known[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found.append(head(test).numpy())
    return np.stack(found)


def loss_of(method: str, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of a method."""
    if method == "em":
        return losses.entropy_maximization(logits, labels)
    weight = 1 / (logits.shape[1] - 1) if method == "wan" else 1.0
    return losses.assume_negative(logits, labels, negative_weight=weight)


def mean_ap(logits: NDArray[np.float32], present: NDArray[np.int64]) -> float:
    """MAP in percent over the classes that occur."""
    some = present.any(0)
    return 100 * float(np.nanmean(average_precision(logits[:, some], present[:, some])))


def mean_auc(logits: NDArray[np.float32], present: NDArray[np.int64]) -> float:
    """Mean area under the ROC curve in percent over the classes that occur."""
    return 100 * float(np.nanmean(roc_auc(logits, present)))


if __name__ == "__main__":
    main()
