from __future__ import annotations

import io
import tarfile

import pytest

from tagfill.errors import DatasetError
from tagfill.formats import tar_archive


def pack(path, *members):
    """An archive of (name, content) pairs, or of ready members."""
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def test_files_are_unpacked_once(tmp_path):
    archive = pack(tmp_path / "a.tar.gz", ("one/two.txt", b"2"), ("three.txt", b"3"))

    folder = tar_archive.unpack(archive, tmp_path / "out")
    (folder / "three.txt").write_bytes(b"mine")
    tar_archive.unpack(archive, folder)

    assert (folder / "one" / "two.txt").read_bytes() == b"2"
    assert (folder / "three.txt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (("../out.txt", b""), r"holds '\.\./out\.txt', a path that leads out of the folder"),
        (("/out.txt", b""), r"holds '/out\.txt', a path that leads out of the folder"),
        (link("link", "../.."), "holds 'link', which is a link or a device"),
    ],
    ids=["parent", "absolute", "link"],
)
def test_nothing_leaves_the_folder(tmp_path, member, problem):
    archive = pack(tmp_path / "a.tar.gz", ("fine.txt", b""), member)

    with pytest.raises(DatasetError, match=problem):
        tar_archive.unpack(archive, tmp_path / "place" / "out")
    assert list(tmp_path.rglob("*.txt")) == []


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    archive = pack(tmp_path / "a.tar.gz", ("a.txt", b""))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")

    with pytest.raises(DatasetError, match="is not an empty folder"):
        tar_archive.unpack(archive, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_another_archive_needs_another_folder(tmp_path):
    tar_archive.unpack(pack(tmp_path / "a.tar.gz", ("a.txt", b"")), tmp_path / "out")

    with pytest.raises(DatasetError, match="holds the files of another archive"):
        tar_archive.unpack(pack(tmp_path / "b.tar.gz", ("b.txt", b"")), tmp_path / "out")


def test_a_cut_archive_leaves_nothing(tmp_path):
    archive = pack(tmp_path / "a.tar.gz", ("a.txt", bytes(range(256)) * 4000))
    archive.write_bytes(archive.read_bytes()[:2000])

    with pytest.raises(DatasetError, match="cannot be unpacked"):
        tar_archive.unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
