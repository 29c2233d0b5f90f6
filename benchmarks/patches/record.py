"""Results of the benchmark's parts in one file, each with the commit that it was measured at, and the page of all."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from page import page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "patches.json"
PAGE = ROOT / "docs" / "benchmarks" / "patches.md"
PACKAGES = ("training", "data", "models", "memory", "methods", "losses", "metrics", "scenes", "protocols")
OWN = ("--", "benchmarks/patches", *(f"src/tagfill/{name}" for name in PACKAGES))  # what the numbers depend on


def record(part: str, found: dict[str, Any]) -> None:
    """Replace the earlier results of a script, and regenerate the page; a stamp in `found` stays."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results[part] = {**stamp(f"python benchmarks/patches/{part}.py"), **found}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")
    for path in (RESULTS, PAGE):
        print(path.relative_to(ROOT))


def stamp(command: str) -> dict[str, Any]:
    """What was run, at which commit, on which machine."""
    return {
        "command": command,
        "commit": git("rev-parse", "--short=12", "HEAD")
        + (" with changes" if git("status", "--porcelain", *OWN) else ""),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
    }


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
