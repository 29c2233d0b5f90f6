"""A Ray cluster on this machine.

Each node is a `ray start` with its own address (127.0.0.2, .3, …), ports, object store and worker processes.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PORT = 26379
OBJECT_STORE = 150_000_000  # bytes


@dataclass
class Node:
    """One `ray start`.

    Attributes:
        address: its IP address.
        process: the command, which runs until the node ends.
    """

    address: str
    process: subprocess.Popen[bytes]

    def processes(self) -> set[int]:
        """All processes of the node: Ray's own, and the workers."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
        found = {self.process.pid}
        while grown := {child for child, parent in parents.items() if parent in found} - found:
            found |= grown
        return found

    def tasks(self) -> list[str]:
        """The titles of its processes that run a task now."""
        titles = []
        for process in self.processes():
            try:
                title = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if title.startswith("ray::_run_on_machine"):
                titles.append(title)
        return titles

    def kill(self) -> int:
        """Kill all processes of the node with SIGKILL; return how many there were."""
        found = self.processes()
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        return len(found)


@dataclass
class Cluster:
    """A head and worker nodes.

    Attributes:
        folder: for Ray's own files; its path must be short.
        nodes: the running nodes, the head first.
    """

    folder: Path
    nodes: list[Node] = field(default_factory=list)
    _started: int = 1

    @property
    def address(self) -> str:
        """Of the cluster, for `--ray-address`."""
        return f"{self.nodes[0].address}:{PORT}"

    def environment(self) -> dict[str, str]:
        """What nodes and drivers need: the token of this cluster, and one thread per process."""
        token = self.folder / "token"
        if not token.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            token.write_text(secrets.token_hex(32))
        names = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **names, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}

    def start_node(self, *, without: Path | None = None) -> Node:
        """Start a node with one core, and wait until it has joined.

        Args:
            without: a folder that the node does not see: an empty one is mounted over it, for this node alone.
        """
        self._started += 1
        address = f"127.0.0.{self._started}"
        ray = str(Path(sys.executable).with_name("ray"))
        words: Sequence[str] = [ray, "start", "--block", "--num-cpus", "1", "--node-ip-address", address]
        words = [*words, "--object-store-memory", str(OBJECT_STORE), "--disable-usage-stats"]
        if not self.nodes:
            temporary = ["--temp-dir", str(self.folder / "ray")]
            words = [*words, "--head", "--port", str(PORT), "--include-dashboard", "false", *temporary]
        else:
            words = [*words, "--address", self.address]
        if without is not None:
            hide = 'mount -t tmpfs none "$0" && exec "$@"'
            words = ["unshare", "--mount", "sh", "-c", hide, str(without), *words]
        log = (self.folder / f"node-{self._started}.log").open("wb")
        node = Node(address, subprocess.Popen(words, env=self.environment(), stdout=log, stderr=log, cwd=self.folder))
        self.nodes.append(node)
        self.wait_for(len(self.nodes))
        return node

    def wait_for(self, count: int, patience: float = 300.0) -> None:
        """Wait until this many nodes are alive, as the head counts them."""
        check = (
            "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False);"
            "print(sum(node['Alive'] for node in ray.nodes()))"
        )
        end = time.monotonic() + patience
        while time.monotonic() < end:
            words = [sys.executable, "-c", check, self.address]
            done = subprocess.run(words, env=self.environment(), capture_output=True, text=True, check=False)
            if done.returncode == 0 and int(done.stdout.split()[-1]) == count:
                return
            time.sleep(1)
        raise TimeoutError(f"{count} nodes were not there after {patience:.0f} seconds; see {self.folder}/node-*.log")

    def kill_node(self, node: Node) -> int:
        """Kill a node; return the number of its processes."""
        self.nodes.remove(node)
        return node.kill()

    def stop(self) -> None:
        """End all nodes, the head last."""
        for node in reversed(self.nodes):
            node.kill()
        self.nodes.clear()
