"""What storing an inner stage in half precision or in 8 bits costs: mAP of a linear head on frozen features.

The output of the stage is computed once and stored in each way as a feature cache does, in shards of 1,024 images. The
rest of the backbone turns it into features, on which the same head is trained with all labels, with the same seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tagfill.data.extract import SHARD_ROWS
from tagfill.data.feature_cache import quantize_signed
from tagfill.images import EVAL, load_view, open_root
from tagfill.metrics import mean_average_precision
from tagfill.models import Backbone, create_backbone

SEEDS, EPOCHS, BATCH = 3, 8, 64


def measure(voc: Path, backbone: str, pretrained: str, at: str, images: int) -> dict[str, Any]:
    """Compare the three ways on `images` training and as many validation photos of VOC 2012.

    Args:
        voc: the folder VOC2012.
        backbone: name of the backbone.
        pretrained: its weights.
        at: the stage that is stored.
        images: number of photos of each split, spread evenly over it.
    """
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=224).eval()
    top = trunk.above(at)
    splits = {split: _photos(voc, split, images) for split in ("train", "val")}
    inner = {split: _inner(trunk, voc, names, at) for split, (names, _) in splits.items()}
    results: dict[str, Any] = {"backbone": backbone, "at": at, "images": images, "shape": list(top.inner)}
    exact = None
    for kind in ("float32", "float16", "uint8"):
        pooled = {split: _pooled(top, _stored(cells, kind)) for split, cells in inner.items()}
        exact = exact or pooled
        change = np.linalg.norm(pooled["val"] - exact["val"]) / np.linalg.norm(exact["val"])
        scores = [_score(pooled, {name: labels for name, (_, labels) in splits.items()}, seed) for seed in range(SEEDS)]
        results[kind] = {"mAP": float(np.mean(scores)), "by_seed": scores, "change_of_pooled": float(change)}
    return results


def _photos(voc: Path, split: str, count: int) -> tuple[list[str], NDArray[np.float32]]:
    """Names of some photos of a split, and their labels, n×20."""
    files = sorted((voc / "ImageSets" / "Main").glob(f"*_{split}.txt"))
    lists = [[line.split() for line in file.read_text(encoding="utf-8").splitlines()] for file in files]
    chosen = np.linspace(0, len(lists[0]) - 1, count).astype(int)
    labels = np.array([[float(rows[at][1] == "1") for rows in lists] for at in chosen], np.float32)
    return [f"{lists[0][at][0]}.jpg" for at in chosen], labels


@torch.inference_mode()
def _inner(trunk: Backbone, voc: Path, names: list[str], at: str) -> NDArray[np.float32]:
    """The output of the stage, n×H×W×C."""
    root, size, found = open_root(voc / "JPEGImages"), trunk.preprocessing.size, []
    for start in range(0, len(names), 32):
        views = [load_view(root, name, EVAL, size, seed=0, epoch=0, index=0) for name in names[start : start + 32]]
        pixels = torch.from_numpy(np.stack([view[0] for view in views])).permute(0, 3, 1, 2)
        found.append(trunk.below(pixels, at).permute(0, 2, 3, 1).contiguous().numpy())
    return np.concatenate(found)


def _stored(cells: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    """Values as they are read back."""
    if kind == "float32":
        return cells
    if kind == "float16":
        return cells.astype(np.float16).astype(np.float32)
    back = []
    for start in range(0, len(cells), SHARD_ROWS):
        stored, scale, offset = quantize_signed(cells[start : start + SHARD_ROWS].copy())
        back.append(stored * scale + offset)
    return np.concatenate(back)


def _pooled(top: Any, cells: NDArray[np.float32]) -> NDArray[np.float32]:
    parts = torch.from_numpy(cells).permute(0, 3, 1, 2).split(32)
    return torch.cat([top.pooled(part) for part in parts]).numpy()


def _score(pooled: dict[str, NDArray[np.float32]], labels: dict[str, NDArray[np.float32]], seed: int) -> float:
    """mAP on the validation photos, in percent."""
    torch.manual_seed(seed)
    features, targets = torch.from_numpy(pooled["train"]), torch.from_numpy(labels["train"])
    head = nn.Linear(features.shape[1], targets.shape[1])
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(features)).split(BATCH):
            loss = nn.functional.binary_cross_entropy_with_logits(head(features[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        logits = head(torch.from_numpy(pooled["val"])).numpy()
    return 100 * float(mean_average_precision(logits, labels["val"].astype(np.int8)))


if __name__ == "__main__":
    import json
    import sys

    torch.set_num_threads(1)
    voc, backbone, pretrained, at, images = sys.argv[1:]
    print(json.dumps(measure(Path(voc), backbone, pretrained, at, int(images))), flush=True)
