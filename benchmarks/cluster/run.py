"""Commands on a real Ray cluster of three nodes, one of which is killed; writes benchmarks/results/cluster.json.

A head and two worker nodes run on this machine, each with one core, its own address, ports and object store (nodes.py).
Features of photos, predictions and a comparison are made by one process, by the cluster, and by the cluster while all
processes of a worker node are killed with SIGKILL; the three results must have the same bytes. Then a node joins that
does not see the photos, and each command must say so. Needs Linux, Ray and PASCAL VOC 2012. Results are written after
each step, and the same command continues where it stopped.

    python benchmarks/cluster/run.py VOCdevkit --work WORK                5,000 photos
    python benchmarks/cluster/run.py VOCdevkit --work WORK --photos 600   a first picture
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes import Cluster, Node

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say
from own_network import enter_network

RECORD = Record("cluster", ("engines.py", "data", "inference", "experiments"), ("ray", "torch"))
WORKERS = 2
IMAGE_SIZE = 96  # small, since the cluster is measured and not the network
EPOCHS = 10
TIMES = ("seconds", "minutes", "time")  # parts of names in results that say how long something took


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes:
        name: for the table.
        command: its words, without the engine; `OUT` is where the result goes.
        read: the content of the result that must not depend on where it was made.
    """

    name: str
    command: Sequence[str]
    read: Callable[[Path], dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos_folder", type=Path, metavar="VOC", help="PASCAL VOC 2012: a folder or a tar archive")
    parser.add_argument("--work", type=Path, required=True, help="folder for datasets and results; keep its path short")
    parser.add_argument("--photos", type=int, default=5000, help="how many of them")
    options = parser.parse_args()
    enter_network()
    work = options.work.absolute()
    prepare(options.photos_folder.absolute(), work, options.photos)
    results = begin(options.photos)
    cluster = Cluster(work / "nodes")
    shutil.rmtree(cluster.folder, ignore_errors=True)
    try:
        for case in cases(work):
            measure(case, cluster, work, results)
        if "lacking" not in results:
            start(cluster, WORKERS - 1)
            results["lacking"] = lacking(cluster, work)
            write(results)
    finally:
        cluster.stop()


def begin(photos: int) -> dict[str, Any]:
    """The results so far, or new ones for another number of photos."""
    new = {**RECORD.begin(" VOCdevkit --work WORK"), "photos": photos, "nodes": WORKERS + 1, "cases": {}}
    new |= {"backbone": "tf_efficientnet_lite0", "image_size": IMAGE_SIZE, "epochs": EPOCHS}
    if RECORD.results.exists():
        found: dict[str, Any] = json.loads(RECORD.results.read_text(encoding="utf-8"))
        if found["photos"] == photos:
            return {**new, **{name: found[name] for name in found.keys() - {"command", "commit", "machine"}}}
    return new


def write(results: dict[str, Any]) -> None:
    RECORD.results.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def prepare(photos: Path, work: Path, count: int) -> None:
    """A dataset of some photos with one positive each, unless it is there."""
    if (work / "single" / "dataset.yaml").exists():
        return
    import numpy as np
    import pyarrow as pa

    import tagfill

    work.mkdir(parents=True, exist_ok=True)
    say("importing photos")
    full = tagfill.formats.voc.read(photos, extract_to=work / "photos")
    rows = np.linspace(0, len(full) - 1, count).astype(np.int64)
    chosen = full.images.take(pa.array(rows))
    names = set(chosen["image"].to_pylist())
    kept = [row for row in full.rows().to_pylist() if row["image"] in names]
    some = full.replace(images=chosen, annotations=tagfill.dataset.from_records(kept), folder=None)
    tagfill.protocols.single_positive(some.save(work / "full"), seed=1200).save(work / "single")


def cases(work: Path) -> list[Case]:
    """The three commands; paths are relative to WORK, and nodes run elsewhere."""
    single, size = "single", str(IMAGE_SIZE)
    chosen = ["--methods", "ll-r,role", "--seeds", "2", "--epochs", str(EPOCHS), "--no-report", "--quiet"]
    chosen += ["--set", f"image_size={size}"]
    extracted = ["--views", "eval", "--image-size", size, "--quiet"]
    plain = ["--ignore-tags", "--workers", "0", "--quiet"]
    return [
        Case("features", ["features", single, *extracted, "--out", "OUT"], hashes),
        Case("compare", ["compare", single, *chosen, "--features", "one/features", "--out", "OUT"], comparison),
        Case("predict", ["predict", "one/compare/runs/ll-r-s0", single, *plain, "--out", "OUT.parquet"], hashes),
    ]


def measure(case: Case, cluster: Cluster, work: Path, results: dict[str, Any]) -> None:
    """Run a command in the three ways, those of which no result is there."""
    found = results["cases"].setdefault(case.name, {})
    if "one" not in found:
        say(f"{case.name}: one process")
        found["one"] = {"seconds": run(case, work, "one", cluster)}
        write(results)
    expected = case.read(work / "one" / case.name)
    assert expected, f"{case.name} made nothing"
    for way in ("cluster", "killed"):
        if way in found:
            continue
        start(cluster, WORKERS)
        say(f"{case.name}: {way}")
        watch = Killing(cluster, found["cluster"]["seconds"] / 2) if way == "killed" else None
        seconds = run(case, work, way, cluster, watch)
        same = case.read(work / way / case.name) == expected
        found[way] = {"seconds": seconds, "same": same, **({} if watch is None else watch.report())}
        write(results)
        say(json.dumps(found[way]))
        assert same, f"{case.name} has other bytes: {work / way / case.name}"


def start(cluster: Cluster, workers: int) -> None:
    """Start the nodes that are not there: the head, and workers in place of killed ones."""
    while len(cluster.nodes) < workers + 1:
        say(f"starting node {len(cluster.nodes) + 1}")
        cluster.start_node()


class Killing:
    """Kills the first worker node that gets a task, once it has run tasks for a while."""

    def __init__(self, cluster: Cluster, after: float) -> None:
        self._cluster, self._after = cluster, after
        self._node: Node | None = None
        self._busy = 0.0
        self._killed: dict[str, Any] = {}

    def look(self) -> None:
        """Kill the node if its time has come."""
        if self._killed:
            return
        if self._node is None:
            self._node = next((node for node in self._cluster.nodes[1:] if node.tasks()), None)
            self._busy = time.monotonic()
        elif time.monotonic() > self._busy + min(self._after, 20.0) and (tasks := self._node.tasks()):
            moment = time.monotonic() - self._busy
            self._killed = {"tasks_killed": len(tasks), "task_seconds": round(moment, 1)}
            self._killed["processes_killed"] = self._cluster.kill_node(self._node)
            say(f"killed {self._killed}")

    def report(self) -> dict[str, Any]:
        """What was killed."""
        assert self._killed, "the command ended before a node could be killed"
        return self._killed


def run(case: Case, work: Path, way: str, cluster: Cluster, killing: Killing | None = None) -> float:
    """Run a command in WORK; return the seconds that it took."""
    out = f"{way}/{case.name}"
    for old in (work / way).glob(f"{case.name}*") if (work / way).exists() else ():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    (work / way).mkdir(exist_ok=True)
    words = [sys.executable, "-m", "tagfill", *(word.replace("OUT", out) for word in case.command)]
    if way != "one":
        words += ["--engine", "ray", "--ray-address", cluster.address]
    elif case.name == "compare":
        words += ["--jobs", "1"]
    begin = time.monotonic()
    with (work / f"{way}-{case.name}.log").open("w+b") as log:
        process = subprocess.Popen(words, cwd=work, env=cluster.environment(), stdout=log, stderr=log)
        while process.poll() is None:
            time.sleep(0.2)
            if killing is not None:
                killing.look()
        seconds = time.monotonic() - begin
        log.seek(0)
        assert process.returncode == 0, f"{case.name} ended with {process.returncode}: {log.read().decode()[-2000:]}"
    return round(seconds, 1)


def lacking(cluster: Cluster, work: Path) -> dict[str, str]:
    """What each command says when a node does not see the folder of the photos or of the dataset."""
    from tagfill.dataset import Dataset

    said, root = {}, Path(Dataset.open(work / "single").root)
    for case in cases(work):
        hidden = work / "single" if case.name == "compare" else root
        say(f"{case.name}: a node without {hidden}")
        node = cluster.start_node(without=hidden)
        out = f"lacking/{case.name}"
        shutil.rmtree(work / "lacking", ignore_errors=True)
        (work / "lacking").mkdir()
        words = [sys.executable, "-m", "tagfill", *(word.replace("OUT", out) for word in case.command)]
        words += ["--engine", "ray", "--ray-address", cluster.address]
        done = subprocess.run(
            words, cwd=work, env=cluster.environment(), capture_output=True, text=True, check=False, timeout=1800
        )
        assert done.returncode == 2, f"{case.name} ended with {done.returncode}: {done.stderr[-2000:]}"
        cluster.kill_node(node)
        said[case.name] = done.stderr.strip().splitlines()[-1].replace(str(root), "PHOTOS").replace(str(work), "WORK")
        say(said[case.name])
    return said


def hashes(out: Path) -> dict[str, str]:
    """The hash of each file of a result."""
    files = out.rglob("*") if out.is_dir() else out.parent.glob(f"{out.name}.*")
    return {
        str(path.relative_to(out.parent)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
        if path.is_file() and path.name != ".lock"
    }


def comparison(out: Path) -> dict[str, str]:
    """The leaderboard without times, and the hashes of all models and metrics."""
    found = {}
    for pattern in ("runs/*/best/model.safetensors", "runs/*/metrics.jsonl"):
        for path in sorted(out.glob(pattern)):
            found[str(path.relative_to(out))] = hashlib.sha256(path.read_bytes()).hexdigest()
    board = json.loads((out / "leaderboard.json").read_text(encoding="utf-8"))
    return {**found, "leaderboard": json.dumps(without_times(board), sort_keys=True)}


def without_times(content: Any) -> Any:
    """Plain values without those whose name says that they are times."""
    if isinstance(content, dict):
        return {name: without_times(value) for name, value in content.items() if not any(t in name for t in TIMES)}
    return [without_times(value) for value in content] if isinstance(content, list) else content


if __name__ == "__main__":
    main()
