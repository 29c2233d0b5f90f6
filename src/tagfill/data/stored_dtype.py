"""How features are stored: in 8 bits if that keeps enough of them, measured on a few images, else in half precision."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tagfill.data.cache_writer import compute_features
from tagfill.data.feature_cache import MAX_INNER_ERROR, FeatureCache, quantization_problem, quantize_signed
from tagfill.data.sources import ViewRequest, load_inner, load_views
from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import EVAL
from tagfill.models import Backbone
from tagfill.models.stages import FEATURES
from tagfill.progress import Progress

_PROBED_IMAGES = 32


def choose_dtype(
    dataset: Dataset, backbone: Backbone, at: str, dtype: str, progress: Progress, inner: FeatureCache | None = None
) -> str:
    """Choose the dtype of the stored features, after a look at the features of a few images.

    Args:
        dataset: dataset with the images.
        backbone: in evaluation mode.
        at: stage whose output is stored.
        dtype: `auto`, or what the user wants, which is refused if it would clip features.
        progress: receives the reason for half precision.
        inner: cache of an inner stage to compute from, instead of images.
    """
    if at != FEATURES:
        return _choose_inner_dtype(dataset, backbone, at, dtype, progress)
    if backbone.bound is None:
        if dtype == "uint8":
            raise TagfillError(
                f"The features of {backbone.name} have no upper bound, so uint8 would clip them; choose float16."
            )
        return "float16" if dtype == "auto" else dtype
    if dtype not in ("auto", "uint8"):
        return dtype
    probed = _probe_images(dataset, backbone, at, inner)
    problem = quantization_problem(probed, backbone.bound) if len(probed) else None
    if problem is None:
        return "uint8"
    if dtype == "uint8":
        raise TagfillError(f"The features of {backbone.name} cannot be stored as uint8: {problem}; choose float16.")
    progress.say(f"features are stored as float16: {problem}")
    return "float16"


def _choose_inner_dtype(dataset: Dataset, backbone: Backbone, at: str, dtype: str, progress: Progress) -> str:
    """8 bits if they change the features at the end of the backbone little enough, else half precision."""
    if dtype != "auto":
        return dtype
    probed = _probe_images(dataset, backbone, at)
    if not len(probed):
        return "uint8"
    top, device = backbone.above(at).eval(), next(backbone.parameters()).device
    with torch.inference_mode():
        exact = top(torch.from_numpy(probed).permute(0, 3, 1, 2).to(device))
        stored, scale, offset = quantize_signed(probed)
        rounded = torch.from_numpy(stored * scale + offset).permute(0, 3, 1, 2)
        error = float((top(rounded.to(device)) - exact).square().mean() / exact.square().mean()) ** 0.5
    if error <= MAX_INNER_ERROR:
        return "uint8"
    progress.say(f"stored as float16: 8 bits of {at} would change the features at the end by {error:.1%}")
    return "float16"


def _probe_images(
    dataset: Dataset, backbone: Backbone, at: str, inner: FeatureCache | None = None
) -> NDArray[np.float32]:
    """Features of a few images, n×G×G×D, from a cache of an inner stage if given; bad images are left out."""
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(_PROBED_IMAGES, len(dataset))).astype(np.int64))
    requests = [[ViewRequest(int(row), int(row)) for row in rows]]
    if inner is None:
        (views,) = load_views(dataset, requests, EVAL, backbone.preprocessing.size, seed=0, workers=0)
    else:
        (views,) = load_inner(dataset, inner, requests, "eval")
    if not len(views.kept):
        return np.empty((0, 1, 1, 1), np.float32)
    return compute_features(backbone if inner is None else backbone.above(inner.at).eval(), views.pixels, at=at)[0]
