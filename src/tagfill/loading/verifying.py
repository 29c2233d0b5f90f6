"""Whether every byte of a feature cache is the one that was written."""

from __future__ import annotations

from tagfill.files import sha256
from tagfill.loading.cache import FeatureCache
from tagfill.loading.cached_view import damaged
from tagfill.progress import SILENT, Progress


def verify(cache: FeatureCache, progress: Progress = SILENT) -> int:
    """Read all files of a cache and compare their hashes with the manifest.

    Args:
        cache: opened, so that all files are there and as long as they should be.
        progress: told about each file.

    Returns:
        The number of bytes read.

    Raises:
        TagfillError: if one differs.
    """
    files = [
        (cache.folder / "views" / view / name, record)
        for view, held in cache.manifest.views.items()
        for name, record in held.files.items()
    ]
    with progress.bar("verify", len(files), "file") as bar:
        for path, record in files:
            if sha256(path) != record.sha256:
                raise damaged(path, "does not hold the bytes that were written")
            bar.advance()
    return sum(record.bytes for _, record in files)
