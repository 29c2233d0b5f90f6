"""Look up known vulnerabilities of every pinned version: `make audit`.

pip-audit calls a version that its database does not list "skipped" and ends well. Here only a version that was really
looked up counts. The exit code is 0 if all of them were and none is known to be vulnerable, 1 if one is, and 2 if some
could not be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
DATABASES = {"pypi": "PyPI", "osv": "OSV"}


def audit(database: str) -> list[dict[str, object]]:
    """What a database says about each pinned package; empty if it cannot be reached."""
    words = ["--vulnerability-service", database, "--no-deps", "--disable-pip", "--requirement", str(CONSTRAINTS)]
    command = [sys.executable, "-m", "pip_audit", *words, "--format", "json", "--progress-spinner", "off"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, object]] = json.loads(found.stdout)["dependencies"]
    except (ValueError, KeyError):
        return []
    return packages


def summary(packages: list[dict[str, object]]) -> tuple[int, str]:
    """Exit code and report.

    >>> summary([{"name": "a", "skip_reason": "not found"}])[0]
    2
    >>> summary([{"name": "a", "version": "1", "vulns": []}])
    (0, 'None of 1 pinned packages has a known vulnerability.')
    >>> vulnerable = [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]
    >>> summary(vulnerable)
    (1, 'a 1: CVE-1, fixed in 2')
    """
    checked = [one for one in packages if "vulns" in one]
    if not checked:
        return (
            2,
            f"No vulnerability database could be reached ({' or '.join(DATABASES.values())}); nothing was checked.",
        )
    lines = [
        f"{one['name']} {one['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for one in checked
        for known in one["vulns"]  # type: ignore[attr-defined]
    ]
    missing = [str(one["name"]) for one in packages if "vulns" not in one]
    if missing:
        lines.append(f"{len(missing)} packages could not be looked up: {', '.join(missing)}.")
    if not lines:
        return 0, f"None of {len(checked)} pinned packages has a known vulnerability."
    return (1 if any(one["vulns"] for one in checked) else 2), "\n".join(lines)


def main() -> None:
    """Ask the first database that answers."""
    for database in DATABASES:
        packages = audit(database)
        if any("vulns" in one for one in packages):
            break
    code, report = summary(packages)
    (sys.stderr if code == 2 else sys.stdout).write(f"{report}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
