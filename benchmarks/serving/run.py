"""Requests a second with and without micro-batches; writes benchmarks/results/serving.json and its page.

Two servers of the same model, one of which forms batches, are asked in turn by clients that each wait for their answer
before they ask again. The one without batches is asked twice a round, as a control; ratios are within a round.

    python benchmarks/serving/run.py           16 clients and 1, five rounds; about four minutes
    python benchmarks/serving/run.py --quick   one short round, printed and not written down
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
from page import page

from tagfill import models, scenes

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say

RECORD = Record("serving", ("inference", "models", "images"), libraries=("torch",))
BATCHED, ALONE, AGAIN = "batches of 16", "one at a time", "one at a time, again"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round that writes no file")
    quick = parser.parse_args().quick
    rounds, seconds = (1, 2.0) if quick else (5, 8.0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        images = [path.read_bytes() for path in pictures(place)]
        models.create("tf_efficientnet_lite0", "cam", [f"class {n}" for n in range(20)], pretrained="bundled").save(
            place / "model"
        )
        servers = {BATCHED: start(place / "model", 16), ALONE: start(place / "model", 1)}
        servers[AGAIN] = servers[ALONE]
        try:
            clients = {str(count): measured(servers, images, count, rounds, seconds) for count in (16, 1)}
        finally:
            for process, _ in {id(one[0]): one for one in servers.values()}.values():
                process.kill()
                process.wait()
    results: dict[str, Any] = {
        **RECORD.begin(),
        "seconds": seconds,
        "clients": clients,
    }
    if quick:
        print(json.dumps(results, indent=2))
        return
    RECORD.write(results, page(results))


def pictures(place: Path) -> list[Path]:
    data = scenes.make(place / "scenes", train=32, val=1, test=1)
    return [Path(data.root) / name for name in data.names(data.split("train"))]


def start(model: Path, batch_size: int) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "tagfill", "serve", str(model), "--port", "0", "--batch-size", str(batch_size)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"http://[^ ]+/", process.stderr.readline())
    assert found
    return process, found[0]


def measured(
    servers: dict[str, tuple[subprocess.Popen[str], str]],
    images: list[bytes],
    clients: int,
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    rng = random.Random(0)
    for number in range(-1, rounds):  # the first one warms up
        turns = list(servers)
        rng.shuffle(turns)
        for name in turns:
            one = asked(servers[name][1], images, clients, seconds if number >= 0 else 1.0)
            say(f"{clients} clients, {name}: {one['rate']:.1f} requests/s")
            if number >= 0:
                found[name].append(one)
    return {
        "servers": found,
        "ratios": [
            b["rate"] / ((a["rate"] + c["rate"]) / 2)
            for a, b, c in zip(found[ALONE], found[BATCHED], found[AGAIN], strict=True)
        ],
        "control": [c["rate"] / a["rate"] for a, c in zip(found[ALONE], found[AGAIN], strict=True)],
        "median_rate": {name: median(one["rate"] for one in many) for name, many in found.items()},
    }


def asked(address: str, images: list[bytes], clients: int, seconds: float) -> dict[str, float]:
    """Requests a second and how long they took, with so many clients at once."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        with httpx.Client(timeout=60) as client:
            at = number
            while time.perf_counter() < until:
                begin = time.perf_counter()
                content = {"content-type": "image/png" if images[at % len(images)][:4] == b"\x89PNG" else "image/jpeg"}
                answer = client.post(f"{address}predict?top_k=3", content=images[at % len(images)], headers=content)
                assert answer.status_code == 200, answer.text
                taken.append(time.perf_counter() - begin)
                at += clients

    begin = time.perf_counter()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p50, p99 = np.percentile(taken, [50, 99]).tolist()
    return {"rate": len(taken) / (time.perf_counter() - begin), "p50": p50, "p99": p99}


if __name__ == "__main__":
    main()
