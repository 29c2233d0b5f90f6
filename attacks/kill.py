"""Kill commands with SIGKILL at random moments, and start them again.

    python attacks/kill.py                                20 kills of each command, about ten minutes
    python attacks/kill.py --kills 5 --only plan suggest
    python attacks/kill.py --save                         for docs/security.md, which `make numbers` writes

After each kill, the files that a user reads are whole or not there. The same command, without --force, then ends with
the same result as one that was never killed, and leaves no temporary files. Commands run in forks of this process,
which has loaded everything already, except with `--engine ray` and `--processes 2`, which start processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables

TEMPORARY = (".tmp", ".parts", ".writing", ".replacing", ".unfinished", ".old")
BACKBONE = ("--backbone", "test_efficientnet", "--pretrained", "none", "--image-size", "64")
Content = Mapping[str, bytes]


@dataclass(frozen=True)
class Case:
    """A command to kill.

    Attributes:
        name: for the table.
        command: its words; `OUT` is where the result goes.
        results: the files that a user reads, below the folder of the case: each is whole or not there.
        prepare: makes the folder of the case before the command runs for the first time.
        read: the content of the results that must not depend on kills.
        resume: the command that goes on with a run, instead of the same one; its files grow until it ends.
    """

    name: str
    command: Sequence[str]
    results: Sequence[str]
    prepare: Callable[[Path], None] = lambda folder: folder.mkdir()
    read: Callable[[bytes], bytes] = lambda content: content
    resume: Sequence[str] = ()

    def start(self, folder: Path) -> int:
        """Start the command in a process group of its own; returns its id."""
        child = os.fork()
        if child:
            return child
        os.setsid()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        words = self.resume if self.resume and (folder / "out" / "run.json").exists() else self.command
        sys.argv = ["tagfill", *(word.replace("OUT", str(folder)) for word in words)]
        if {"ray", "--processes"} & set(sys.argv):
            os.execv(sys.executable, [sys.executable, "-m", *sys.argv])
        code = 1
        try:
            from tagfill.cli import main

            main()
        except SystemExit as ending:
            code = int(ending.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)

    def content(self, folder: Path) -> Content:
        """The results that are there."""
        paths = (folder / name for name in self.results)
        return {str(path.relative_to(folder)): self.read(path.read_bytes()) for path in paths if path.is_file()}


def finish(case: Case, folder: Path) -> Content:
    """Run the command to its end, and return its results."""
    code = os.waitstatus_to_exitcode(os.waitpid(case.start(folder), 0)[1])
    assert code == 0, f"{case.name} ended with code {code}: {(folder / 'log').read_text()}"
    assert not leftovers(folder), f"{case.name} left {leftovers(folder)}"
    return case.content(folder)


def leftovers(folder: Path) -> list[Path]:
    """Temporary files of a command that has not ended."""
    return [path for path in folder.rglob("*") if path.name.endswith(TEMPORARY)]


def kill(case: Case, folder: Path, after: float) -> float | None:
    """Start the command and kill it after some seconds; returns how long it took if it ended before."""
    child, begin, took = case.start(folder), time.monotonic(), None
    while took is None and time.monotonic() < begin + after:
        time.sleep(0.005)
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            took = time.monotonic() - begin
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if took is None:
        os.waitpid(child, 0)
    return took


def attack(case: Case, place: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill a command often enough, with a finished run after every few kills; returns a row of the table."""
    case.prepare(place / "unbroken")
    begin = time.monotonic()
    expected = finish(case, place / "unbroken")
    seconds = time.monotonic() - begin
    assert set(expected) == set(case.results), f"{case.name} made only {sorted(expected)}"
    done = finished = started = 0
    while done < kills:
        folder = place / f"killed-{started}"
        started += 1
        case.prepare(folder)
        before = case.content(folder)
        for attempt in range(rng.randint(1, 4)):
            took = kill(case, folder, rng.uniform(0, seconds))
            if took is not None and attempt == 0:
                seconds = min(seconds, took)  # the machine is less busy than it was
            found = case.content(folder)
            for name, content in () if case.resume else found.items():
                assert content in (expected[name], before.get(name)), f"{case.name} left half of {name} in {folder}"
            if took is not None or (found == expected and not leftovers(folder)):
                break  # it was killed too late, and would refuse to replace its result
            done += 1
        else:
            found = finish(case, folder)
            finished += 1
        assert found == expected, f"{case.name} ended with another result in {folder}: {(folder / 'log').read_text()}"
        shutil.rmtree(folder)
    return {"command": case.name, "killed": done, "finished": finished, "seconds": seconds, "missed": ""}


# The commands


