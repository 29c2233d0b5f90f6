"""What a feature cache contains: which views were requested, what it was made from, how far extraction got.

Views are requested by a short text:

    eval       the whole image, for every split
    flip       its mirror image
    crops:n    n random crops, flipped half of the time
    pairs:n    n random crops, each unchanged (weak) and distorted (strong), for consistency training

All except `eval` are made for the training split only. The strong view of a pair is its weak view after Cutout and
RandAugment (`tagfill.images.views`): both show the same crop, so a label predicted on one is valid for the other.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tagfill.errors import TagfillError, first_problem
from tagfill.images import CROP, EVAL, FLIP, STRONG, View
from tagfill.io import sha256, write_json
from tagfill.models import Preprocessing
from tagfill.models.stages import FEATURES

_FIRST_CROP, _FIRST_PAIR = 2, 1000


@dataclass(frozen=True)
class ViewSpec:
    """A view to extract.

    Attributes:
        name: of the view and its folder.
        role: `eval`, `weak` or `strong`.
        view: how to crop and distort the image.
        number: part of the address of its random draws. It depends on the name only, so a view does not change when
            other views are extracted too.
    """

    name: str
    role: str
    view: View
    number: int


def parse_view_specs(text: str) -> list[ViewSpec]:
    """Parse a list of views such as `eval,flip,crops:2`.

    >>> [spec.name for spec in parse_view_specs("eval,flip,crops:2,pairs:1")]
    ['eval', 'flip', 'crop0', 'crop1', 'weak0', 'strong0']
    """
    specs: list[ViewSpec] = []
    for word in text.split(","):
        kind, _, count = word.strip().partition(":")
        if kind == "eval" and not count:
            specs.append(ViewSpec("eval", "eval", EVAL, 0))
        elif kind == "flip" and not count:
            specs.append(ViewSpec("flip", "weak", FLIP, 1))
        elif kind == "crops" and _is_count(count):
            specs += [ViewSpec(f"crop{n}", "weak", CROP, _FIRST_CROP + n) for n in range(int(count))]
        elif kind == "pairs" and _is_count(count):
            for n in range(int(count)):
                specs.append(ViewSpec(weak_view_name(n), "weak", CROP, _FIRST_PAIR + n))
                specs.append(ViewSpec(strong_view_name(n), "strong", STRONG, _FIRST_PAIR + n))
        else:
            raise TagfillError(f"'{word}' is not a view; write views as in eval,flip,crops:2 or eval,pairs:2.")
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names) or "eval" not in names:
        raise TagfillError(f"The views '{text}' must include eval, and each view once.")
    return specs


def views_text(manifest: Manifest) -> str:
    """The views of a cache, as they are requested."""
    roles = [view.role for view in manifest.views.values()]
    pairs = roles.count("strong")
    crops = sum(name.startswith("crop") for name in manifest.views)
    words = ["eval", *(["flip"] if "flip" in manifest.views else [])]
    return ",".join([*words, *([f"crops:{crops}"] if crops else []), *([f"pairs:{pairs}"] if pairs else [])])


def weak_view_name(pair: int) -> str:
    """Name of the weak view of a pair."""
    return f"weak{pair}"


def strong_view_name(pair: int) -> str:
    """Name of the strong view of a pair."""
    return f"strong{pair}"


def _is_count(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) <= _FIRST_PAIR - _FIRST_CROP


VERSION = 4
_INNER_VERSION = 5  # of caches of an inner stage, which older versions of Tagfill cannot read
_READABLE = (2, 3, VERSION, _INNER_VERSION)  # version 2 had no class tokens, version 3 could not grow


_BYTES = {"uint8": 1, "float16": 2, "float32": 4}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class FileRecord(_Strict):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        """Measure a file on disk."""
        return cls(bytes=path.stat().st_size, sha256=sha256(path))


class ViewRecord(_Strict):
    """What a cache contains of one view.

    Attributes:
        role: `eval`, `weak` or `strong`.
        number: part of the address of its random draws; views are listed in this order.
        rows: number of images that it covers.
        done: how many of them are on disk.
        files: finished files, by name.
        shards: number of images in each shard. A view grows by whole shards, so any may have fewer than `shard_rows`.
    """

    role: str
    number: int
    rows: int
    done: int
    files: dict[str, FileRecord]
    shards: list[int] = []

    @property
    def starts(self) -> list[int]:
        """Position in the view at which each shard starts."""
        return list(accumulate(self.shards, initial=0))[:-1]

    @property
    def shards_done(self) -> int:
        """Number of shards that are on disk."""
        return sum(start < self.done for start in self.starts)

    @property
    def finished(self) -> bool:
        """Whether all of it is on disk; `rows.npy` is recorded last."""
        return "rows.npy" in self.files

    @property
    def identity(self) -> str:
        """Hash of every byte of a finished view."""
        return hashlib.sha256(json.dumps({name: file.sha256 for name, file in self.files.items()}).encode()).hexdigest()


def shard_sizes(rows: int, shard_rows: int) -> list[int]:
    """Divide rows into shards, all full except the last.

    >>> shard_sizes(12, 5)
    [5, 5, 2]
    """
    return [min(shard_rows, rows - at) for at in range(0, rows, shard_rows)]


class MissingImage(_Strict):
    """An image that could not be decoded: its row in the cache, its name, and why."""

    row: int
    image: str
    problem: str


class Manifest(_Strict):
    """What a cache was made from and how far extraction got.

    Attributes:
        images: identity of the list of its images (`tagfill.data.cache_images`).
        image_count: length of that list.
        backbone: timm's name.
        at: the stage of the backbone whose output is stored; `features` is its end.
        fingerprint: hash of the backbone's preprocessing and of the weights up to this stage.
        preprocessing: of the pixels.
        grid: rows and columns of what is stored; the tokens of a transformer's inner stage are one row.
        channels: D.
        dtype: `uint8`, `float16` or `float32`, of the spatial features.
        shard_rows: largest number of images in a file of spatial features.
        seed: seed of the crops.
        tokens: whether class tokens are stored; they are if the backbone has one.
        missing: images that could not be decoded, by ascending row in the cache; their features are zeros.
        views: by name.
    """

    images: str
    image_count: int = 0
    backbone: str
    at: str = FEATURES
    fingerprint: str
    preprocessing: Preprocessing
    grid: tuple[int, int]
    channels: int
    dtype: str
    shard_rows: int
    seed: int
    tokens: bool = False
    missing: list[MissingImage]
    views: dict[str, ViewRecord]
    version: int = VERSION

    @property
    def inner(self) -> bool:
        """Whether the output of an inner stage is stored, instead of the features at the end."""
        return self.at != FEATURES

    @property
    def bytes_of_row(self) -> int:
        """Bytes of one view of one image on disk; `dtype` must have been chosen."""
        vectors = 0 if self.inner else 1 + self.tokens
        values = self.grid[0] * self.grid[1] * self.channels
        return values * _BYTES[self.dtype] + 4 * self.channels * vectors + 36  # geometry and row

    @property
    def cells_of_row(self) -> tuple[int, int, int]:
        """Shape of the spatial features of one view of one image, channels last."""
        return (*self.grid, self.channels)

    def save(self, folder: Path) -> None:
        """Write it atomically, in an order that does not depend on the order of the work."""
        content = self.model_dump()
        if self.inner:
            content["version"] = _INNER_VERSION
        else:
            del content["at"]
        content["missing"].sort(key=lambda image: image["row"])
        content["views"] = dict(sorted(content["views"].items(), key=lambda item: (item[1]["number"], item[0])))
        write_json(folder / "manifest.json", content)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check the manifest of a cache.

        Raises:
            TagfillError: if it is missing, damaged or of another version.
        """
        path = folder / "manifest.json"
        if not path.is_file():
            raise TagfillError(
                f"{folder} is not a feature cache: it has no manifest.json. Make one with 'tagfill features'."
            )
        content = path.read_bytes()
        try:
            if _Version.model_validate_json(content).version not in _READABLE:
                raise TagfillError(
                    f"The feature cache {folder} was made by another version of Tagfill; delete it and run "
                    "'tagfill features' again."
                )
            manifest = cls.model_validate_json(content)
        except ValidationError as error:
            raise TagfillError(
                f"The manifest.json of the feature cache {folder} is damaged: {first_problem(error)}; delete the "
                "folder and run 'tagfill features' again."
            ) from None
        if manifest.version < VERSION:
            manifest.image_count = manifest.views["eval"].rows if "eval" in manifest.views else 0
            for view in manifest.views.values():
                view.shards = shard_sizes(view.rows, manifest.shard_rows)
        manifest.version = VERSION
        return manifest


class _Version(BaseModel):
    version: int
