"""Table R: time and memory of every command at this size."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench import Bench, Write
from bookkeeping import ROOT, say
from single_positives import dataset
from steps import Memory, measured, record
from tables import table

LIMIT = 6_000
"""Megabytes that no step may need."""

TOKEN = "measured-page"
"""Of the review page."""

STEPS = {
    "import": "`import csv`, a table of 82,081 photos, 6.6 million labels",
    "features-inner": "`features --at blocks.5`, decoding every photo",
    "features-end": "`features --from`, the last features from that cache",
    "train-pooled": "`train --method an`, 10 epochs of a linear head",
    "train-role": "`train --method role`, 10 epochs, with a table of estimates",
    "train-auto": "`train`, with the default method `auto`, 10 epochs",
    "train-maps": "`train --method ll-r --boost 5`, 1 epoch on class maps",
    "train-top": "`train --train top --method an`, 1 epoch",
    "compare": "`compare --methods wan`, with `an` and `full`, 5 epochs",
    "evaluate": "`evaluate`, 12,000 test photos from the cache",
    "suggest": "`suggest` for 66,081 photos, 5 folds",
    "report": "`report` on one run",
    "predict": "`predict --split val --out`, 4,000 photos decoded",
    "predict-test": "`predict --split test --out`, 12,000 photos decoded",
    "fill": "`fill`, all 82,081 photos, of which 66,081 have one tag, from the cached features",
    "review": "`review` until its first page is there",
}


def measure(bench: Bench, write: Write) -> None:
    """Run what was not run yet; written after every step."""
    material, work = bench.material, bench.work
    data, end, inner = material.folder(dataset(bench, 0)), material.cache("end"), material.cache("blocks5")
    runs, out = work / "measured", work / "out"
    out.mkdir(parents=True, exist_ok=True)

    def step(name: str, *words: Any) -> None:
        if not bench.finished:
            try:
                measured(name, [*words, *([] if name == "evaluate" else ["-q"])], work)
            except SystemExit as error:  # the other steps can still be measured
                say(str(error))
        write(collected(bench))

    train = ["train", data, "--features", end, "--set", "batch_size=256", "--force", "--epochs"]
    step("train-pooled", *train, 10, "--method", "an", "--head", "linear", "--out", runs / "an")
    suggestions = out / "suggestions.parquet"
    step("suggest", "suggest", data, runs / "an", "--features", end, "--jobs", 1, "--out", suggestions)
    if not bench.finished:
        review(bench, ["review", data, "--suggestions", suggestions, "--run", runs / "an"])
    step("report", "report", runs / "an", "--out", out / "report.html", "--force")
    step("evaluate", "evaluate", runs / "an", data, "--features", end)
    step("train-role", *train, 10, "--method", "role", "--head", "linear", "--out", runs / "role")
    words = ["compare", data, "--methods", "wan", "--seeds", 1, "--epochs", 5, "--features", end, "--jobs", 1]
    step("compare", *words, "--set", "batch_size=256", "--set", "head=linear", "--out", out / "compared")
    step("train-maps", *train, 1, "--method", "ll-r", "--boost", 5, "--out", runs / "maps")
    step("predict", "predict", runs / "an", material.folder("full"), "--split", "val", "--threads", 1, "--workers", 0,
         "--force", "--out", out / "val.parquet")  # fmt: skip
    words = ["train", data, "--features", inner, "--train", "top", "--force", "--set", "batch_size=64"]
    step("train-top", *words, "--epochs", 1, "--method", "an", "--out", runs / "top")
    step("train-auto", *train, 10, "--out", runs / "auto")
    step("fill", "fill", data, "--features", end, "--jobs", 1, "--out", out / "filled")


def review(bench: Bench, words: list[Any]) -> None:
    """Start the review page, ask for it, and stop it."""
    if (bench.work / "steps" / "review.json").exists():
        return
    command = [sys.executable, "-m", "tagfill", *map(str, words), "--port", "8391", "--no-browser", "--token", TOKEN]
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watch = Memory(process.pid)
    try:
        while True:
            watch.look()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:8391/?token={TOKEN}", timeout=5) as answer:
                    answer.read()
                    break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("review ended before its page was there.") from None
                time.sleep(0.2)
        seconds = time.monotonic() - begun
        for _ in range(10):
            watch.look()
            time.sleep(0.2)
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
        spent = [int(word) for word in stat.rpartition(")")[2].split()[11:13]]
        computing = sum(spent) / os.sysconf("SC_CLK_TCK")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    record(bench.work, "review", {"seconds": seconds, "CPU seconds": computing, "peak MB": watch.peak, "ended": True})


def collected(bench: Bench) -> dict[str, Any]:
    """All steps that ended."""
    place = ROOT / "benchmarks" / "results" / "coco14-r.json"
    found = {} if bench.quick or not place.exists() else json.loads(place.read_text(encoding="utf-8"))["steps"]
    for name in STEPS:
        place = bench.work / "steps" / f"{name}.json"
        if place.exists() and (step := json.loads(place.read_text(encoding="utf-8")))["ended"]:
            found[name] = {key: round(step[key], 1) for key in ("seconds", "CPU seconds", "peak MB")}
    sizes = {name: size(bench, name) for name in ("blocks5", "end")}
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
    return {"steps": found, "limit MB": LIMIT, "memory MB": round(total), "cache MB": sizes}


def size(bench: Bench, name: str) -> int:
    """Megabytes of a cache on disk."""
    return round(sum(path.stat().st_size for path in bench.material.cache(name).rglob("*") if path.is_file()) / 1e6)


def section(results: dict[str, Any]) -> str:
    """What the page says."""
    steps = results["steps"]
    rows = [
        [STEPS[name], duration(steps[name]["CPU seconds"]), duration(steps[name]["seconds"]),
         f"{steps[name]['peak MB']:,.0f}"] if name in steps else [STEPS[name], "–", "–", "–"]
        for name in STEPS if name in steps or name != "predict-test"
    ]  # fmt: skip
    over = [STEPS[name] for name in steps if steps[name]["peak MB"] > results["limit MB"]]
    verdict = "None needs more." if not over else f"More is needed by {'; '.join(over)}."
    caches = results["cache MB"]
    return f"""Each command in a process of its own, on one core. The machine has {results["memory MB"]:,} MB; the limit
for every step is {results["limit MB"]:,} MB. {verdict} Other work ran on the machine at the same time, mostly with
precedence, so the time that passed says little; computing time does. Memory is an upper bound: it includes mapped
files of the largest process. A step keeps its numbers until it is measured again. On disk, the inner stage takes
{caches["blocks5"]:,} MB and the last features {caches["end"]:,} MB.

{table(["step", "computing time", "time passed", "peak MB"], rows)}"""


def duration(seconds: float) -> str:
    """Minutes and seconds.

    >>> duration(75.2)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
