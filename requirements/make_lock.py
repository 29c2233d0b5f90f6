"""Pin everything that is installed: `make lock` writes the files in requirements/ and a part of constraints.txt.

    constraints.txt              versions: the first part is chosen by hand, the second one is written here
    requirements/lock.txt        what `make` installs, with the SHA-256 of each file that PyPI offers for a version
    requirements/lock-cpu.txt    the build of torch without CUDA, which is installed instead of PyPI's if pip finds it
    requirements/lock-cuda.txt   what PyPI's torch needs besides on Linux

Versions are those of the environment that the tests ran in: every package that Tagfill with its extras needs, directly
or through another package. PyPI's hashes hold for all platforms. Builds with a local version, such as 2.13.0+cpu, have
a file of their own, since pip prefers PyPI's files to them if both have an allowed hash. It is written where pip
chooses such a build, and kept elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from pip._internal.models.index import PyPI  # the address that pip itself asks

PROJECT = Path(__file__).parents[1]
LOCK, CPU_LOCK, CUDA_LOCK = (PROJECT / "requirements" / name for name in ("lock.txt", "lock-cpu.txt", "lock-cuda.txt"))
CONSTRAINTS = PROJECT / "constraints.txt"
LOCKED = ("dev", "pretrained", "docs")  # extras that `make` installs
BUILDS = ("torch", "torchvision")  # have builds elsewhere than on PyPI, with a local version
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GENERATED = "# installed with them; this part is written by `make lock`\n"


def project() -> dict[str, Any]:
    """The content of pyproject.toml."""
    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(extras: Iterable[str]) -> list[Requirement]:
    """What Tagfill with these extras needs directly, and what builds it."""
    content = project()
    groups = [content["build-system"]["requires"], content["project"]["dependencies"]]
    groups += [content["project"]["optional-dependencies"][extra] for extra in extras]
    return [Requirement(line) for group in groups for line in group]


def closure(needed: Iterable[Requirement]) -> dict[str, str]:
    """Name and version of every installed package that these requirements lead to, with any of the Pythons."""
    versions: dict[str, str] = {}
    visited = set()
    pending = [(canonicalize_name(one.name), frozenset(one.extras)) for one in needed]
    while pending:
        name, extras = pending.pop()
        if (name, extras) in visited:
            continue
        visited.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed; run 'make venv docs' first.") from None
        versions[name] = found.version.partition("+")[0]
        for one in map(Requirement, found.requires or ()):
            if _applies(one, extras):
                pending.append((canonicalize_name(one.name), frozenset(one.extras)))
    return dict(sorted(versions.items()))


def _applies(needed: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement of a package with these extras holds for any of the Pythons.

    >>> _applies(Requirement("tomli; python_version < '3.11'"), ()), _applies(Requirement("a; extra == 'b'"), ["b"])
    (False, True)
    """
    return needed.marker is None or any(
        needed.marker.evaluate({"extra": extra, "python_version": python, "python_full_version": f"{python}.0"})
        for extra in ("", *extras)
        for python in PYTHONS
    )


def pins(text: str) -> dict[str, str]:
    """Name and version of each line `name==version`.

    >>> pins("types-PyYAML==6.0 --hash=sha256:0")
    {'types-pyyaml': '6.0'}
    """
    found = re.findall(r"^([\w.-]+)==([^\s\\;]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


# PyPI


def hashes(name: str, version: str) -> list[str]:
    """The SHA-256 of each file of a version on PyPI."""
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    request = urllib.request.Request(f"{PyPI.simple_url}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=120, context=context) as answer:
        page = answer.read().decode()
    links = re.findall(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"', page)
    found = sorted({digest for file, digest in links if _version(file) == Version(version)})
    if not found:
        raise SystemExit(f"PyPI has no file of {name} {version}.")
    return found


def _version(file: str) -> Version | None:
    parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
    try:
        return parse(file)[1]
    except ValueError:  # an old kind of file
        return None


def pip_report(*words: str, **variables: str) -> list[dict[str, Any]]:
    """What pip would install into an empty environment."""
    flags = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *flags, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
    found: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return found


def local_builds(versions: Mapping[str, str]) -> dict[str, list[str]]:
    """The SHA-256 of each `name==version` with a local version that pip chooses on this machine."""
    report = pip_report("--no-deps", *(f"{name}=={version}" for name, version in versions.items()))
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}": [
            one["download_info"]["archive_info"]["hashes"]["sha256"]
        ]
        for one in report
        if "+" in one["metadata"]["version"]
    }


def cuda_closure(torch: str) -> dict[str, str]:
    """Name and version of everything that PyPI's build of torch for Linux needs.

    Takes minutes: pip looks into wheels of several gigabytes without downloading them (`fast-deps`).
    """
    only_pypi = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    flags = ["--use-feature=fast-deps", "--constraint", str(CONSTRAINTS)]
    report = pip_report(*flags, f"torch=={torch}", **only_pypi)
    return {canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in report}


def _lines(digests: Mapping[str, Iterable[str]], marker: str = "") -> str:
    return "".join(
        "".join([pin, marker, *(f" \\\n    --hash=sha256:{value}" for value in sorted(digests[pin])), "\n"])
        for pin in sorted(digests)
    )


def main() -> None:
    """Write the files."""
    direct, _, _ = CONSTRAINTS.read_text(encoding="utf-8").partition(GENERATED)
    chosen = pins(direct)
    locked = closure(requirements(LOCKED))
    wrong = [f"{name} {version}" for name, version in locked.items() if chosen.get(name, version) != version]
    if wrong:
        raise SystemExit(f"Not the versions of constraints.txt are installed: {', '.join(wrong)}; run 'make venv'.")
    cuda = {name: version for name, version in cuda_closure(locked["torch"]).items() if name not in locked}
    versions = locked | cuda
    with ThreadPoolExecutor(8) as pool:
        digests = dict(zip(versions, pool.map(hashes, versions, versions.values()), strict=True))
    head = "# {}. Written by `make lock`.\n"
    if builds := local_builds({name: locked[name] for name in BUILDS}):
        what = head.format("Builds that are preferred to those of PyPI where pip finds them")
        CPU_LOCK.write_text(what + _lines(builds), encoding="utf-8")
    LOCK.write_text(
        head.format("What `make` installs") + _lines({f"{name}=={locked[name]}": digests[name] for name in locked}),
        encoding="utf-8",
    )
    CUDA_LOCK.write_text(
        head.format("What torch from PyPI needs besides on Linux")
        + _lines({f"{name}=={cuda[name]}": digests[name] for name in cuda}, '; platform_system == "Linux"'),
        encoding="utf-8",
    )
    further = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()) if name not in chosen)
    CONSTRAINTS.write_text(direct + GENERATED + further, encoding="utf-8")
    sys.stdout.write(f"{len(locked)} packages in {LOCK.name}, {len(cuda)} in {CUDA_LOCK.name}\n")


if __name__ == "__main__":
    main()
