"""Skipped tests need a reason, and tests of web pages get a browser.

`tests/skips.txt` lists the tests that may be skipped, one `nodeid-pattern: reason` per line, where `*` matches any
characters. A session in which any other test was skipped fails and names it.

Tests that use `browser` (Chromium) are in files named `test_…_browser.py`; they are skipped on a machine without it,
except in `.ci/run`, which installs it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("tagfill", deadline=None)  # timings depend on the load of the machine
hypothesis.settings.load_profile("tagfill")


SKIPS = Path(__file__).with_name("skips.txt")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """A real browser; each test opens its own pages: `browser.new_page(viewport=…, color_scheme=…)`."""
    yield chromium
    for context in chromium.contexts:  # pages that stay open go on asking their server
        context.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One process of the browser for all tests."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None and os.environ.get("CI"):
        pytest.fail("Chromium is not installed; .ci/run should have installed it.")
    if program is None:
        pytest.skip("Chromium is not installed.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_FLAGS))
        yield running
        running.close()


class SkipGuard:
    """Fails the session if a test was skipped that is not listed."""

    def __init__(self, listed: list[re.Pattern[str]]) -> None:
        self.listed = listed
        self.unlisted: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):  # an expected failure is reported as skipped too
            self.check(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.check(report)

    def check(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not any(pattern.fullmatch(report.nodeid) for pattern in self.listed):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.unlisted[report.nodeid] = reason.removeprefix("Skipped: ")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unlisted and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.unlisted:
            terminalreporter.section("skipped, and not listed in skips.txt", red=True)
            for test, reason in sorted(self.unlisted.items()):
                terminalreporter.line(f"{test}: {reason}")


def read_skips(path: Path) -> Iterator[re.Pattern[str]]:
    """The patterns of a list of skips; empty lines and comments (#) are ignored."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = f"{line} ".partition(": ")
        if not reason.strip():
            raise pytest.UsageError(f"Line {number} of {path.name} has no reason: {line.strip()}")
        yield re.compile(".*".join(map(re.escape, pattern.split("*"))))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers of xdist send their reports to the main process
        config.pluginmanager.register(SkipGuard(list(read_skips(SKIPS))), "skip-guard")
