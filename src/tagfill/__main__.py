"""`python -m tagfill`."""

from __future__ import annotations

from tagfill.cli import main

if __name__ == "__main__":
    main()
