"""Going on with a feature cache that is there already: what of it can be kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.errors import TagfillError
from tagfill.loading.cache import wrong_lengths
from tagfill.loading.manifest import Manifest
from tagfill.loading.view_arrays import shapes_of

_SAME = ("images", "backbone", "fingerprint", "preprocessing", "seed")


def take_over(folder: Path, wanted: Manifest, covered: dict[str, NDArray[np.int64]]) -> bool:
    """Take over what an existing cache in `folder` has done, if it is of the same making.

    Complete views that are not asked for are kept. A view is made anew if it is damaged or of other rows, and
    forgotten if it is neither complete nor asked for.

    Args:
        folder: of the cache.
        wanted: a manifest of the views asked for; it becomes that of the cache.
        covered: rows of each view asked for.

    Returns:
        Whether everything is there already.
    """
    if not (folder / "manifest.json").exists():
        return False
    there = Manifest.read(folder)
    for name in _SAME:
        if getattr(there, name) != getattr(wanted, name):
            raise _refused(folder, name)
    if wanted.dtype not in (there.dtype, "auto"):
        raise _refused(folder, "dtype")
    wanted.dtype, wanted.shard_rows, wanted.missing = there.dtype, there.shard_rows, there.missing
    wanted.tokens = there.tokens  # all views alike: a cache that was made without them goes on without them
    for name, record in there.views.items():
        if name in covered:
            if _usable(folder, name, there, covered[name]):
                wanted.views[name] = record
        elif record.done == record.rows:
            wanted.views[name] = record
    wanted.views = dict(sorted(wanted.views.items(), key=lambda item: (item[1].number, item[0])))
    return there == wanted and all(record.finished for record in there.views.values())


def _usable(folder: Path, view: str, manifest: Manifest, rows: NDArray[np.int64]) -> bool:
    """Whether what is done of a view is whole and of these rows."""
    if any(wrong_lengths(folder, view, manifest)):
        return False
    try:
        arrays = {
            name: np.load(folder / "views" / view / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("rows", *shapes_of(len(rows), manifest))
        }
    except (OSError, ValueError, EOFError):
        return False
    shapes = {"rows": (len(rows),), **shapes_of(len(rows), manifest)}
    return all(arrays[name].shape == shape for name, shape in shapes.items()) and np.array_equal(arrays["rows"], rows)


def _refused(folder: Path, name: str) -> TagfillError:
    return TagfillError(
        f"{folder} already holds a feature cache with other {name}; choose another folder or delete it."
    )
