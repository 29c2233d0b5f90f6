"""What every benchmark records about itself: results as JSON, and the page generated from them."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Record:
    """Where a benchmark stores its results, and what they depend on.

    Attributes:
        name: of its folder in `benchmarks/`, its results and its page.
        packages: Tagfill packages that the numbers depend on.
        libraries: other packages whose versions matter.
    """

    name: str
    packages: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    @property
    def results(self) -> Path:
        """The file of its results."""
        return ROOT / "benchmarks" / "results" / f"{self.name}.json"

    def begin(self, arguments: str = "") -> dict[str, Any]:
        """Command, commit and machine, the first entries of every result."""
        own = (f"benchmarks/{self.name}", *(f"src/tagfill/{package}" for package in self.packages))
        changed = _git("status", "--porcelain", "--", *own)
        machine = {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}
        return {
            "command": f"python benchmarks/{self.name}/run.py{arguments}",
            "commit": _git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else ""),
            "machine": machine | {library: version(library) for library in self.libraries},
        }

    def write(self, results: dict[str, Any], page: str) -> None:
        """Write results and page."""
        for path, text in (
            (self.results, json.dumps(results, indent=2) + "\n"),
            (ROOT / "docs" / "benchmarks" / f"{self.name}.md", page),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


def module_of(script: Path) -> ModuleType:
    """The module in a file, under a name that does not matter: several files have the same one."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def modules_beside(script: Path) -> Iterator[None]:
    """Make modules next to a script importable, as if it were run; forget them afterward."""
    before, path, folder = set(sys.modules), list(sys.path), str(script.parent)
    sys.path[:0] = [folder, str(script.parents[1])]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{folder}/"):
                del sys.modules[name]


def say(text: str) -> None:
    """Print a line with the time to standard error."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
