"""The command line: one file a command, thin, and the only place that prints.

Results go to standard output, progress to standard error. Exit codes: 0 well, 1 our fault, 2 the user's mistake, 130
interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    import click
    import typer

    from tagfill.cli.app import app
    from tagfill.errors import TagfillError

    command = typer.main.get_command(app)
    try:
        code = command.main(prog_name="tagfill", standalone_mode=False)
    except TagfillError as error:
        sys.stderr.write(f"Error: {error}\n")
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("Interrupted.\n")
        code = 130
    sys.exit(code if isinstance(code, int) else 0)
