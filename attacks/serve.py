"""Attack `tagfill serve` on this machine, and show what an honest client notices.

    python attacks/serve.py            about two minutes
    python attacks/serve.py --seconds 2
    python attacks/serve.py --save     for docs/security.md, which `make numbers` writes

Each attack runs 20 clients at once that send the same hostile request again and again, at low priority, as if they were
on another machine. Meanwhile an honest client sends a photo and measures how long its answer takes. Targets: the honest
client waits at most twice as long as usual, memory stays under 1 GB above its level at rest, SIGTERM under attack ends
the server within 10 seconds, and idle connections neither shut out the honest client nor fill the log. 40 uploads of
30 MiB at once stay within the same limit of memory. Misses are marked, and end the script with code 1.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

import tables  # noqa: E402

import hostile_images as hostile  # noqa: E402

CLIENTS = 20
HONEST = hostile.jpeg()

ATTACKS: dict[str, Callable[[], bytes]] = {
    "last scan 1,500 times": hostile.repeated_scans,
    "30 MB of fill bytes": lambda: hostile.fill_bytes(30_000_000),
    "30 MB of junk": lambda: hostile.junk_bytes(30_000_000),
    "1,000,000 APP segments": lambda: hostile.app_segments(1_000_000),
    "15 MB of EXIF": lambda: hostile.exif_segments(15_000_000),
    "200 Photoshop segments": lambda: hostile.photoshop_segments(200),
    "1,000,000 PNG chunks": lambda: hostile.png_chunks(1_000_000),
    "1,000,000 IDAT chunks": lambda: hostile.empty_idat_chunks(1_000_000),
    "95 scans of 40 MP": lambda: hostile.repeated_scans((6300, 6300), 85),
    "30 MB that trickle": lambda: b"",
}


def main() -> int:
    """Run all attacks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each attack")
    parser.add_argument("--save", action="store_true", help="store the results")
    parser.add_argument("--attacker", action="store_true", help="internal: this process is the attacker")
    parser.add_argument("--content", type=Path)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.attacker:
        attack(options.content.read_bytes(), options.port, options.seconds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = tables.begin("serve") | defend(Path(folder), options.seconds)
    if options.save:
        tables.write("serve", found)
    return 1 if any(one["missed"] for one in found["rows"]) else 0


def defend(folder: Path, seconds: float) -> dict[str, Any]:
    """Start servers, attack them, and return and print what an honest client noticed."""
    from tagfill import models

    models.create("resnet18", "cam", ["cup", "dog", "tree"], pretrained=False, image_size=224).save(folder / "model")
    rows = []
    print("\n".join(tables.SERVE_HEAD), flush=True)

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        print(tables.serve_row(row), flush=True)

    with Server(folder) as server:
        ask(server.port, 5)
        rest = server.memory()
        for name in ATTACKS:
            add(uploads(name, folder, server, rest, seconds))
        add(interrupted("95 scans of 40 MP", folder, server))
    with Server(folder) as server:
        add(interrupted("30 MB of fill bytes", folder, server))
    add(many_bodies(folder))
    add(many_idle_connections(folder))
    return {"clients": CLIENTS, "seconds": seconds, "rest": rest, "rows": rows}


def uploads(name: str, folder: Path, server: Server, rest: float, seconds: float) -> dict[str, Any]:
    """Hostile uploads, again and again."""
    usual = ask(server.port, 10)
    attacker = start_attack(name, folder, server.port, seconds)
    with Peak(server.memory) as peak:
        times = ask_while(server.port, attacker)
    answers = attacker.communicate()[0].strip()
    usual += ask(server.port, 10)  # what else the machine does may have changed meanwhile
    return noticed(name, answers, statistics.median(usual), times, peak.value - rest)


def noticed(name: str, answers: str, usual: float, times: list[float], above: float) -> dict[str, Any]:
    """What an honest client noticed, in seconds, and MB of memory above rest."""
    median = statistics.median(times) if times else None
    missed = median is None or median > 2 * usual or above > 1000
    found = {"usual": usual, "median": median, "slowest": max(times, default=None), "above": above}
    return {"attack": name, "answers": answers, **found, "missed": missed}


def interrupted(name: str, folder: Path, server: Server) -> dict[str, Any]:
    """SIGTERM during hostile uploads."""
    ask(server.port, 1)
    attacker = start_attack(name, folder, server.port, 4)
    time.sleep(2)
    took = server.end()
    attacker.communicate()
    return {"attack": f"SIGTERM during {name}", "ended": took, "missed": took > 10}


def many_bodies(folder: Path, clients: int = 40, size: int = 30 * 2**20) -> dict[str, Any]:
    """Clients that send all of a large body except its end, at the same time."""
    content = bytes(2**20)
    statuses = collections.Counter[str]()

    def client(port: int, until: float) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            try:
                connection.sendall(upload_head(size))
                for _ in range(size // len(content) - 1):
                    connection.sendall(content)
                connection.settimeout(max(1.0, until - time.monotonic()))
                answer = connection.recv(100)
            except TimeoutError:
                statuses["held"] += 1
            except OSError:
                statuses["closed"] += 1
            else:
                statuses[answer[9:12].decode() or "closed"] += 1

    with Server(folder) as server:
        ask(server.port, 3)
        usual, rest = statistics.median(ask(server.port, 10)), server.memory()
        until = time.monotonic() + 15
        threads = [threading.Thread(target=client, args=(server.port, until)) for _ in range(clients)]
        with Peak(server.memory) as peak:
            for thread in threads:
                thread.start()
            times = []
            while any(thread.is_alive() for thread in threads):
                times += ask(server.port, 1)
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    return noticed(f"{clients} bodies of {size / 2**20:.0f} MiB at once", answers, usual, times, peak.value - rest)


def many_idle_connections(folder: Path) -> dict[str, Any]:
    """1,100 connections that send nothing, to a server that may open 1,024 files."""
    with Server(folder, open_files=1024) as server:
        ask(server.port, 3)
        usual, rest = statistics.median(ask(server.port, 10)), server.memory()
        connections = []
        for _ in range(1100):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            connection.setblocking(False)
            connections.append(connection)
        times = ask(server.port, 10)
        for connection in connections:
            connection.close()
        log, above = (folder / "log").stat().st_size, server.memory() - rest
    name = "1,100 idle connections, 1,024 open files"
    found = noticed(name, f"{len(times)} of 10 honest answers, log of {log:,} bytes", usual, times, above)
    return found | {"missed": found["missed"] or len(times) < 10 or log > 10_000}


class Server:
    """A running `tagfill serve`."""

    def __init__(self, folder: Path, open_files: int | None = None) -> None:
        def limit() -> None:
            if open_files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

        self._log = (folder / "log").open("w+")
        command = [sys.executable, "-m", "tagfill", "serve", str(folder / "model"), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=self._log, preexec_fn=limit)
        until = time.monotonic() + 120
        while "http://" not in (text := (folder / "log").read_text()):
            assert time.monotonic() < until, f"the server did not start: {text}"
            time.sleep(0.1)
        self.port = int(text.split("http://")[1].split(":")[1].split("/")[0])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._log.close()

    def memory(self) -> float:
        """MB of the server and its helper processes."""
        total, pids = 0, [self._process.pid]
        while pids:
            pid = pids.pop()
            try:
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                for task in Path(f"/proc/{pid}/task").iterdir():
                    pids += map(int, (task / "children").read_text().split())
            except OSError:  # it has just ended
                continue
        return total / 1e6

    def end(self) -> float:
        """Send SIGTERM, and return the seconds until the server has ended."""
        begin = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)
        return time.monotonic() - begin


class Peak:
    """The largest of a value that is read ten times a second."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read, self.value, self._done = read, read(), threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.value = max(self.value, self._read())


def ask(port: int, times: int) -> list[float]:
    """Seconds of honest requests, one after the other; without those that failed."""
    return [seconds for seconds in (ask_once(port) for _ in range(times)) if seconds is not None]


def ask_while(port: int, attacker: subprocess.Popen[str]) -> list[float]:
    """Seconds of honest requests, until the attack ends."""
    found: list[float] = []
    while attacker.poll() is None:
        found += ask(port, 1)
    return found


def ask_once(port: int) -> float | None:
    """Seconds of an honest request; None if it failed."""
    begin = time.perf_counter()
    return time.perf_counter() - begin if send(port, HONEST) == "200" else None


def send(port: int, content: bytes, timeout: float = 60.0) -> str:
    """The status of a request, `closed` by the server, or `given up` after some seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/predict", body=content, headers={"content-type": "image/jpeg"})
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    except TimeoutError:
        return "given up"
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()


def start_attack(name: str, folder: Path, port: int, seconds: float) -> subprocess.Popen[str]:
    """Start the hostile clients in a process of their own, and return once they send."""
    content = folder / "content"
    content.write_bytes(ATTACKS[name]())
    flags = ["--attacker", "--content", str(content), "--port", str(port), "--seconds", str(seconds)]
    command = ["nice", "-n", "5", sys.executable, __file__, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def attack(content: bytes, port: int, seconds: float) -> None:
    """Send one kind of request from all clients for a while, and print how often each status came."""
    print("ready", flush=True)
    until, statuses = time.monotonic() + seconds, collections.Counter[str]()

    def client() -> None:
        while time.monotonic() < until:
            left = max(1.0, until - time.monotonic())
            statuses[send(port, content, left) if content else trickle(port, until)] += 1

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(", ".join(f"{count} × {status}" for status, count in sorted(statuses.items())))


def upload_head(size: int) -> bytes:
    """The header of a request whose body is an image of this size."""
    lines = ["POST /predict HTTP/1.1", "host: 127.0.0.1", "content-type: image/jpeg", f"content-length: {size}"]
    return "\r\n".join([*lines, "", ""]).encode()


def trickle(port: int, until: float) -> str:
    """Announce 30 MB, and send a byte now and then."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(upload_head(30_000_000))
            while time.monotonic() < until:
                connection.sendall(b"\xff")
                time.sleep(0.1)
        except OSError:
            return "closed"
    return "open"


if __name__ == "__main__":
    sys.exit(main())
