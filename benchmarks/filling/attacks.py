"""What `make attack` noticed.

<!-- numbers: attacks serve -->
<!-- numbers: attacks kill -->
"""

from __future__ import annotations

from pathlib import Path

from bookkeeping import module_of

TABLES = Path(__file__).parents[2] / "attacks" / "tables.py"


def attacks(arguments: str, top: str) -> str:
    """The table of one attack."""
    del top
    tables = module_of(TABLES)
    found = tables.read(arguments)
    machine = found["machine"]
    where = f"`{found['command']}` at commit `{found['commit']}` on {machine['cores']} cores, load {machine['load']:g}"
    if arguments == "kill":
        rows = [*tables.KILL_HEAD, *map(tables.kill_row, found["rows"].values())]
        return "\n".join([*rows, "", f"{where}."])
    rows = [*tables.SERVE_HEAD, *map(tables.serve_row, found["rows"])]
    each = f"{found['clients']} hostile clients for {found['seconds']:g} seconds, {found['rest']:.0f} MB at rest"
    return "\n".join([*rows, "", f"{where};", f"{each}."])
