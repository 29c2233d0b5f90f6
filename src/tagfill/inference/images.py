"""Find images: files, folders, patterns, shards, URLs and datasets become one ordered list of names.

An image is named by the path that was given, or in a dataset by its name there, so that predictions can be joined with
annotations. The list holds names only; pixels are read later.
"""

from __future__ import annotations

import glob
import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tagfill.dataset import Dataset
from tagfill.errors import TagfillError
from tagfill.images import Root, open_root
from tagfill.images.image_files import SUFFIXES, is_image
from tagfill.images.roots import FolderRoot, shared_files
from tagfill.io import sha256_of_strings
from tagfill.labels import LabelMatrix
from tagfill.probabilities import COMPLETE_SHARE
from tagfill.progress import SILENT, Progress

_ENDINGS = " or ".join(SUFFIXES)


@dataclass(frozen=True)
class ImageGroup:
    """Images of one root.

    Attributes:
        root: to read them from.
        prefix: added before the name in the root to make the displayed name.
        names: in the root.
        dataset: that they belong to, if any.
        rows: of its image table, one per name.
    """

    root: Root
    prefix: str
    names: Sequence[str]
    dataset: Dataset | None = None
    rows: NDArray[np.int64] | None = None


class ImageList:
    """Images, numbered from 0.

    >>> images = ImageList([ImageGroup(FolderRoot(Path("a")), "a/", ["1.jpg", "2.jpg"])])
    >>> len(images), images.name(1), images.locate(1)
    (2, 'a/2.jpg', (FolderRoot(folder=PosixPath('a')), '2.jpg'))
    """

    def __init__(self, groups: Iterable[ImageGroup]) -> None:
        self._groups = list(groups)
        self._starts = list(itertools.accumulate((len(group.names) for group in self._groups), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def name(self, number: int) -> str:
        """The displayed name of an image."""
        group, at = self._find(number)
        return group.prefix + group.names[at]

    def locate(self, number: int) -> tuple[Root, str]:
        """The root of an image, and its name there."""
        group, at = self._find(number)
        return group.root, group.names[at]

    def identity(self) -> str:
        """A hash of all names, in order."""
        return sha256_of_strings(self.name(number) for number in range(len(self)))

    def shared_files(self) -> list[Path]:
        """Local files that prove that another machine sees these images."""
        return [path for group in self._groups for path in shared_files(group.root, group.names)]

    def subset(self, numbers: range) -> ImageList:
        """Consecutive images as a list of their own, numbered from 0; short enough to send to another process."""
        groups = []
        for group, start in zip(self._groups, self._starts, strict=False):
            names = group.names[max(numbers.start - start, 0) : max(numbers.stop - start, 0)]
            groups.extend([ImageGroup(group.root, group.prefix, names)] if names else [])
        return ImageList(groups)

    def labels(self, classes: Sequence[str]) -> tuple[LabelMatrix, NDArray[np.bool_]]:
        """The known labels of all images, and which images belong to a split of a dataset with incomplete labels.

        Args:
            classes: of the result; labels of other classes are left out.
        """
        column = {name: at for at, name in enumerate(classes)}
        incomplete = np.zeros(len(self), dtype=bool)
        entries: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]] = []
        for group, start in zip(self._groups, self._starts, strict=False):
            if group.dataset is None or group.rows is None:
                continue
            known = group.dataset.labels().take(group.rows)
            share = np.diff(known.starts) / known.width  # "cannot tell" counts as labeled
            splits = group.dataset.split_of_images()[group.rows]
            for split in np.unique(splits):
                of_split = np.flatnonzero(splits == split)
                incomplete[start + of_split] = share[of_split].mean() < COMPLETE_SHARE
            columns = np.array([column.get(name, -1) for name in group.dataset.classes], dtype=np.int64)[known.classes]
            kept = columns >= 0
            entries.append((start + known.images()[kept], columns[kept], known.values[kept]))
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))
        image, label, value = (np.concatenate(parts) for parts in zip(none, *entries, strict=True))
        return LabelMatrix.from_entries(image, label, value, (len(self), len(classes))), incomplete

    def _find(self, number: int) -> tuple[ImageGroup, int]:
        at = bisect_right(self._starts, number) - 1
        return self._groups[at], number - self._starts[at]


