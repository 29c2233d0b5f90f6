"""The command line: one file per command, and the only package that prints.

Results go to standard output, progress and warnings to standard error. Exit codes: 0 success, 1 internal error, 2 user
error, 130 interrupted by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from tagfill.cli.running import run  # takes a while, in which Ctrl-C must not show a traceback

        code = run()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
