"""Images that cannot be decoded: left out, written down once, and too many of them stop the run."""

from __future__ import annotations

from pathlib import Path

from tagfill.errors import ImageError, RunError
from tagfill.progress import Progress


class BadImages:
    """Counts distinct bad images of a run.

    Args:
        path: one line for each; a resumed run goes on with the list.
        limit: so many are put up with.
        progress: told about each new one.
    """

    def __init__(self, path: Path, limit: int, progress: Progress) -> None:
        self._path, self._limit, self._progress = path, limit, progress
        known = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._names = {line.partition("\t")[0] for line in known}

    def __call__(self, error: ImageError) -> None:
        """An image could not be decoded and is missing from its batch."""
        if error.image in self._names:
            return
        self._names.add(error.image)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{error.image}\t{error.problem}\n")
        self._progress.say(f"left out: {error}")
        if len(self._names) > self._limit:
            raise RunError(
                f"{len(self._names)} images cannot be decoded, more than the {self._limit} that max_bad_images allows; "
                f"{self._path} lists them. Mend or drop them, or check with 'tagfill inspect --decode'."
            )
