"""What `make attack` noticed.

<!-- numbers: attacks serve -->
<!-- numbers: attacks kill -->
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

TABLES = Path(__file__).parents[2] / "attacks" / "tables.py"


def tables_of_attacks() -> ModuleType:
    """The module that stores results of attacks; benchmarks have others of this name."""
    spec = importlib.util.spec_from_file_location("tables_of_attacks", TABLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attacks(arguments: str, top: str) -> str:
    """The table of one attack."""
    del top
    tables = tables_of_attacks()
    found = tables.read(arguments)
    machine = found["machine"]
    where = f"`{found['command']}` at commit `{found['commit']}` on {machine['cores']} cores, load {machine['load']:g}"
    if arguments == "kill":
        rows = [*tables.KILL_HEAD, *map(tables.kill_row, found["rows"].values())]
        return "\n".join([*rows, "", f"{where}."])
    rows = [*tables.SERVE_HEAD, *map(tables.serve_row, found["rows"])]
    each = f"{found['clients']} hostile clients for {found['seconds']:g} seconds, {found['rest']:.0f} MB at rest"
    return "\n".join([*rows, "", f"{where};", f"{each}."])
