"""A small dataset on disk, and a tagger that knows the truth through noise and a bias."""

from __future__ import annotations

import numpy as np

from tagfill import Dataset

CLASSES = ("cup", "spoon", "fork", "plate")


def make_truth(images=250, seed=0):
    """N×4, present or not; every image shows something."""
    rng = np.random.default_rng(seed)
    truth = rng.random((images, len(CLASSES))) < (0.5, 0.3, 0.2, 0.15)
    truth[np.arange(images), rng.integers(len(CLASSES), size=images)] = True
    return truth


def make_scores(truth, seed=0, noise=0.6):
    """Cosines with a bias of each class and each image."""
    rng = np.random.default_rng(seed)
    bias = rng.normal(size=(1, truth.shape[1])) + rng.normal(size=(len(truth), 1))
    return 0.2 + 0.02 * (2 * truth + bias + noise * rng.normal(size=truth.shape))


def make_dataset(folder, truth, seed=0):
    """One tag of each image is known."""
    rng = np.random.default_rng(seed)
    names = [f"{number}.jpg" for number in range(len(truth))]
    rows = [
        {"image": name, "label": CLASSES[rng.choice(np.flatnonzero(shown))], "present": True}
        for name, shown in zip(names, truth, strict=True)
    ]
    images = [{"image": name, "split": "train"} for name in names]
    return Dataset.from_records("table", folder, CLASSES, images, rows).save(folder)
