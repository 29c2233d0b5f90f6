"""The log: confirmed decisions are never lost, unconfirmed ones are cut off, and nothing counts twice."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tagfill.curation.decisions import DecisionLog, LogEntry
from tagfill.errors import TagfillError


def entry(number, **changes):
    time = "2026-01-01T00:00:00.000000+00:00"
    usual = LogEntry(number, f"id{number}", "decide", "a.jpg", "cup", True, "me", time, 1.5, "unknown")
    return replace(usual, **changes)


def test_a_log_returns_its_entries(tmp_path):
    entries = [entry(1), entry(2, present=None, who="Zoë", image="ä\n.jpg"), entry(3, action="undo", undoes="id2")]
    with DecisionLog(tmp_path / "log") as log:
        log.append(entries[:1])
        log.append(entries[1:])
    with DecisionLog(tmp_path / "log") as log:
        assert log.entries == entries
        assert log.find("id2") == entries[1]
        assert log.find("other") is None


def test_a_log_of_version_0_1_still_opens(tmp_path):
    content = (
        '{"check":"cbe5f802","entry":{"number":1,"id":"3f","action":"decide","image":"ä.jpg",'
        '"label":"cup","present":true,"who":"Zoë","time":"2026-01-01T00:00:00.000000+00:00",'
        '"seconds":1.5,"previous":"unknown","undoes":null,"group":null}}\n'
        '{"check":"fa9eb0ef","entry":{"number":2,"id":"40","action":"undo","image":"ä.jpg",'
        '"label":"cup","present":true,"who":"Zoë","time":"2026-01-01T00:00:01.000000+00:00",'
        '"seconds":0.0,"previous":"present","undoes":"3f","group":"g"}}\n'
    ).encode()
    (tmp_path / "log").write_bytes(content)
    with DecisionLog(tmp_path / "log") as log:
        assert [(e.number, e.action, e.present, e.who, e.undoes) for e in log.entries] == [
            (1, "decide", True, "Zoë", None),
            (2, "undo", True, "Zoë", "3f"),
        ]
        assert b"".join(e.line() for e in log.entries) == content


def test_a_log_cut_at_any_byte_keeps_its_whole_lines(tmp_path):
    lines = [entry(number).line() for number in (1, 2, 3)]
    content = b"".join(lines)
    for size in range(len(content) + 1):
        (tmp_path / "log").write_bytes(content[:size])
        with DecisionLog(tmp_path / "log") as log:
            whole = sum(size >= len(b"".join(lines[: n + 1])) for n in range(3))
            assert len(log.entries) == whole
            log.append([entry(whole + 1, id="after")])
        with DecisionLog(tmp_path / "log") as log:
            assert [e.number for e in log.entries] == list(range(1, whole + 2))


def test_a_flipped_bit_in_the_middle_is_an_error_that_names_the_line(tmp_path):
    content = bytearray(b"".join(entry(number).line() for number in (1, 2, 3)))
    content[len(entry(1).line()) + 40] ^= 1
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(TagfillError, match="line 2, is damaged"):
        DecisionLog(tmp_path / "log")


def test_times_increase_even_if_the_clock_is_set_back(tmp_path):
    ahead = datetime.now(UTC) + timedelta(hours=1)
    with DecisionLog(tmp_path / "log") as log:
        log.append([entry(1, time=ahead.isoformat(timespec="microseconds"))])
        first, second = (datetime.fromisoformat(log.next_time(n)) for n in (0, 1))
    assert ahead < first < second


def test_on_a_full_disk_all_entries_are_written_or_none(tmp_path):
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from tagfill.curation.decisions import DecisionLog
        from tagfill.curation.entry_log import NotWrittenError
        from dataclasses import replace

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with DecisionLog(Path(sys.argv[1])) as log:
            first = log.entries[0]
            size = Path(sys.argv[1]).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
            try:
                log.append([replace(first, number=2, id="lost"), replace(first, number=3, id="lost too")])
            except NotWrittenError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            log.append([replace(first, number=2, id="kept")])
        """
    )
    with DecisionLog(tmp_path / "log") as log:
        log.append([entry(1)])
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "could not be written" in done.stdout
    with DecisionLog(tmp_path / "log") as log:
        assert [e.id for e in log.entries] == ["id1", "kept"]


def test_confirmed_decisions_survive_kill_9(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from dataclasses import replace
        from tagfill.curation.decisions import DecisionLog, LogEntry

        with DecisionLog(Path(sys.argv[1])) as log:
            number = len(log.entries)
            while True:
                number += 1
                time = log.next_time()
                entry = LogEntry(number, f"id{number}", "decide", "a.jpg", "cup", True, "me", time, 0.0, "unknown")
                log.append([entry])
                print(number, flush=True)
        """
    )
    confirmed = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE) as process:
            for _ in range(40):
                confirmed = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            confirmed = max(
                [confirmed, *(int(line) for line in process.stdout.read().splitlines(True) if line[-1:] == b"\n")]
            )
        with DecisionLog(tmp_path / "log") as log:
            assert len(log.entries) >= confirmed
            assert [e.number for e in log.entries] == list(range(1, len(log.entries) + 1))
