"""Asking for help must be quick: nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "timm", "torchvision", "faiss", "fastapi", "matplotlib", "pyarrow", "pydantic", "yaml", "rich"}

SCRIPT = Path(sys.executable).with_name("tagfill")

IMPORT = "import tagfill"
AS_MODULE = 'runpy.run_module("tagfill", run_name="__main__", alter_sys=True)'
AS_SCRIPT = f'runpy.run_path({str(SCRIPT)!r}, run_name="__main__")'

REPORT = """
import atexit, json, runpy, sys
sys.argv = ["tagfill", "--help"]
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
{start}
"""


@pytest.mark.parametrize("start", [IMPORT, AS_MODULE, AS_SCRIPT], ids=["import", "python -m tagfill", "tagfill"])
def test_no_heavy_library_is_imported(start):
    result = subprocess.run(
        [sys.executable, "-c", REPORT.format(start=start)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    modules = set(json.loads(result.stderr.splitlines()[-1]))
    assert "tagfill" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize(
    "command", [[str(SCRIPT)], [sys.executable, "-m", "tagfill"]], ids=["tagfill", "python -m tagfill"]
)
def test_help_is_shown(command):
    result = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "demo" in result.stdout
