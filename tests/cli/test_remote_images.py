"""`tagfill import` and `tagfill inspect --decode` for images behind a URL."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from PIL import Image

from tagfill.dataset import Dataset


@pytest.fixture
def imported(tmp_path: Path, call: Callable[..., Any]) -> Iterator[Path]:
    picture = io.BytesIO()
    Image.new("RGB", (8, 6), "teal").save(picture, "PNG")
    files = fsspec.filesystem("memory")
    files.pipe("/photos/a.png", picture.getvalue())
    (tmp_path / "table.csv").write_text("image,label,value\na.png,cat,1\n", encoding="utf-8")
    root = ["--option", "root=memory://photos"]
    assert (
        call("import", "csv", str(tmp_path / "table.csv"), *root, "--out", str(tmp_path / "data"), "--quiet").code == 0
    )
    yield tmp_path / "data"
    files.rm("/photos", recursive=True)


def test_the_url_reaches_the_dataset(imported: Path) -> None:
    assert Dataset.open(imported).root == "memory://photos"


def test_images_behind_a_url_are_decoded(imported: Path, call: Callable[..., Any]) -> None:
    assert call("inspect", str(imported), "--decode", "--quiet").code == 0


def test_a_broken_image_behind_a_url_is_listed(imported: Path, call: Callable[..., Any]) -> None:
    fsspec.filesystem("memory").pipe("/photos/a.png", b"no picture")

    outcome = call("inspect", str(imported), "--decode", "--quiet")

    assert outcome.code == 2
    assert "Image a.png: " in outcome.out
