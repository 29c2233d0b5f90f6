"""Reports: sections of text, figures, tables and pictures, written as one page."""

from tagfill.experiments.report.page import write
from tagfill.experiments.report.section import Figure, Gallery, Listing, Picture, Section, Table

__all__ = ["Figure", "Gallery", "Listing", "Picture", "Section", "Table", "write"]
