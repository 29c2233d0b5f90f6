"""Training by two torchrun agents, one of which is killed; writes benchmarks/results/torchrun.json.

Two agents (`--nnodes 2`, one process each) meet at a rendezvous on this machine and train together, on features of
synthetic scenes. Then the same again, where one training process is killed with SIGKILL in the middle, which its agent
replaces (`--max-restarts`); and where a whole agent is killed with all that it started, and is started again. All runs
must end with the same bytes. Needs Linux.

    python benchmarks/torchrun/run.py --work WORK
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from bookkeeping import Record, say
from own_network import enter_network

RECORD = Record("torchrun", ("training", "memory", "data"), ("torch",))
SCENES, EPOCHS, BATCH_SIZE, IMAGE_SIZE, METHOD = 600, 12, 16, 64, "en+scl"
SAVE_STEPS = 5
PORT = 29400
PATIENCE = 1800.0  # seconds
AFTER = 4  # epochs that have ended when something is killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for scenes and runs")
    work = parser.parse_args().work.absolute()
    enter_network()
    prepare(work)
    results: dict[str, Any] = {
        **RECORD.begin(" --work WORK"),
        "method": METHOD,
        "scenes": SCENES,
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "save_steps": SAVE_STEPS,
        "cases": {},
    }
    for name, disturb in CASES.items():
        say(name)
        found = measure(work / name.replace(" ", "-"), work, disturb)
        expected = results["cases"].get(UNDISTURBED, {"hash": found["hash"]})["hash"]
        results["cases"][name] = {**found, "same": found["hash"] == expected}
        say(json.dumps(results["cases"][name]))
        RECORD.results.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        assert found["hash"] == expected, f"{name} ended with other bytes"


def prepare(work: Path) -> None:
    """Scenes with one positive each, and their features."""
    import tagfill

    if not (work / "single" / "dataset.yaml").exists():
        full = tagfill.scenes.make(work / "full", train=SCENES * 2 // 3, val=SCENES // 3, test=8, size=IMAGE_SIZE)
        tagfill.protocols.single_positive(full, seed=1200).save(work / "single")
    tagfill.features(work / "single", out=work / "cache", views="eval,flip", image_size=IMAGE_SIZE)


@dataclass
class Agent:
    """One torchrun, as it would run on one machine."""

    work: Path
    out: Path
    number: int
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        launch = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d"]
        launch += ["--rdzv-endpoint", f"127.0.0.1:{PORT}", "--rdzv-id", self.out.name, "--local-addr", "127.0.0.1"]
        train = ["train", "single", "--features", "cache", "--method", METHOD, "--epochs", str(EPOCHS), "--quiet"]
        train += ["--batch-size", str(BATCH_SIZE), "--save-steps", str(SAVE_STEPS), "--set", f"image_size={IMAGE_SIZE}"]
        words = [sys.executable, "-m", "torch.distributed.run", *launch, "-m", "tagfill", *train]
        words += ["--out", str(self.out), "--continue"]
        log = (self.work / f"{self.out.name}-agent{self.number}.log").open("ab")
        self.process = subprocess.Popen(
            words, cwd=self.work, env=_environment(), stdout=log, stderr=log, start_new_session=True
        )

    def trainer(self) -> int:
        """The process that trains, the only child of the agent."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def kill(self) -> None:
        """Kill the agent and everything that it started."""
        doomed = [self.trainer(), self.process.pid]
        for process in reversed(doomed):
            os.kill(process, signal.SIGKILL)
        self.process.wait()


def _environment() -> dict[str, str]:
    """Loopback only, and a new store for each rendezvous.

    By default, rank 0 announces the address of its store once, in the first rendezvous, and an agent that joins a later
    one waits for it in vain (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py, torch 2.13).
    """
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
    return {**os.environ, **loopback, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def kill_trainer(agents: list[Agent]) -> None:
    """Kill the training process of the second agent; the agents live."""
    os.kill(agents[1].trainer(), signal.SIGKILL)


def kill_agent(agents: list[Agent]) -> None:
    """Kill the second agent and its training process, and start it again."""
    agents[1].kill()
    agents[1].start()


UNDISTURBED = "undisturbed"
CASES: dict[str, Callable[[list[Agent]], None] | None] = {
    UNDISTURBED: None,
    "training process killed": kill_trainer,
    "agent killed": kill_agent,
}


def measure(out: Path, work: Path, disturb: Callable[[list[Agent]], None] | None) -> dict[str, Any]:
    """Train; return seconds, the hash of what was made, and how many epochs were trained more than once."""
    for old in (out, *work.glob(f"{out.name}-agent*.log")):
        shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
    begin = time.monotonic()
    agents = [Agent(work, out, number) for number in range(2)]
    try:
        if disturb is not None:
            wait_for(lambda: ended_epochs(out) >= AFTER, agents)
            disturb(agents)
        wait_for(lambda: all(agent.process.poll() is not None for agent in agents), agents)
    finally:
        for agent in agents:
            if agent.process.poll() is None:
                agent.kill()
    seconds = round(time.monotonic() - begin, 1)
    assert [agent.process.returncode for agent in agents] == [0, 0], f"see {work}/{out.name}-agent*.log"
    logged = [json.loads(line)["epoch"] for line in (out / "timings.jsonl").read_text().splitlines()]
    assert sorted(set(logged)) == list(range(1, EPOCHS + 1))
    return {"seconds": seconds, "hash": hash_of(out), "epochs_repeated": len(logged) - EPOCHS}


def wait_for(moment: Callable[[], bool], agents: list[Agent]) -> None:
    """Wait for a moment; fail if an agent fails before."""
    end = time.monotonic() + PATIENCE
    while not moment():
        assert all(agent.process.poll() in (None, 0) for agent in agents), f"an agent failed; see {agents[0].work}"
        assert time.monotonic() < end, "the moment never came"
        time.sleep(0.05)


def ended_epochs(out: Path) -> int:
    path = out / "metrics.jsonl"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def hash_of(out: Path) -> str:
    """Of the model, the last state of both processes, and the metrics of all epochs."""
    newest = max((out / "checkpoints").glob("[0-9]*"))
    files = sorted([*newest.glob("*.safetensors"), out / "best" / "model.safetensors", out / "metrics.jsonl"])
    assert len(files) > 4
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


if __name__ == "__main__":
    main()
