"""Results of attacks: stored as JSON in attacks/results, and shown as tables here and on docs/security.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SERVE_HEAD = (
    "| attack | answers to it | honest answer, usual | during the attack | slowest | MB above rest |",
    "|---|---|---:|---:|---:|---:|",
)
KILL_HEAD = ("| command | killed | finished afterward | seconds when not killed |", "|---|---:|---:|---:|")


def begin(name: str) -> dict[str, Any]:
    """Command, commit and machine, the first entries of every result."""
    words = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[1], 1), "python": platform.python_version()}
    command = ["python", f"attacks/{name}.py", *(word for word in sys.argv[1:] if word != "--save")]
    return {"command": " ".join(command), "commit": commit, "machine": machine}


def path(name: str) -> Path:
    """The file of the results of an attack."""
    return ROOT / "attacks" / "results" / f"{name}.json"


def write(name: str, found: dict[str, Any]) -> None:
    """Store results."""
    path(name).parent.mkdir(exist_ok=True)
    path(name).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path(name).relative_to(ROOT))


def read(name: str) -> dict[str, Any]:
    """Stored results."""
    found: dict[str, Any] = json.loads(path(name).read_text(encoding="utf-8"))
    return found


def serve_row(found: dict[str, Any]) -> str:
    """A row below `SERVE_HEAD`: what an honest client of an attacked server noticed."""
    missed = " **missed**" if found["missed"] else ""
    if "ended" in found:
        return f"| {found['attack']} | ended after {found['ended']:.1f} s{missed} | | | | |"
    times = [found["usual"], found["median"], found["slowest"]]
    shown = ["none" if seconds is None else f"{1000 * seconds:.0f} ms" for seconds in times]
    cells = [found["attack"], found["answers"] + missed, *shown, f"{found['above']:.0f}"]
    return f"| {' | '.join(cells)} |"


def kill_row(found: dict[str, Any]) -> str:
    """A row below `KILL_HEAD`: how often a command was killed, and went on to the right result."""
    if found["missed"]:
        return f"| {found['command']} | **missed**: {found['missed']} | | |"
    return f"| {found['command']} | {found['killed']} | {found['finished']} | {found['seconds']:.1f} |"
