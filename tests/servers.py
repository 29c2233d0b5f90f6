"""`tagfill serve` and `tagfill review` as processes of their own, for the tests that talk to them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path


class Server:
    """A server that runs, and says where.

    Args:
        arguments: of `tagfill`, the command first.
        port: to listen at; 0 takes one that is free.
        folder: to start it in; by default this one.
    """

    def __init__(self, *arguments: str, port: int = 0, folder: Path | None = None) -> None:
        command = [sys.executable, "-m", "tagfill", *arguments, "--port", str(port)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        found = re.search(r"http://\S+:(\d+)/\S*", said)
        assert found, said + self.process.stderr.read()
        self.address, self.port = found[0], int(found[1])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self.process.kill()
        self.process.communicate()

    def end(self, how: signal.Signals = signal.SIGINT) -> tuple[str, str]:
        """Ask it to end, by default as Ctrl-C does, and wait until it has: all that it said on its two streams."""
        self.process.send_signal(how)
        out, told = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, told
        return out, told
