"""Runs part of the tests with every Python that Tagfill supports and this machine has; `make pythons` calls it.

Each gets an environment of its own (`.venv-3.12`), with the wheel, the versions of constraints.txt and the test tools.
Without arguments, Pythons are looked for on the path and among those of pyenv; otherwise each argument names one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
EXTRAS = "pretrained,serve,export,pandas,polars,sklearn,cleanlab"
TOOLS = ("pytest", "hypothesis", "httpx", "playwright", "pytest-xdist")
TESTS = (
    "tests/dataset",
    "tests/formats",
    "tests/metrics",
    "tests/losses",
    "tests/training/test_run.py",
    "tests/bridges",
)


def supported() -> list[str]:
    """Versions of Python that the package's classifiers name.

    >>> supported()[:2]
    ['3.11', '3.12']
    """
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    last = (line.rpartition(" :: ")[2] for line in project["classifiers"] if "Python :: 3." in line)
    return list(last)


def version_of(program: str) -> str | None:
    """The version of an interpreter, such as "3.12"; None if it does not start.

    >>> version_of("no-such-python") is None
    True
    """
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([program, "-c", asked], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def found(versions: Iterable[str]) -> Iterator[str]:
    """One interpreter for each version that this machine has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        programs = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python3")))]
        yield from [program for program in programs if program and version_of(program) == version][:1]


def run(program: str, version: str) -> bool:
    """Install the package for one Python, and run the tests; True if they pass."""
    place = PROJECT / f".venv-{version}"
    own = place / "bin" / "python"
    if not own.exists():
        subprocess.run([program, "-m", "venv", place], check=True)
    pip = [own, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", PROJECT / "constraints.txt"]
    if subprocess.run([*pip, f"{PROJECT}[{EXTRAS}]", *TOOLS], check=False).returncode:
        return False
    known = {**os.environ, "OMP_NUM_THREADS": "1"}
    known.pop("PYTHONPATH", None)
    words = ["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not long", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run([own, *words], cwd=PROJECT, env=known, check=False).returncode == 0


def main(programs: list[str]) -> int:
    versions = supported()
    programs = programs or list(found(versions))
    outcome = {}
    for program in programs:
        version = version_of(program)
        if version is None:
            outcome[program] = "does not start"
        elif version not in versions:
            outcome[program] = f"is Python {version}, which is not supported"
        else:
            outcome[f"Python {version}"] = "passed" if run(program, version) else "failed"
    absent = [version for version in versions if f"Python {version}" not in outcome]
    lines = [f"{name}: {words}" for name, words in outcome.items()]
    if absent:
        lines.append(f"not on this machine, or not asked for: {', '.join(absent)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if outcome and set(outcome.values()) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
