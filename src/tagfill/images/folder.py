"""Images in a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tagfill.errors import ImageError
from tagfill.images.names import check_bytes, check_name, is_image


@dataclass(frozen=True)
class FolderRoot:
    """A folder of images, with sub-folders; symbolic links are followed.

    Attributes:
        folder: the image root.
    """

    folder: Path

    def read(self, name: str) -> bytes:
        """The bytes of an image file.

        Raises:
            ImageError: if there is no such file, or it cannot be read.
        """
        check_name(name)
        path = self.folder / name
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for ever
                raise ImageError(name, "this is a folder or a special file, not an image")
            check_bytes(name, status.st_size)
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise ImageError(name, f"there is no such file below {self.folder}") from None
        except OSError as error:
            raise ImageError(name, f"the file cannot be read ({error.strerror})") from None

    def names(self) -> list[str]:
        """The files that end like images, in alphabetical order."""
        return sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        visited: set[str] = set()
        for place, folders, files in os.walk(self.folder, followlinks=True):
            real = os.path.realpath(place)
            folders[:] = [] if real in visited else [name for name in folders if not name.startswith(".")]
            if real in visited:  # a link leads back
                continue
            visited.add(real)
            relative = Path(place).relative_to(self.folder)
            yield from ((relative / name).as_posix() for name in files if is_image(name))
