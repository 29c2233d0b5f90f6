"""Images are listed in order, under the names that people gave, and each once."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import tagfill
from inference.colors import write_image, write_images
from tagfill.errors import TagfillError
from tagfill.images import decode
from tagfill.inference.images import ImageList, find_images


def names(images: ImageList) -> list[str]:
    return [images.name(number) for number in range(len(images))]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", 2)
    write_image(tmp_path / "photos" / "more" / "c.jpg", (1, 2, 3))
    (tmp_path / "photos" / "notes.txt").write_text("not an image")
    return tmp_path


def test_a_folder_gives_the_images_below_it(photos: Path) -> None:
    assert names(find_images("photos")) == ["photos/000.png", "photos/001.png", "photos/more/c.jpg"]


def test_files_and_patterns_keep_the_order_in_which_they_were_given(photos: Path) -> None:
    found = find_images(["photos/more/c.jpg", "photos/0*.png"])

    assert names(found) == ["photos/more/c.jpg", "photos/000.png", "photos/001.png"]


def test_a_pattern_reaches_into_folders_and_may_be_absolute(photos: Path) -> None:
    assert names(find_images(f"{photos}/**/*.jpg")) == [f"{photos}/photos/more/c.jpg"]


def test_an_image_that_is_given_twice_is_listed_once(photos: Path) -> None:
    assert len(find_images(["photos", "photos/000.png", "photos/*.png"])) == 3


def test_every_number_leads_to_its_file(photos: Path) -> None:
    found = find_images(["photos/more/c.jpg", "photos", "photos/001.png"])

    sizes = [decode(*found.locate(number)).size for number in range(len(found))]

    assert sizes == [(40, 30)] * 3


def test_a_dataset_gives_its_own_names_and_may_be_split(tmp_path: Path) -> None:
    data = tagfill.scenes.make(tmp_path / "scenes", train=3, val=1, test=2, size=64)

    assert names(find_images(tmp_path / "scenes")) == data.names()
    assert names(find_images(data, split="test")) == data.names(data.split("test"))


def test_tar_shards_are_listed_through_their_index(photos: Path) -> None:
    with tarfile.open("photos.tar", "w") as shard:
        shard.add("photos/000.png", "000.png")

    assert names(find_images("photos.tar")) == ["photos.tar/000.png"]


def test_a_subset_has_the_same_images_numbered_from_zero(photos: Path) -> None:
    found = find_images(["photos/more/c.jpg", "photos/*.png"])

    for first in range(4):
        for last in range(first, 4):
            assert names(found.subset(range(first, last))) == names(found)[first:last]


def test_identity_is_of_names_and_their_order(photos: Path) -> None:
    pair = ["photos/000.png", "photos/001.png"]

    assert find_images(pair).identity() == find_images("photos/*.png").identity()
    assert find_images(pair).identity() != find_images(pair[::-1]).identity()


@pytest.mark.parametrize(
    ("given", "split", "sentence"),
    [
        ([], None, "No images are given"),
        (["nowhere"], None, "nowhere does not exist"),
        (["photos/*.webp"], None, "No image matches photos/*.webp"),
        (["empty"], None, "There is no image in empty"),
        (["photos"], "test", "Only a dataset has a split 'test'"),
    ],
)
def test_missing_images_are_named(photos: Path, given: list[str], split: str | None, sentence: str) -> None:
    (photos / "empty").mkdir()

    with pytest.raises(TagfillError) as raised:
        find_images(given, split=split)

    assert sentence in str(raised.value)
