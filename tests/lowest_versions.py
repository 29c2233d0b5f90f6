"""Constraints for the lowest versions that pyproject.toml allows; `make minimal` runs the tests with them.

torch and torchvision are excluded, because their builds depend on the machine; they and the test tools keep the
versions of constraints.txt.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1]
AS_PINNED = ("torch", "torchvision")
LOWERED = ("pretrained", "tensorboard", "export", "serve", "pandas")  # extras, besides what is always installed


def lowest(requirements: list[str]) -> dict[str, str]:
    """Name and lowest version of each requirement.

    >>> lowest(["fsspec[http]>=2024.6", "torch>=2.5", "wordllama>=0.4.0.post1"])
    {'fsspec': '2024.6', 'wordllama': '0.4.0.post1'}
    """
    found = {}
    for requirement in requirements:
        parts = re.fullmatch(r"([A-Za-z0-9_.-]+)(?:\[.*\])?>=([0-9.]+(?:post[0-9]+)?)", requirement)
        if parts is None:
            raise ValueError(f"{requirement} has no lowest version; write it as name>=version.")
        if parts[1] not in AS_PINNED:
            found[parts[1]] = parts[2]
    return found


def constraints() -> list[str]:
    """One line per package: its lowest version if it is lowered, else the pinned one.

    >>> "pillow==12.3" in constraints()
    True
    """
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [entry for extra in LOWERED for entry in project["optional-dependencies"][extra]]
    low = lowest([*project["dependencies"], *extras])
    chosen, _, _ = (PROJECT / "constraints.txt").read_text(encoding="utf-8").partition("# installed with them")
    pinned = [line for line in chosen.splitlines() if "==" in line and line.partition("==")[0] not in low]
    return [*(f"{name}=={version}" for name, version in low.items()), *pinned]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in constraints()))
