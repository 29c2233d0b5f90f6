"""Image roots: folders, tar shards and URLs."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from images.pictures import encode, noise, write
from tagfill.errors import ImageError, TagfillError, TagfillWarning
from tagfill.images import decode, file_sizes, open_root, roots
from tagfill.images.remote import RemoteRoot
from tagfill.images.roots import FolderRoot, ShardRoot, expand_braces

FILES = {"a.jpg": b"first", "sub/b c%20.PNG": b"second", "sub/deep/ü#?.webp": b"third", "sub/notes.txt": b"text"}
IMAGES = sorted(name for name in FILES if name != "sub/notes.txt")


@pytest.fixture(autouse=True)
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


def test_sizes_are_those_of_the_files_where_they_are_known(folder, memory, tmp_path):
    shard = write_tar(tmp_path / "photos.tar", FILES)
    for place in (folder, shard):
        assert file_sizes(open_root(place), ["a.jpg", "none.jpg", "sub/deep/ü#?.webp"]) == [5, 0, 5]
    assert file_sizes(open_root(memory), ["a.jpg", "none.jpg"]) == [None, None]


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


def test_local_images_are_not_cached(root, cache):
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


def test_cyclic_links_between_folders_end(folder):
    (folder / "sub" / "up").symlink_to(folder)
    assert open_root(folder).names() == IMAGES


def test_links_to_themselves_are_skipped_by_name(folder):
    for name in ("loop", "loop.jpg"):
        (folder / name).symlink_to(folder / name)
    with pytest.warns(TagfillWarning, match=r"loop\.jpg is a link that leads to itself; it is skipped"):
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


# Random access to tar shards


SHARDS = 3


def contents(count: int = 12, seed: int = 0) -> dict[str, bytes]:
    """Members of lengths that are no multiples of a tar block, and one of none."""
    rng = np.random.default_rng(seed)
    images = {f"sub/{number:04}.jpg": rng.bytes(int(rng.integers(1, 3000))) for number in range(count)}
    return {**images, "sub/0000.json": b"{}", "sub/0001.txt": b"", "ü" * 90 + ".png": b"long name"}


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w", kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, mode, format=kind) as tar:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return path


@pytest.fixture
def shards(tmp_path) -> Path:
    """A folder with the members dealt to three shards."""
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "sizes.json").write_text("{}")
    items = list(contents().items())
    for number in range(SHARDS):
        write_tar(folder / f"part-{number:06}.tar", dict(items[number::SHARDS]))
    return folder


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_are_those_that_were_written(tmp_path, kind):
    root = open_root(write_tar(tmp_path / "all.tar", contents(), kind=kind))
    assert {name: root.read(name) for name in reversed(contents())} == contents()


def test_members_are_those_that_the_tar_program_would_unpack(shards, tmp_path):
    for shard in sorted(shards.glob("*.tar")):
        with tarfile.open(shard) as tar:
            tar.extractall(tmp_path / "unpacked", filter="data")
    root, folder = open_root(shards), FolderRoot(tmp_path / "unpacked")
    assert root.names() == folder.names()
    assert all(root.read(name) == folder.read(name) for name in contents())


def test_folder_and_pattern_name_the_same_shards(shards):
    assert open_root(shards) == open_root(f"{shards}/part-{{000000..000002}}.tar")


def test_only_images_are_listed(shards):
    assert open_root(shards).names() == sorted(name for name in contents() if name.endswith(("jpg", "png")))


def test_images_are_decoded(tmp_path):
    picture = noise(4, 5)
    root = open_root(write_tar(tmp_path / "a.tar", {"x.png": encode(Image.fromarray(picture))}))
    assert np.array_equal(np.asarray(decode(root, "x.png")), picture)


def test_folder_with_images_beside_a_tar_file_is_a_folder(shards):
    (shards / "a.jpg").touch()
    assert isinstance(open_root(shards), FolderRoot)


def test_missing_member(shards):
    with pytest.raises(ImageError, match=r"Image none\.jpg: none of the 3 shards") as caught:
        open_root(shards).read("none.jpg")
    assert caught.value.image == "none.jpg"


def test_missing_shard(shards):
    with pytest.raises(TagfillError, match=r"part-000003\.tar cannot be read: No such file"):
        open_root(f"{shards}/part-{{000000..000003}}.tar")


def test_index_is_made_once(shards, monkeypatch):
    open_root(shards)
    monkeypatch.setattr(roots, "_scan", None)
    assert open_root(shards).read("sub/0000.json") == b"{}"


@pytest.mark.parametrize("change", ["size", "time"])
def test_index_of_a_changed_shard_is_made_again(tmp_path, change):
    members = contents()
    path = write_tar(tmp_path / "a.tar", members)
    status = path.stat()
    open_root(path)
    exchanged = dict(reversed(members.items()))  # as many bytes in all
    members = exchanged if change == "time" else {"new.jpg": bytes(100_000), **members}
    write_tar(path, members)
    os.utime(path, ns=(0, status.st_mtime_ns + (change == "time")))
    root = open_root(path)
    assert {name: root.read(name) for name in members} == members


def test_shard_that_changes_under_an_open_root_is_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar", contents())
    root = open_root(path)
    write_tar(path, contents(seed=1))
    with pytest.raises(ImageError, match="has changed since it was opened"):
        root.read("sub/0003.jpg")


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"version": 0}', b'{"version": 1, "stamp": 3}', b"\xff\xfe"])
def test_damaged_index_is_made_again(shards, cache, junk):
    open_root(shards)
    for index in (cache / "shards").iterdir():
        index.write_bytes(junk)
    assert open_root(shards).read("sub/0001.txt") == b""


def test_a_cache_that_cannot_be_written_is_no_error(shards, cache):
    cache.write_text("a file, not a folder")
    assert open_root(shards).read("sub/0000.json") == b"{}"


def test_root_sends_only_its_list_of_shards(shards):
    root = open_root(shards)
    assert len(pickle.dumps(root)) < 1000
    assert pickle.loads(pickle.dumps(root)).read("sub/0000.json") == b"{}"


def test_processes_read_at_the_same_time(shards):
    root, names = open_root(shards), list(contents()) * 5
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert list(pool.map(root.read, names)) == [contents()[name] for name in names]


def test_name_in_two_shards_is_refused(tmp_path):
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", {"a.jpg": b"x"})
    with pytest.raises(TagfillError, match=r"'a\.jpg' is in .*0\.tar and in .*1\.tar"):
        open_root(f"{tmp_path}/{{0..1}}.tar")


def test_name_twice_in_a_shard_is_refused(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.jpg": b"x", "b.jpg": b"y"})
    write_tar(tmp_path / "a.tar", {"a.jpg": b"z"}, mode="a")
    with pytest.raises(TagfillError, match=r"two members 'a\.jpg'"):
        open_root(tmp_path / "a.tar")


def test_compressed_shard_is_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", contents(), mode="w:gz")
    with pytest.raises(TagfillError, match="without compression"):
        open_root(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_cut_shard_is_refused(tmp_path, share):
    path = write_tar(tmp_path / "a.tar", contents())
    os.truncate(path, int(path.stat().st_size * share) // 512 * 512 + 100 * bool(share))
    with pytest.raises(TagfillError, match="cannot be read as an uncompressed tar file"):
        open_root(path)


def test_damaged_header_is_not_taken_for_the_end(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"a.jpg": bytes(512), "b.jpg": bytes(512)})
    content = bytearray(path.read_bytes())
    content[1024 + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(TagfillError, match="damaged at byte 1,024"):
        open_root(path)


def test_hard_links_are_the_file_and_other_members_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, kind, target in [
            ("./a.jpg", tarfile.REGTYPE, ""),
            ("b.jpg", tarfile.LNKTYPE, "./a.jpg"),
            ("c.jpg", tarfile.SYMTYPE, "a.jpg"),
            ("d.jpg", tarfile.DIRTYPE, ""),
        ]:
            header = tarfile.TarInfo(name)
            header.type, header.linkname, header.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(header, io.BytesIO(b"data"))
    root = open_root(tmp_path / "a.tar")
    assert root.names() == ["a.jpg", "b.jpg"]
    assert root.read("a.jpg") == root.read("b.jpg") == b"data"


def test_progress_counts_each_shard(shards):
    steps = []

    class Watch:
        def bar(self, title, total, unit=""):
            assert total == SHARDS
            return self

        advance = staticmethod(lambda steps_done=1: steps.append(steps_done))
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *error: None  # noqa: E731

    ShardRoot(tuple(sorted(shards.glob("*.tar")))).index(Watch())
    assert steps == [1] * SHARDS


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{8..11}.tar", ["a-8.tar", "a-9.tar", "a-10.tar", "a-11.tar"]),
        ("{0..1}/{07..08}", ["0/07", "0/08", "1/07", "1/08"]),
        ("a{2..1}", []),
        ("a{x..y}", ["a{x..y}"]),
    ],
)
def test_braces(pattern, names):
    assert expand_braces(pattern) == names
