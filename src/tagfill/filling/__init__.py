"""Filling in missing tags, from a table and photos to a result in one folder.

fill        the call, and its phases
source      reads what is given
candidates  tags that may be missing
result      the folder of a result, and its numbers
report      the page about it
"""

from tagfill.filling.phases import fill
from tagfill.filling.result import Fill, FillSummary

__all__ = ["Fill", "FillSummary", "fill"]
