"""No file tells on which machine it was written, or keeps what a merge left in it; no sentence ends twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]

FOLDERS = ("home", "root", "work", "Users", "mnt", "workspace")
HOSTS = ("pypi.org", "pythonhosted.org", "pypi.python.org", "download.pytorch.org", "conda.anaconda.org")

# A slash before one of the folders, unless the slash itself belongs to a longer path or an address.
MACHINE_PATH = re.compile(rf"(?<![\w.\-}}>])/(?:{'|'.join(FOLDERS)})/")
REGISTRY = re.compile("|".join(map(re.escape, HOSTS)) + r"|--(?:extra-)?index-url|--find-links")

TWO_PERIODS = re.compile(r"\w\.\.(?:\s|$)")  # such as that of "et al." and that of its sentence

CONFLICT = re.compile(r"^(?:<{7} |>{7} |\|{7} |={7}$)")


def files() -> Iterator[Path]:
    """Every file of the tree that .gitignore does not name, but this one."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()] + [".git"]

    def visit(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            place = path.relative_to(ROOT).as_posix()
            if any(fnmatch(path.name, pattern) or fnmatch(place, pattern) for pattern in ignored):
                continue
            if path.is_dir():
                yield from visit(path)
            elif path != Path(__file__):
                yield path

    yield from visit(ROOT)


def mentions(pattern: re.Pattern[str]) -> list[str]:
    """Places of the tree where a pattern occurs; files that are not text are left out."""
    found = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if match := pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    return found


def test_tree_is_found():
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"LICENSE", "pyproject.toml", "src/tagfill/__init__.py", ".ci/run"} <= names
    assert not any(name.startswith(".venv/") for name in names)


def test_no_path_of_a_machine():
    assert mentions(MACHINE_PATH) == []


def test_no_package_registry():
    assert mentions(REGISTRY) == []


def test_no_marker_of_a_merge_conflict():
    assert [line for line in ("<" * 7 + " HEAD", "=" * 7, ">" * 7 + " main") if not CONFLICT.search(line)] == []
    assert mentions(CONFLICT) == []


def test_no_sentence_ends_with_two_periods():
    assert TWO_PERIODS.search("the draw of Zhang et al..")
    assert [place for place in mentions(TWO_PERIODS) if place.partition(":")[0].endswith(".md")] == []
