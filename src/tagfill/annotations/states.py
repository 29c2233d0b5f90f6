"""The one coding of label states inside Tagfill; importers convert to it."""

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1
