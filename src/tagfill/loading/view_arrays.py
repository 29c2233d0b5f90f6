"""The arrays of a cached view that hold a row for each image, open for writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagfill.files import replacing, sync_file
from tagfill.images import Geometry
from tagfill.loading.cached_view import pack_geometry
from tagfill.loading.manifest import Manifest


class ViewArrays:
    """`rows`, `geometry`, `pooled`, `token` and `scales` of a view; made anew unless some of its rows are done.

    Attributes:
        folder: of the view.
        geometry: n×7 float32; whole images until written.
        pooled: n×D float32; zeros until written.
        token: n×D float32; empty where class tokens are not kept.
        scales: shards×D float32; empty where features are not bytes.
        paths: of the files.
    """

    def __init__(self, folder: Path, rows: NDArray[np.int64], manifest: Manifest, *, done: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        shapes = shapes_of(len(rows), manifest)
        if not done:
            for path in folder.iterdir():
                path.unlink()
            with replacing(folder / "rows.npy") as file:
                np.save(file, rows, allow_pickle=False)
        self._arrays = {name: self._open(name, shape, done) for name, shape in shapes.items()}
        self.geometry, self.pooled = self._arrays["geometry"], self._arrays["pooled"]
        self.token = self._arrays.get("token", np.empty((0, 0), np.float32))
        self.scales = self._arrays.get("scales", np.empty((0, 0), np.float32))
        if not done:
            self.geometry[:] = pack_geometry(Geometry.whole(len(rows)))
        self.paths = [folder / f"{name}.npy" for name in ("rows", *shapes)]

    def _open(self, name: str, shape: tuple[int, ...], done: int) -> NDArray[Any]:
        path = self.folder / f"{name}.npy"
        if done:
            return np.load(path, mmap_mode="r+", allow_pickle=False)  # type: ignore[no-any-return]
        if 0 in shape:  # nothing to map
            np.save(path, np.empty(shape, np.float32), allow_pickle=False)
            return np.empty(shape, np.float32)
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)

    def sync(self) -> None:
        """Put what was written on disk, before the manifest counts it."""
        for name, array in self._arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            sync_file(self.folder / f"{name}.npy")

    def __enter__(self) -> ViewArrays:
        return self

    def __exit__(self, *error: object) -> None:
        self.sync()


def shapes_of(rows: int, manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Of the arrays of a view of so many rows, besides `rows`."""
    shapes: dict[str, tuple[int, ...]] = {"geometry": (rows, 7), "pooled": (rows, manifest.channels)}
    if manifest.tokens:
        shapes["token"] = (rows, manifest.channels)
    if manifest.dtype == "uint8":
        shapes["scales"] = (-(-rows // manifest.shard_rows), manifest.channels)
    return shapes
