"""The report: sections of words, figures, tables and pictures that anybody can make, laid out on one page."""

from tagfill.experiments.report.page import write
from tagfill.experiments.report.section import Figure, Gallery, Listing, Picture, Section, Table

__all__ = ["Figure", "Gallery", "Listing", "Picture", "Section", "Table", "write"]
