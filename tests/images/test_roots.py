"""Each kind of image root gives the bytes of a folder."""

from __future__ import annotations

import multiprocessing
import pickle
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fsspec
import pytest

from images.pictures import write
from tagfill.errors import ImageError, TagfillError
from tagfill.images import open_root
from tagfill.images.roots import FolderRoot, RemoteRoot

FILES = {"a.jpg": b"first", "sub/b c%20.PNG": b"second", "sub/deep/ü#?.webp": b"third", "sub/notes.txt": b"text"}
IMAGES = sorted(name for name in FILES if name != "sub/notes.txt")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache folder of this test's own."""
    monkeypatch.setenv("TAGFILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, content in FILES.items():
        write(tmp_path / "photos", name, content)
    return tmp_path / "photos"


@pytest.fixture
def memory(tmp_path) -> Iterator[str]:
    """The URL of the files in memory."""
    filesystem = fsspec.filesystem("memory")
    for name, content in FILES.items():
        filesystem.pipe(f"/{tmp_path.name}/{name}", content)
    yield f"memory://{tmp_path.name}"
    filesystem.rm(f"/{tmp_path.name}", recursive=True)


@pytest.fixture
def archive(tmp_path) -> Path:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for name, content in FILES.items():
            file.writestr(name, content)
    return tmp_path / "photos.zip"


@pytest.fixture(params=["path", "text", "file URL", "memory", "zip file", "zip URL", "zip with folder"])
def root(request, folder, memory, archive, cache) -> str | Path:
    if request.param == "zip with folder":
        with zipfile.ZipFile(archive, "w") as file:
            for name, content in FILES.items():
                file.writestr(f"inner/{name}", content)
    return {
        "path": folder,
        "text": str(folder),
        "file URL": folder.as_uri(),
        "memory": memory,
        "zip file": archive,
        "zip URL": f"zip://::{archive.as_uri()}",
        "zip with folder": f"zip://inner::{archive}",
    }[request.param]


def test_bytes_are_those_of_the_files(root):
    opened = open_root(root)
    assert {name: opened.read(name) for name in FILES} == FILES


def test_images_are_listed_in_order(root):
    assert open_root(root).names() == IMAGES


def test_missing_image_is_named(root):
    with pytest.raises(ImageError, match=r"Image sub/none\.jpg: there is no such file below"):
        open_root(root).read("sub/none.jpg")


def test_folder_is_not_an_image(root):
    with pytest.raises(ImageError):
        open_root(root).read("sub")


def test_names_stay_below_the_root(root):
    with pytest.raises(ImageError, match="leads out of the image root"):
        open_root(root).read("sub/../../a.jpg")


def test_root_can_be_sent_to_another_process(root):
    opened = open_root(root)
    opened.read("a.jpg")
    assert pickle.loads(pickle.dumps(opened)).read("a.jpg") == b"first"


def test_root_can_be_used_after_a_fork(root):
    opened = open_root(root)
    opened.read("a.jpg")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(opened.read, IMAGES * 4)) == [FILES[name] for name in IMAGES * 4]


def test_what_lies_on_this_machine_is_not_copied(root, cache):
    open_root(root).read("a.jpg")
    assert not cache.exists()


def test_file_url_with_a_space_is_a_folder(tmp_path):
    write(tmp_path / "my photos", "a.jpg", b"first")
    assert open_root((tmp_path / "my photos").as_uri()) == FolderRoot(tmp_path / "my photos")


@pytest.mark.parametrize("missing", ["photos", "photos.tar", "photos.zip", "file:///nowhere/photos"])
def test_missing_root_is_an_error_at_once(tmp_path, monkeypatch, missing):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TagfillError, match="There is no image root"):
        open_root(missing)


@pytest.mark.parametrize("url", ["nosuch://photos", "zip://::/nowhere/photos.zip"])
def test_url_that_cannot_be_opened(url):
    with pytest.raises(TagfillError, match="cannot be opened"):
        open_root(url).read("a.jpg")


def test_relative_folder_stays_where_it_was(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    opened = open_root("photos")
    monkeypatch.chdir(folder)
    assert opened.read("a.jpg") == b"first"


def test_links_between_folders_end(folder):
    (folder / "sub" / "up").symlink_to(folder)
    assert open_root(folder).names() == IMAGES


def test_linked_folders_are_listed(folder, tmp_path):
    write(tmp_path / "elsewhere", "d.jpg", b"")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    assert "linked/d.jpg" in open_root(folder).names()


def test_hidden_files_are_not_listed(folder):
    write(folder, "._a.jpg", b"")
    write(folder, ".trash/a.jpg", b"")
    assert open_root(folder).names() == IMAGES


def test_url_with_a_query_is_refused():
    with pytest.raises(TagfillError, match="query"):
        RemoteRoot("https://host/photos?key=1")
