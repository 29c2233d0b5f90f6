"""Everything that is installed is pinned, with hashes where builds do not differ between machines."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
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
    assert set(make_lock.pins(chosen)) == direct | set(make_lock.BUILD_TOOLS)


def test_everything_that_is_installed_is_locked():
    if sys.version_info[:2] == (3, 11) and sys.platform == "linux":  # for which the lock was made
        installed = set(make_lock.closure(("dev", "pretrained")))
        assert installed <= set(make_lock.pins(LOCK)), "run `make lock`"


def test_the_lock_agrees_with_the_constraints_and_has_hashes():
    locked, pinned = make_lock.pins(LOCK), make_lock.pins(CONSTRAINTS)
    assert {name: pinned.get(name) for name in locked} == locked
    assert not set(locked) & set(make_lock.BUILDS)
    for entry in re.split(r"\n(?=\S)", LOCK.strip())[1:]:
        assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry[:80]


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