def cases(place: Path) -> list[Case]:
    """All commands, on a small dataset with a run that is made here."""
    from tagfill import protocols, scenes
    from tagfill.curation.review import FOLDER, LOG
    from tagfill.data.extract import features
    from tagfill.training import train

    full = scenes.make(place / "scenes", train=80, val=30, test=20, size=64)
    part = protocols.single_positive(full, seed=1).save(place / "part")
    backbone = {"backbone": "test_efficientnet", "pretrained": False}
    cache = features(full, image_size=64, views="eval", out=place / "cache", **backbone)
    run = train(part, method="an", features=cache, epochs=3, image_size=64, out=place / "run", **backbone)
    (place / "tags.csv").write_text("image,tags\n" + "".join(f"{number:04d}.png,cat;dog\n" for number in range(3000)))

    tables = [f"{name}.parquet" for name in ("images", "annotations")]
    dataset = ["out/dataset.yaml", *(f"out/{name}" for name in tables)]
    cached = ["--features", str(cache.folder)]
    of_run = [str(part.folder), "--run", str(run.folder), "--folds", "2", "--jobs", "1", "--quiet", *cached]
    study = [str(full.folder), "--kinds", "I,SP", "--budgets", "30,60", "--seeds", "1", "--method", "an"]
    study += ["--epochs", "2", "--quiet", *cached, "--set", "backbone=test_efficientnet", "--set", "image_size=64"]
    study += ["--set", "pretrained=false", "--out", "OUT/out"]
    training = [str(part.folder), *BACKBONE, *cached, "--method", "en+scl", "--epochs", "6", "--batch-size", "8"]
    training += ["--out", "OUT/out"]
    saving = ["--processes", "2", "--save-steps", "3", "--quiet"]
    weights = ["out/best/model.safetensors", "out/metrics.jsonl"]

    def reviewed(folder: Path) -> None:
        folder.mkdir()
        shutil.copytree(part.folder, folder / "data")
        write_decisions(part.names(), part.classes, folder / "data" / FOLDER / LOG)

    return [
        Case("simulate", ["simulate", "single-positive", str(full.folder), "--out", "OUT/out"], dataset),
        Case("import", ["import", "tags", str(place / "tags.csv"), "--out", "OUT/out", "--quiet"], dataset),
        Case("suggest", ["suggest", *of_run, "--models", "OUT/models", "--out", "OUT/s.csv"], ["s.csv"]),
        Case("plan", ["plan", *of_run, "--hours", "0.05", "--out", "OUT/out"], ["out/plan.json", "out/tasks.csv"]),
        Case("budget", ["budget", *study, "--jobs", "1"], ["out/budget.json"]),
        Case("review --apply", ["review", "OUT/data", "--apply"], ["data/annotations.parquet"], reviewed, read=rows),
        Case(
            "train --processes 2",
            ["train", *training, *saving],
            weights,
            resume=["train", "--resume", "OUT/out", *saving],
        ),
        Case("budget --engine ray", ["budget", *study, "--jobs", "2", "--engine", "ray"], ["out/budget.json"]),
    ]


def write_decisions(images: Sequence[str], classes: Sequence[str], path: Path) -> None:
    """The log of an interrupted review that has decided about each image and some classes."""
    from tagfill.curation.decisions import DecisionLog, LogEntry

    path.parent.mkdir(parents=True)
    pairs = [(image, label) for image in images for label in classes[:10]]
    with DecisionLog(path) as log:
        log.append(
            [
                LogEntry(number, f"id{number}", "decide", *pair, number % 3 == 0, "me", time_of(number), 1.0, "unknown")
                for number, pair in enumerate(pairs, start=1)
            ]
        )


def time_of(number: int) -> str:
    """The same times for every copy, so that their rows can be compared."""
    return f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000000+00:00"


def rows(content: bytes) -> bytes:
    """The rows of a Parquet file, without the times at which it was written."""
    import io

    import pyarrow.parquet as pq

    return json.dumps(pq.read_table(io.BytesIO(content)).to_pylist(), default=str).encode()


def main() -> int:
    """Attack all commands and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--only", nargs="+", default=None, metavar="COMMAND", help="commands to attack")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--save", action="store_true", help="store the results, beside those of other commands")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    found = tables.begin("kill")
    rows = {} if not options.only or not tables.path("kill").exists() else tables.read("kill")["rows"]
    with tempfile.TemporaryDirectory() as folder:
        all_cases = cases(Path(folder))
        print("\n".join(tables.KILL_HEAD), flush=True)
        for case in all_cases:
            if options.only is not None and not any(word in case.name for word in options.only):
                continue
            place = Path(folder) / f"case-{all_cases.index(case)}"
            place.mkdir()
            try:
                rows[case.name] = attack(case, place, options.kills, rng)
            except AssertionError as error:
                rows[case.name] = {"command": case.name, "missed": str(error)}
            print(tables.kill_row(rows[case.name]), flush=True)
            if options.save:
                tables.write("kill", found | {"rows": rows})
    return 1 if any(row["missed"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
