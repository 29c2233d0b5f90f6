"""Run `tagfill serve` and `tagfill review` as processes, for tests that send requests to them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path


class Server:
    """A running server and its address.

    Args:
        arguments: arguments of `tagfill`, the command first.
        port: port to listen on; 0 picks a free one.
        folder: working directory; by default the current one.
    """

    def __init__(self, *arguments: str, port: int = 0, folder: Path | None = None) -> None:
        command = [sys.executable, "-m", "tagfill", *arguments, "--port", str(port)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"http://\S+:(\d+)/\S*", line)
        assert found, line + self.process.stderr.read()
        self.address, self.port = found[0], int(found[1])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.communicate()

    def end(self, how: signal.Signals = signal.SIGINT) -> tuple[str, str]:
        """Stop the server, by default as Ctrl-C does, and return its standard output and standard error."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out, err
