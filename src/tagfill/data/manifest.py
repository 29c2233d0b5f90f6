"""Which views a feature cache is to hold, from a short text.

    eval       the whole image, of every split
    flip       its mirror image
    crops:n    n random crops, flipped half of the time
    pairs:n    n random crops, each as it is (weak) and distorted (strong), for consistency training

All but `eval` are of training images only. The strong view of a pair is its weak view after Cutout and RandAugment
(`tagfill.images.views`): what was cropped away is missing from both, so that a label predicted on one can be asked of
the other.


What a feature cache says about itself: what it was made from, what it holds, how far it got.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tagfill.errors import TagfillError
from tagfill.images import CROP, EVAL, FLIP, STRONG, View
from tagfill.io import sha256, write_json

_FIRST_CROP, _FIRST_PAIR = 2, 1000


@dataclass(frozen=True)
class PlannedView:
    """A view to cache.

    The number belongs to the name, so that a view is the same whatever other views are made beside it.

    Attributes:
        name: of the view and of its folder.
        role: `eval`, `weak` or `strong`.
        view: what to draw.
        number: goes into the address of its draws.
    """

    name: str
    role: str
    view: View
    number: int


def parse_views(text: str) -> list[PlannedView]:
    """The views of a list such as `eval,flip,crops:2`.

    >>> [planned.name for planned in parse_views("eval,flip,crops:2,pairs:1")]
    ['eval', 'flip', 'crop0', 'crop1', 'weak0', 'strong0']
    """
    planned: list[PlannedView] = []
    for word in text.split(","):
        kind, _, count = word.strip().partition(":")
        if kind == "eval" and not count:
            planned.append(PlannedView("eval", "eval", EVAL, 0))
        elif kind == "flip" and not count:
            planned.append(PlannedView("flip", "weak", FLIP, 1))
        elif kind == "crops" and _is_count(count):
            planned += [PlannedView(f"crop{n}", "weak", CROP, _FIRST_CROP + n) for n in range(int(count))]
        elif kind == "pairs" and _is_count(count):
            for n in range(int(count)):
                planned.append(PlannedView(weak_of(n), "weak", CROP, _FIRST_PAIR + n))
                planned.append(PlannedView(strong_of(n), "strong", STRONG, _FIRST_PAIR + n))
        else:
            raise TagfillError(f"'{word}' is not a view; write views as in eval,flip,crops:2 or eval,pairs:2.")
    names = [view.name for view in planned]
    if len(set(names)) < len(names) or "eval" not in names:
        raise TagfillError(f"The views '{text}' must hold eval, and each view once.")
    return planned


def weak_of(pair: int) -> str:
    """Name of the weak view of a pair."""
    return f"weak{pair}"


def strong_of(pair: int) -> str:
    """Name of the strong view of a pair."""
    return f"strong{pair}"


def _is_count(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) <= _FIRST_PAIR - _FIRST_CROP


VERSION = 3
_READABLE = (2, VERSION)  # 2 knew no class tokens


@dataclass
class FileRecord:
    """How long a file is, and the SHA-256 of its bytes."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        """Of a file as it lies there."""
        return cls(path.stat().st_size, sha256(path))


@dataclass
class ViewRecord:
    """What a cache holds of one view.

    Attributes:
        role: `eval`, `weak` or `strong`.
        number: of its draws; views are listed in its order.
        rows: images that it covers.
        done: how many of them are on disk.
        files: those that are finished, by name.
    """

    role: str
    number: int
    rows: int
    done: int = 0
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether all of it is on disk; the rows are recorded last."""
        return "rows.npy" in self.files

    @property
    def identity(self) -> str:
        """A hash of every byte of a finished view."""
        return hashlib.sha256(json.dumps({name: file.sha256 for name, file in self.files.items()}).encode()).hexdigest()


@dataclass(frozen=True)
class MissingImage:
    """An image that could not be decoded: its row in the image table, its name, and why."""

    row: int
    image: str
    problem: str


@dataclass
class Manifest:
    """What a cache was made from and how far it got.

    Attributes:
        images: identity of the image list.
        backbone: timm's name.
        fingerprint: of the backbone's weights and preprocessing.
        preprocessing: of the pixels.
        grid: rows and columns of the features.
        channels: D.
        dtype: `uint8`, `float16` or `float32`, of the spatial features.
        shard_rows: rows in each file of spatial features; the last of a view may have fewer.
        seed: of the crops.
        tokens: whether class tokens are kept beside the features; they are where the backbone has one.
        missing: images that could not be decoded, by ascending row; their features are zeros.
        views: by name.
    """

    images: str
    backbone: str
    fingerprint: str
    preprocessing: dict[str, Any]
    grid: tuple[int, int]
    channels: int
    dtype: str
    shard_rows: int
    seed: int
    tokens: bool = False
    missing: list[MissingImage] = field(default_factory=list)
    views: dict[str, ViewRecord] = field(default_factory=dict)
    version: int = VERSION

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all, in an order that does not depend on the order of the work."""
        content = asdict(self)
        content["missing"].sort(key=lambda image: image["row"])
        content["views"] = dict(sorted(content["views"].items(), key=_place))
        write_json(folder / "manifest.json", content)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it back.

        Raises:
            TagfillError: if it is missing, damaged or of another version.
        """
        path = folder / "manifest.json"
        if not path.is_file():
            raise TagfillError(
                f"{folder} is not a feature cache: it has no manifest.json. Make one with 'tagfill features'."
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            version = content["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(folder, error) from None
        if version not in _READABLE:
            raise TagfillError(
                f"The feature cache {folder} was made by another version of Tagfill; delete it and run "
                "'tagfill features' again."
            )
        try:
            views = {name: _view(record) for name, record in content.pop("views").items()}
            missing = [MissingImage(**image) for image in content["missing"]]
            read = {"grid": tuple(content["grid"]), "missing": missing, "views": views, "version": VERSION}
            manifest = cls(**{**content, **read})
        except (AttributeError, KeyError, TypeError) as error:
            raise _damaged(folder, error) from None
        return manifest

    @property
    def cells_of_row(self) -> tuple[int, int, int]:
        """Shape of the spatial features of one view of one image, cells last."""
        return (*self.grid, self.channels)


def _view(record: dict[str, Any]) -> ViewRecord:
    files = {name: FileRecord(**file) for name, file in record.pop("files").items()}
    return ViewRecord(**record, files=files)


def _place(item: tuple[str, dict[str, Any]]) -> tuple[int, str]:
    name, record = item
    return record["number"], name


def _damaged(folder: Path, error: Exception) -> TagfillError:
    detail = f": {error}" if isinstance(error, ValueError) else ""
    return TagfillError(
        f"The manifest.json of the feature cache {folder} is damaged{detail}; delete the folder and run "
        "'tagfill features' again."
    )
