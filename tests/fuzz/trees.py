"""The files of a source as a mapping, and ways in which a folder can differ: files lost, added, renamed, linked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.promises import Promise


@dataclass(frozen=True)
class Link:
    """A symbolic link to a path, which need not exist."""

    target: str


Tree = dict[str, "bytes | Link | None"]  # None is an empty folder
Mutation = Callable[[Tree, Random], tuple[Tree, Promise]]
_STRANGE = (
    *("", " ", "é", "猫.jpg", "x.jpg", "\udcff.jpg", "\udcff", "a\nb.jpg", "a\\b.jpg", "train", "-1", ".x"),
    "x" * 200,
)


def read_tree(folder: Path) -> Tree:
    """Read all files below a folder."""
    tree: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            tree[name] = path.read_bytes()
        elif not any(path.iterdir()):
            tree[name] = None
    return tree


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a tree into a folder."""
    for name, content in tree.items():
        path = folder / name
        for above in path.parents:
            if above.is_file():
                above.unlink()  # a folder has taken its name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            continue  # and here a folder keeps it
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, Link):
            path.symlink_to(content.target)
        else:
            path.write_bytes(content)


def hidden_file(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    """What file managers leave behind, beside any other file."""
    beside = Path(rng.choice(list(tree)))
    name = rng.choice((".DS_Store", f"._{beside.name}", "Thumbs.db", f".{beside.name}.swp"))
    return {**tree, beside.with_name(name).as_posix(): b"\0\x05\x16\x07 \xff"}, Promise.SAME


def lost(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    return _without(tree, rng.choice(list(tree))), Promise.NO_CRASH


def folder_instead(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    return {**tree, rng.choice(list(tree)): None}, Promise.NO_CRASH


def linked(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    """A link in place of a file, to nowhere, to itself or to the folder that it is in."""
    name = rng.choice(list(tree))
    return {**tree, name: Link(rng.choice(("nowhere", Path(name).name, ".")))}, Promise.NO_CRASH


def renamed(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    name = rng.choice(list(tree))
    return {**_without(tree, name), _strange(name, rng): tree[name]}, Promise.NO_CRASH


def copied(tree: Tree, rng: Random) -> tuple[Tree, Promise]:
    name = rng.choice(list(tree))
    return {**tree, _strange(name, rng): tree[name]}, Promise.NO_CRASH


ALL: list[Mutation] = [hidden_file, lost, folder_instead, linked, renamed, copied]


def _without(tree: Tree, name: str) -> Tree:
    return {other: content for other, content in tree.items() if other != name}


def _strange(name: str, rng: Random) -> str:
    """The path with another last part, or with another folder above it; never that of a file's own folder."""
    path, word = Path(name), rng.choice(_STRANGE)
    other = path.parent / word / path.name if rng.random() < 0.3 else path.with_name(word or "_")
    return other.as_posix()
