"""What an accelerator does with Tagfill; writes benchmarks/results/accelerator-DEVICE.json and its page.

For somebody who has a GPU and ten minutes. Four parts, each of which says what failed instead of ending the script:

1. methods: a few steps of every method on the device, compared with the same steps on the CPU, and in bfloat16
2. resuming: a run that is killed and resumed, compared with one that is not
3. two processes: a run on two devices, if there are two
4. throughput: images per second of the whole network, of its top and of its head, in float32 and bfloat16

The data is rendered; nothing is downloaded. The tables are printed at the end, to be pasted.

    python benchmarks/accelerator/run.py                      on CUDA or MPS
    python benchmarks/accelerator/run.py --device cpu         to try the script without either
    python benchmarks/accelerator/run.py --quick              few methods and images, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checks import check_methods, check_processes, check_resuming
from page import TABLES, failures, page, section
from throughput import measure_throughput

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import ROOT, Record, say

from tagfill.errors import TagfillError
from tagfill.models import choose_device

RECORD = Record("accelerator", ("training", "methods", "losses", "memory", "models"), libraries=("torch", "timm"))
PARTS: dict[str, Callable[..., Any]] = {
    "methods": check_methods,
    "resuming": check_resuming,
    "processes": check_processes,
    "throughput": measure_throughput,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", *map(str.lower, TABLES)))
    parser.add_argument("--quick", action="store_true", help="few methods and images; writes no file")
    arguments = parser.parse_args()
    try:
        device = choose_device(arguments.device)
    except TagfillError as error:
        parser.exit(2, f"Error: {error}\n")
    if device.type == "cpu" and arguments.device == "auto":
        parser.exit(2, "Error: torch finds neither CUDA nor MPS here; give --device cpu to try the script.\n")
    begin = time.monotonic()
    results = RECORD.begin(f" --device {device.type}")
    results |= {"device": device.type, "name": device_name(device), "quick": arguments.quick}
    with tempfile.TemporaryDirectory(prefix="accelerator-") as work:
        for part, measure in PARTS.items():
            say(part)
            results[part] = measure(Path(work), device.type, quick=arguments.quick)
    results["minutes"] = round((time.monotonic() - begin) / 60, 1)
    results = json.loads(json.dumps(results))
    if not arguments.quick:
        write(results)
    print(section(results))
    sys.exit(bool(failures(results)))


def device_name(device: torch.device) -> str:
    """What the vendor calls it."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(0)
        count = torch.cuda.device_count()
        return f"{count} × {found.name}, {found.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
    return "Apple GPU" if device.type == "mps" else "no accelerator"


def write(results: dict[str, Any]) -> None:
    """Write the results, and the page with those of all devices."""
    folder = RECORD.results.parent
    file = folder / f"accelerator-{results['device']}.json"
    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    files = {table: folder / f"accelerator-{table.lower()}.json" for table in TABLES}
    found = {table: json.loads(path.read_text("utf-8")) for table, path in files.items() if path.exists()}
    (ROOT / "docs" / "benchmarks" / "accelerator.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
