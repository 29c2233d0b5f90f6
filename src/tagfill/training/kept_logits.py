"""Logits that stay in the folder of a run, so that a report does not score images again that were scored before.

    RUN/logits/SPLIT.npz    index: N positions in the split; logits: N×L float32; key

The key is a hash of the model's files, of the images of the split in their order, and of how they were read. Logits
with another key, or in a damaged file, are not used. More than `MAX_SCORES` (80 MB) are not kept.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.io import atomic_write, sha256, sha256_of_strings

FOLDER = "logits"
MAX_SCORES = 20_000_000


@dataclass(frozen=True)
class KeptLogits:
    """The kept logits of a run.

    Attributes:
        run: its folder.
        model: folder of its model.
        origin: how images were read, such as a hash of cached features; None if from image files.
    """

    run: Path
    model: Path
    origin: str | None

    def read(self, dataset: Dataset, split: str) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Positions in the split, ascending, and their logits; None if they must be computed."""
        try:
            with np.load(self._file(split), allow_pickle=False) as stored:
                if str(stored["key"]) != self._key(dataset, split):
                    return None
                index, logits = stored["index"], stored["logits"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return (index, logits) if logits.shape == (len(index), len(dataset.classes)) else None

    def write(self, dataset: Dataset, split: str, index: NDArray[np.int64], logits: NDArray[np.floating]) -> None:
        """Keep the logits of a whole split, unless there are too many or the folder cannot be written."""
        if logits.size > MAX_SCORES:
            return
        key = np.array(self._key(dataset, split))
        try:
            with atomic_write(self._file(split), sync=False) as file:
                np.savez(file, index=index, logits=logits.astype(np.float32), key=key)
        except OSError:
            return

    def _file(self, split: str) -> Path:
        plain = split.replace("-", "").replace("_", "").isalnum()
        return self.run / FOLDER / f"{split if plain else sha256_of_strings([split])}.npz"

    def _key(self, dataset: Dataset, split: str) -> str:
        names = dataset.names(dataset.split(split))
        files = sorted(path for path in self.model.iterdir() if path.is_file())

        def parts() -> Iterator[str]:
            yield split
            for path in files:
                yield path.name
                yield sha256(path)
            yield from names
            if self.origin is not None:
                yield self.origin
            else:
                yield from (_file_version(Path(dataset.root) / name) for name in names)

        return sha256_of_strings(parts())


def _file_version(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:  # missing, or inside an archive
        return str(path)
    return f"{found.st_size} {found.st_mtime_ns}"
