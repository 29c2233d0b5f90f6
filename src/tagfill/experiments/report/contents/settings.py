"""What it takes to make the runs again."""

from __future__ import annotations

from tagfill.experiments.report.contents.material import Material
from tagfill.experiments.report.section import Listing, Section, Table


def settings(material: Material) -> Section:
    """Recipes, versions and identities."""
    first = material.entrants[0].run.description()
    rows = [(name, str(value)) for name, value in first["versions"].items()]
    identities = [(f"identity of {name}", value[:16]) for name, value in material.data.identities.items()]
    table = Table("versions", "Software, and hashes of what the data say.", ("what", "value"), [*rows, *identities])
    listings = [
        Listing(f"{entrant.name}: recipe of {entrant.run.folder.name}", entrant.run.recipe.to_yaml())
        for entrant in material.entrants
    ]
    words = (
        "Each run folder holds its complete recipe; `tagfill train --recipe RUN/recipe.yaml` trains it again, and on "
        "the same machine with the same versions it ends with the same bytes. Recipes of the first seed:",
    )
    return Section("settings", "Settings to reproduce", words, tables=(table,), listings=tuple(listings))
