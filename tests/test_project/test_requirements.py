"""Everything that is installed is pinned, with hashes where builds do not differ between machines."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
CPU_LOCK = (ROOT / "requirements" / "lock-cpu.txt").read_text(encoding="utf-8")
CUDA_LOCK = (ROOT / "requirements" / "lock-cuda.txt").read_text(encoding="utf-8")
FIXED = {  # the first version without the vulnerabilities that docs/dependencies.md names
    "torch": "2.10",
    "starlette": "1.3.1",
    "python-multipart": "0.0.30",
    "pillow": "12.3",
    "jinja2": "3.1.6",
    "ray": "2.52",
}


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "requirements" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_lock, audit = script("make_lock"), script("audit")


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(line) for group in groups for line in group]


def test_every_dependency_is_pinned():
    chosen, generated, _ = CONSTRAINTS.partition(make_lock.GENERATED)
    assert generated
    direct = {canonicalize_name(one.name) for one in requirements()}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert set(make_lock.pins(chosen)) == direct | {Requirement(line).name for line in build}


def test_everything_that_is_installed_is_locked():
    installed = set(make_lock.closure(make_lock.requirements(("dev", "pretrained"))))
    assert {"torch", "setuptools", "pytest", "markupsafe"} <= installed
    assert installed <= set(make_lock.pins(LOCK)), "run `make lock`"


def test_the_lock_holds_for_every_python():
    """A package that only another Python needs would not be installed by `make`."""
    needed = Requirement("tomli; python_version > '3.13'")
    assert make_lock._applies(needed, ())
    assert not make_lock._applies(Requirement("tomli; python_version < '3.11'"), ())
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert lowest == f">={make_lock.PYTHONS[0]}"


def test_the_lock_agrees_with_the_constraints_and_has_hashes():
    pinned = make_lock.pins(CONSTRAINTS)
    for lock, condition in ((LOCK, ""), (CPU_LOCK, ""), (CUDA_LOCK, '; platform_system == "Linux"')):
        locked = {name: version.partition("+")[0] for name, version in make_lock.pins(lock).items()}
        assert {name: pinned.get(name) for name in locked} == locked
        for entry in re.split(r"\n(?=\S)", lock.strip())[1:]:
            assert re.fullmatch(rf"\S+==[^\s;]+{condition}( \\\n    --hash=sha256:[0-9a-f]{{64}})+", entry), entry[:80]
    assert not set(make_lock.pins(LOCK)) & set(make_lock.pins(CUDA_LOCK))
    assert set(make_lock.BUILDS) <= set(make_lock.pins(LOCK))
    assert all("+" in version for version in make_lock.pins(CPU_LOCK).values())


def test_make_installs_by_hash_unless_asked_otherwise():
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "LOCKED")}

    def commands(*words):
        command = ["make", "--dry-run", "--always-make", *words, "venv"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "pip install" in line]

    assert all("--require-hashes" in line or "--no-index" in line for line in commands())
    assert [re.findall(r"lock[\w-]*(?=\.txt)", line) for line in commands()] == [
        ["lock-cpu"],
        ["lock"],
        ["lock-cuda"],
        [],
    ]
    assert not any("--require-hashes" in line for line in commands("LOCKED="))


@pytest.mark.parametrize(("name", "version"), FIXED.items())
def test_lowest_versions_exclude_known_vulnerabilities(name, version):
    floors = [one.specifier for one in requirements() if one.name == name]
    assert floors
    for floor in floors:
        (lowest,) = (Version(one.version) for one in floor if one.operator == ">=")
        assert lowest >= Version(version)


def test_an_audit_that_could_look_up_nothing_does_not_pass():
    code, report = audit.summary([{"name": "a", "skip_reason": "not found"}])
    assert code == 2
    assert report.endswith("nothing was checked.")
    checked = {"name": "a", "version": "1", "vulns": []}
    assert audit.summary([checked])[0] == 0
    assert audit.summary([checked, {"name": "b", "skip_reason": "not found"}])[0] == 2
    assert audit.summary([{**checked, "vulns": [{"id": "CVE-1", "fix_versions": []}]}])[0] == 1