Images = str | os.PathLike[str] | Dataset


def find_images(
    given: Images | Iterable[Images], *, split: str | None = None, progress: Progress = SILENT
) -> ImageList:
    """List the images that are given in any form.

    Args:
        given: image files, folders (searched recursively), patterns such as `photos/**/*.jpg`, tar shards, zip files,
            URLs, datasets or their folders; one or several of these.
        split: of datasets; by default all of their images.
        progress: receives the shards that have to be indexed.

    Raises:
        TagfillError: if something does not exist or contains no image.
    """
    several = [given] if isinstance(given, (str, os.PathLike, Dataset)) else list(given)
    if not several:
        raise TagfillError("No images are given; give files, folders, patterns or a dataset.")
    opened = [_open_dataset(one) for one in several]
    if split is not None and all(dataset is None for dataset in opened):
        raise TagfillError(f"Only a dataset has a split '{split}'; give the folder of one, or no split.")
    groups: list[ImageGroup] = []
    for one, dataset in zip(several, opened, strict=True):
        if dataset is not None:
            rows = np.arange(len(dataset)) if split is None else dataset.split(split)
            root = open_root(dataset.root, progress=progress)
            groups.append(ImageGroup(root, "", dataset.names(rows), dataset, rows))
        elif not isinstance(one, Dataset):
            groups.extend(_groups_at(os.fspath(one), progress))
    return ImageList(groups if len(groups) == 1 else _without_duplicates(groups))


def _open_dataset(given: Images) -> Dataset | None:
    if isinstance(given, Dataset):
        return given
    folder = os.fspath(given)
    return Dataset.open(folder) if (Path(folder) / "dataset.yaml").is_file() else None


def _groups_at(text: str, progress: Progress) -> Iterator[ImageGroup]:
    path = Path(text)
    if path.is_dir() or "://" in text or path.suffix in (".tar", ".zip"):
        root = open_root(text, progress=progress)
        names = root.names()
        if not names:
            raise TagfillError(f"There is no image in {text}; image files end in {_ENDINGS}.")
        yield ImageGroup(root, f"{text.rstrip('/')}/", names)
    elif path.exists():
        yield from _group_files([text])
    elif glob.has_magic(text):
        matching = glob.iglob(text, recursive=True)  # noqa: PTH207  (Path.glob takes no absolute pattern)
        found = sorted(name for name in matching if is_image(name) and Path(name).is_file())
        if not found:
            raise TagfillError(f"No image matches {text}; image files end in {_ENDINGS}.")
        yield from _group_files(found)
    else:
        raise TagfillError(f"{text} does not exist; give image files, folders, patterns or a dataset.")


def _group_files(paths: Iterable[str]) -> Iterator[ImageGroup]:
    """Files, grouped by folder."""
    for folder, members in itertools.groupby(paths, key=os.path.dirname):
        prefix = folder if not folder or folder.endswith("/") else f"{folder}/"
        names = [member[len(prefix) :].lstrip("/") for member in members]
        yield ImageGroup(FolderRoot(Path(folder or ".").absolute()), prefix, names)


def _without_duplicates(groups: Iterable[ImageGroup]) -> Iterator[ImageGroup]:
    """The groups without images that an earlier group has."""
    seen: set[str] = set()
    for group in groups:
        new = [at for at, name in enumerate(group.names) if group.prefix + name not in seen]
        names = [group.names[at] for at in new]
        seen.update(group.prefix + name for name in names)
        yield replace(group, names=names, rows=None if group.rows is None else group.rows[new])
