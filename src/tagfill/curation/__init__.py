"""Curation: suggest pairs to check, review them on a page, plan annotation; decisions become rows of the dataset."""

from tagfill.curation.suggestions import Suggestions
from tagfill.deprecation import renamed_module

__all__ = ["Suggestions"]

renamed_module(
    "tagfill.curation.measuring",
    {"measure": "tagfill.curation.suggestions.measure", "Measured": "tagfill.curation.suggestions.SuggestionQuality"},
)
renamed_module(
    "tagfill.curation.planning", {"plan": "tagfill.curation.plan.plan", "Plan": "tagfill.curation.plan.Plan"}
)
renamed_module(
    "tagfill.curation.reviewing",
    {"at_desk": "tagfill.curation.review.open_session", "apply": "tagfill.curation.review.apply_log"},
)
renamed_module(
    "tagfill.curation.suggesting",
    {"suggest": "tagfill.curation.suggest.suggest", "Suggested": "tagfill.curation.suggest.SuggestResult"},
)
