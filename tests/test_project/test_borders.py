"""What each package may know about, and a few things that no source file does.

The table is that of docs/architecture.md. Imports under `if TYPE_CHECKING:` do not count, since they do not
exist at run time; imports inside functions do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tagfill"

LEAVES = {"deprecation", "errors", "io", "rng", "labels", "probabilities", "progress", "engines", "torchvision_remedy"}

_TRAINING = {"dataset", "images", "contract", "models", "data", "losses", "memory", "methods", "metrics"}
_EXPERIMENTS = {*_TRAINING, "training", "scenes", "protocols"}

# The published files of CIFAR-100 are pickles. This one reads them with stand-ins for the three names of a NumPy array
# and refuses every other name; tests/formats/test_plain_pickle.py shows that nothing of a pickle is run.
READS_PLAIN_PICKLES = {"formats/cifar100.py"}

MAY_IMPORT: dict[str, set[str]] = {
    "annotations": set(),  # old names only
    "dataset": set(),
    "formats": {"dataset"},
    "protocols": {"dataset"},
    "scenes": {"dataset"},
    "images": set(),
    "contract": {"dataset", "images"},
    "models": {"contract"},
    "data": {"contract", "models", "images", "dataset"},
    "losses": set(),
    "memory": {"contract"},
    "methods": {"contract", "losses", "memory"},
    "metrics": set(),
    "training": _TRAINING,
    "experiments": _EXPERIMENTS,
    "inference": {"models", "images", "dataset"},
    "curation": {*_EXPERIMENTS, "experiments", "inference", "formats"},
}
MAY_IMPORT["cli"] = {*MAY_IMPORT, "tagfill"}
MAY_IMPORT["__main__"] = {"cli"}
MAY_IMPORT["__init__"] = set(MAY_IMPORT) - {"cli", "__main__"}  # the public names
MAY_IMPORT |= {leaf: set() for leaf in LEAVES}

FILES = sorted(SOURCE.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=[path.relative_to(SOURCE).as_posix() for path in FILES])


def package_of(path: Path) -> str:
    """The row of the table that a source file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from run_time_nodes(other)
        else:
            yield node
            yield from run_time_nodes(node)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of whatever a file imports; `from a import b` is a.b."""
    module = ["tagfill", *path.relative_to(SOURCE).with_suffix("").parts]
    for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module[: -node.level] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and row of the table of each import of Tagfill's own; `tagfill` is the top with its public names."""
    for line, name in imports(path):
        top, *rest = name.split(".")
        if top == "tagfill":
            yield line, rest[0] if rest and rest[0] in MAY_IMPORT else "tagfill"


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Every call of a file, with the text of what is called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


@each_file
def test_package_is_in_the_table(path):
    assert package_of(path) in MAY_IMPORT


@each_file
def test_imports_stay_within_the_table(path):
    package = package_of(path)
    allowed = MAY_IMPORT[package] | LEAVES | {package}
    found = [
        f"line {line}: {package} imports {other}" for line, other in imported_packages(path) if other not in allowed
    ]
    assert found == []


@each_file
def test_only_the_command_line_speaks_to_a_terminal(path):
    if package_of(path) != "cli":
        assert [f"line {node.lineno}" for node, name in calls(path) if name == "print"] == []
        assert [f"line {line}: {name}" for line, name in imports(path) if name.split(".")[0] in ("rich", "typer")] == []


@each_file
def test_nothing_is_unpickled(path):
    if path.relative_to(SOURCE).as_posix() in READS_PLAIN_PICKLES:
        return
    unsafe = [
        f"line {line}: {name}"
        for line, name in imports(path)
        if name.split(".")[0] in ("pickle", "dill", "cloudpickle")
    ]
    hidden = [f"line {line}: {name}" for line, name in imports(path) if name in ("torch.load", "numpy.load")]
    assert unsafe + hidden == []


@each_file
def test_loading_says_that_it_unpickles_nothing(path):
    required = {
        "torch.load": ("weights_only", True),
        "np.load": ("allow_pickle", False),
        "numpy.load": ("allow_pickle", False),
    }
    for node, name in calls(path):
        if name in required:
            given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            option, value = required[name]
            assert given.get(option) is value, f"line {node.lineno}: {name} without {option}={value}"


@each_file
def test_file_is_named_after_what_it_does(path):
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert vague.isdisjoint(path.relative_to(SOURCE).with_suffix("").parts)


def test_references_are_independent_of_what_they_judge():
    paths = (ROOT / "tests" / "reference").rglob("*.py")
    found = [
        f"{path.name}: {name}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imported_names(node)
        if name.split(".")[0] == "tagfill"
    ]
    assert found == []


def imported_names(node: ast.AST) -> list[str]:
    """Modules that a node imports from, if it is an import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_every_row_of_the_table_is_documented():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `/").removesuffix(".py") for line in page.splitlines() if line.startswith("| `")}
    present = {package_of(path) for path in FILES} - LEAVES - {"__init__", "__main__"}
    assert present - rows == set()
