"""Filling in missing tags, from a table and photos to a result in one folder.

fill        the call, and its phases
source      reads what is given
candidates  tags that may be missing
writing     chooses what to add, and writes it
result      the folder of a result
summary     its settings and numbers
table       its table of tags
report      the page about it
timing      how long it takes
unlabeled   photos without any tag, by names of classes
"""

from tagfill.filling.phases import fill
from tagfill.filling.result import Fill
from tagfill.filling.summary import FillSummary

__all__ = ["Fill", "FillSummary", "fill"]
