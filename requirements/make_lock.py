"""Pin everything that is installed: `make lock` writes requirements/lock.txt and the second part of constraints.txt.

Versions are those of the environment that the tests ran in: every package that Tagfill with its extras needs, directly
or through another package. `lock.txt` has the SHA-256 of each file that PyPI offers for a version, so it holds for
other platforms too. torch and torchvision are pinned without hashes: their builds (CPU, CUDA, macOS) differ between
machines.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from pip._internal.models.index import PyPI  # the address that pip itself asks

PROJECT = Path(__file__).parents[1]
LOCK, CONSTRAINTS = PROJECT / "requirements" / "lock.txt", PROJECT / "constraints.txt"
LOCKED = ("dev", "pretrained", "docs")  # extras that `make` installs
BUILDS = ("torch", "torchvision")  # differ between machines
BUILD_TOOLS = ("setuptools",)  # build-system.requires of pyproject.toml
GENERATED = "# installed with them; this part is written by `make lock`\n"


def closure(extras: Iterable[str]) -> dict[str, str]:
    """Name and version of every installed package that Tagfill with these extras needs, except builds and itself."""
    versions: dict[str, str] = {}
    visited = set()
    pending = [("tagfill", frozenset(extras))]
    while pending:
        name, wanted = pending.pop()
        if (name, wanted) in visited:
            continue
        visited.add((name, wanted))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed; run 'make venv docs' first.") from None
        versions[name] = found.version.partition("+")[0]
        for line in found.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in ("", *wanted)):
                pending.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return {name: version for name, version in sorted(versions.items()) if name not in ("tagfill", *BUILDS)}


def pins(text: str) -> dict[str, str]:
    """Name and version of each line `name==version`.

    >>> pins("types-PyYAML==6.0 --hash=sha256:0")
    {'types-pyyaml': '6.0'}
    """
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def hashes(name: str, version: str) -> list[str]:
    """The SHA-256 of each file of a version on PyPI."""
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    request = urllib.request.Request(f"{PyPI.simple_url}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=120, context=context) as answer:
        page = answer.read().decode()
    links = re.findall(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"', page)
    found = sorted({digest for file, digest in links if _version(file) == version})
    if not found:
        raise SystemExit(f"PyPI has no file of {name} {version}.")
    return found


def _version(file: str) -> str | None:
    parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
    try:
        return str(parse(file)[1])
    except ValueError:  # an old kind of file
        return None


def main() -> None:
    """Write both files."""
    direct, _, _ = CONSTRAINTS.read_text(encoding="utf-8").partition(GENERATED)
    chosen = pins(direct)
    locked = closure(LOCKED) | {name: chosen[name] for name in BUILD_TOOLS}
    wrong = [f"{name} {version}" for name, version in locked.items() if chosen.get(name, version) != version]
    if wrong:
        raise SystemExit(f"Not the versions of constraints.txt are installed: {', '.join(wrong)}; run 'make venv'.")
    further = "".join(f"{name}=={version}\n" for name, version in sorted(locked.items()) if name not in chosen)
    with ThreadPoolExecutor(8) as pool:
        digests = dict(zip(locked, pool.map(hashes, locked, locked.values()), strict=True))
    lines = [f"# What `make` installs, except {' and '.join(BUILDS)}. Written by `make lock`.\n"]
    for name, version in sorted(locked.items()):
        lines += [f"{name}=={version}", *(f" \\\n    --hash=sha256:{value}" for value in digests[name]), "\n"]
    LOCK.write_text("".join(lines), encoding="utf-8")
    CONSTRAINTS.write_text(direct + GENERATED + further, encoding="utf-8")
    sys.stdout.write(
        f"{len(locked)} packages in {LOCK.relative_to(PROJECT)}, {len(chosen)} chosen in constraints.txt\n"
    )


if __name__ == "__main__":
    main()
