"""Making a feature cache by names alone."""

from __future__ import annotations

from pathlib import Path

from tagfill.annotations import Dataset
from tagfill.engines import create_engine
from tagfill.files import cache_folder
from tagfill.images import input_size
from tagfill.loading import FeatureCache, extract
from tagfill.models import create_backbone
from tagfill.progress import SILENT, Progress


def features(
    dataset: Dataset | str | Path,
    *,
    backbone: str = "tf_efficientnet_lite0",
    pretrained: bool | str = "bundled",
    image_size: int | str | tuple[int, int] | None = None,
    views: str = "eval,flip,crops:2",
    out: str | Path | None = None,
    dtype: str = "auto",
    seed: int = 0,
    workers: int = 0,
    max_bad_images: float = 0.01,
    engine: str | None = None,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress = SILENT,
) -> FeatureCache:
    """Run a frozen backbone once over several views of every image, and keep what it says.

    Args:
        dataset: the data, or its folder.
        backbone: timm's name of the backbone.
        pretrained: its weights, see `tagfill.models.create_backbone`.
        image_size: side of the square input, or height and width; None takes the backbone's own.
        views: of each image; all but `eval` for the training split only.
        out: the folder; by default one below Tagfill's cache, named after images and backbone.
        dtype: of the spatial features.
        seed: of the crops, and of random weights.
        workers: processes that decode images.
        max_bad_images: share of the images that may fail to decode; they are listed and left out.
        engine: `joblib` for several processes of this machine, `ray` for those of a cluster, which must all see the
            same folders; without it this process does everything.
        jobs: processes of the engine at once on this machine; one a core by default.
        ray_address: of a Ray cluster that runs already.
        progress: told about each batch.

    Returns:
        The complete cache; one that exists already is only opened, one that was interrupted is completed, and views
        that it lacks are added.

    Example:
        >>> cache = tagfill.features("my-data", backbone="tf_efficientnet_lite0")  # doctest: +SKIP
    """
    data = dataset if isinstance(dataset, Dataset) else Dataset.open(dataset)
    size = None if image_size is None else input_size(image_size)
    trunk = create_backbone(backbone, pretrained=pretrained, image_size=size, seed=seed)
    if out is None:
        key = f"{data.identities['images'][:12]}-{trunk.fingerprint()[:12]}-{views.replace(':', '')}-{dtype}-s{seed}"
        out = cache_folder() / "features" / f"{data.name}-{backbone}-{key}"
    return extract(
        data,
        trunk,
        Path(out),
        views=views,
        dtype=dtype,
        seed=seed,
        workers=workers,
        max_bad_images=max_bad_images,
        engine=None if engine is None else create_engine(engine, workers=jobs, address=ray_address),
        progress=progress,
    )
