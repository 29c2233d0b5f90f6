"""`python -m tagfill`."""

from tagfill.cli import main

if __name__ == "__main__":
    main()
