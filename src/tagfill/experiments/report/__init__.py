"""The report: sections of words, figures and tables that anybody can make, laid out on one page."""

from tagfill.experiments.report.section import Figure, Section, Table

__all__ = ["Figure", "Section", "Table"]
