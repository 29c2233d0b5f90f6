"""Numbers of the documentation, from benchmarks/results/*.json and the recipes of published tables alone.

Every page of docs/benchmarks is written anew by its `page.py`, and so is every block

    <!-- numbers: KIND ARGUMENTS -->
    …
    <!-- end of numbers -->

of docs/ and README.md, by the function of that kind in `filling.KINDS`.

    python benchmarks/fill_in.py           write what differs, and say which files that were
    python benchmarks/fill_in.py --check   only say so; exit 1 if there are any
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.append(str(Path(__file__).parent))

from bookkeeping import ROOT
from filling import KINDS

DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+)(?: ([^\n]*?))? -->\n)(.*?)(<!-- end of numbers -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    differing = {path: text for path, text in should_be() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in differing.items():
        print(path.relative_to(ROOT))
        if not check:
            path.write_text(text, encoding="utf-8")
    sys.exit(check and bool(differing))


def should_be() -> Iterator[tuple[Path, str]]:
    """Every file that holds numbers, and the text that it should have."""
    yield from pages()
    for path in sorted([ROOT / "README.md", *DOCS.rglob("*.md")]):
        if "_build" not in path.parts and "<!-- numbers:" in (text := path.read_text(encoding="utf-8")):
            yield path, filled(text, path)


def pages() -> Iterator[tuple[Path, str]]:
    """The page of each benchmark whose results are there."""
    for script in sorted(ROOT.glob("benchmarks/*/page.py")):
        name = script.parent.name
        with neighbours(script):
            module = module_of(script)
            tables = {table: RESULTS / f"{name}-{table.lower()}.json" for table in getattr(module, "TABLES", ())}
            if any(file.exists() for file in tables.values()):
                found: Any = {table: read(file) for table, file in tables.items() if file.exists()}
            elif (RESULTS / f"{name}.json").exists():
                found = read(RESULTS / f"{name}.json")
            else:
                continue
            yield DOCS / "benchmarks" / f"{name}.md", module.page(found)


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


@contextmanager
def neighbours(script: Path) -> Iterator[None]:
    """Modules beside a script are found, as if it were run; the next may have neighbours of the same names."""
    before, path, folder = set(sys.modules), list(sys.path), str(script.parent)
    sys.path[:0] = [folder, str(script.parents[1])]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{folder}/"):
                del sys.modules[name]


def module_of(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(text: str, path: Path) -> str:
    """The text of a page with all of its blocks written anew."""
    top = "docs/" if path.parent == ROOT else "../" * len(path.parent.relative_to(DOCS).parts)

    def written(block: re.Match[str]) -> str:
        opening, kind, arguments, _, end = block.groups()
        if kind not in KINDS:
            raise ValueError(f"{path.relative_to(ROOT)}: numbers of the kind '{kind}'? There are {sorted(KINDS)}.")
        return f"{opening}{KINDS[kind](arguments or '', top).strip()}\n{end}"

    return BLOCK.sub(written, text)


if __name__ == "__main__":
    main()
