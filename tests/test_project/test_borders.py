"""Which packages may import which, and a few things that no source file may do.

The table is the one in docs/architecture.md. Imports inside functions count; imports under `if TYPE_CHECKING:` do not,
because they do not exist at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tagfill"

LEAVES = {
    "deprecation",
    "errors",
    "figures",
    "io",
    "rng",
    "labels",
    "options",
    "probabilities",
    "progress",
    "engines",
    "torchvision_remedy",
}

_TRAINING = {
    *("dataset", "images", "contract", "models", "data", "losses", "memory", "methods", "metrics", "inference"),
    "evidence",
}
_EXPERIMENTS = {*_TRAINING, "training", "scenes", "protocols"}

MAY_IMPORT: dict[str, set[str]] = {
    "annotations": set(),  # old names only
    "dataset": set(),
    "formats": {"dataset", "images"},
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
    "inference": {"contract", "models", "images", "dataset"},
    "evidence": {"contract", "models", "images", "dataset", "data", "metrics", "inference"},
    "curation": {*_EXPERIMENTS, "experiments", "formats"},
    "filling": {*_EXPERIMENTS, "experiments", "formats", "curation"},
    "sklearn": {"contract", "images", "memory", "methods", "metrics"},
}
IN_FUNCTIONS = {"dataset": {"images", "formats"}}  # displays and `from_pandas`; at the top these would be circular
MAY_IMPORT["cli"] = {*MAY_IMPORT, "tagfill"}
MAY_IMPORT["__main__"] = {"cli"}
MAY_IMPORT["__init__"] = set(MAY_IMPORT) - {"cli", "__main__"}  # the public names
MAY_IMPORT |= {leaf: set() for leaf in LEAVES}

FILES = sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    """The row of the table that a source file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                yield other
                yield from run_time_nodes(other)
        else:
            yield node
            yield from run_time_nodes(node)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of each import of a file; `from a import b` is a.b."""
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
    """Every call in a file, with the source text of the function called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def located(path: Path, line: int, text: str) -> str:
    """One finding of a test, as `file:line: text`."""
    return f"{path.relative_to(SOURCE).as_posix()}:{line}: {text}"


def test_every_package_is_in_the_table():
    assert {package_of(path) for path in FILES} == set(MAY_IMPORT)


def test_imports_stay_within_the_table():
    found = []
    for path in FILES:
        package = package_of(path)
        allowed = MAY_IMPORT[package] | LEAVES | {package}
        inside = allowed | IN_FUNCTIONS.get(package, set())
        top = {node.lineno for node in ast.parse(path.read_text(encoding="utf-8")).body}
        found += [
            located(path, line, other)
            for line, other in imported_packages(path)
            if other not in (allowed if line in top else inside)
        ]
    assert found == []


def test_only_the_command_line_prints():
    library = [path for path in FILES if package_of(path) != "cli"]
    printed = [located(path, node.lineno, name) for path in library for node, name in calls(path) if name == "print"]
    terminal = [
        located(path, line, name)
        for path in library
        for line, name in imports(path)
        if name.split(".")[0] in ("rich", "typer")
    ]
    assert printed + terminal == []


def test_no_module_can_unpickle():
    unsafe = ("pickle", "dill", "cloudpickle")
    found = [
        located(path, line, name)
        for path in FILES
        for line, name in imports(path)
        if name.split(".")[0] in unsafe or name in ("torch.load", "numpy.load")
    ]
    assert found == []


def test_loaders_forbid_pickles_explicitly():
    required = {
        "torch.load": ("weights_only", True),
        "np.load": ("allow_pickle", False),
        "numpy.load": ("allow_pickle", False),
    }
    found = []
    for path in FILES:
        for node, name in calls(path):
            if name in required:
                given = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
                option, value = required[name]
                if given.get(option) is not value:
                    found.append(located(path, node.lineno, f"{name} without {option}={value}"))
    assert found == []


def test_module_names_say_what_is_inside():
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in FILES if not vague.isdisjoint(path.relative_to(SOURCE).with_suffix("").parts)] == []


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
    present = {package_of(path) for path in FILES} - LEAVES - {"__init__", "__main__", "annotations"}
    assert present - rows == set()
