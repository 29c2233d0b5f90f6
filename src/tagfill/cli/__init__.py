"""The command line: one file per command, and the only package that prints.

Results go to standard output, progress and warnings to standard error. Exit codes: 0 success, 1 internal error, 2 user
error, 130 interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from tagfill.cli.app import app
    from tagfill.errors import TagfillError

    try:
        app(prog_name="tagfill")
    except TagfillError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(2)
