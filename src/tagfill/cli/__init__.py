"""The command line: one file a command, thin, and the only place that prints.

Results go to standard output, progress to standard error. Exit codes: 0 well, 1 our fault, 2 the user's mistake, 130
interrupted.
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
