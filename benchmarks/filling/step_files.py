"""Source files that one training step runs through.

<!-- numbers: step-files -->
"""

from __future__ import annotations

from filling.results import results, table


def step_files(arguments: str, top: str) -> str:
    """One row per method: the number of files now and in version 0.1, and which they are."""
    del arguments, top
    found = results("step_files")
    assert found is not None, "run python benchmarks/step_files/run.py first"
    rows = [
        [f"`{method}`", str(now["files"]), str(found["version 0.1"][method]), ", ".join(f"`{n}`" for n in now["names"])]
        for method, now in found["methods"].items()
    ]
    return table(["method", "files", "version 0.1", "which"], rows)
