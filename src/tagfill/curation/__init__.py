"""Curation: suggestions of what to look at, the page to decide them, and the decisions that become rows."""

from tagfill.curation.suggestions import Suggestions

__all__ = ["Suggestions"]
