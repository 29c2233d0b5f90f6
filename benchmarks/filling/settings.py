"""Settings of every row of every published table, with their sources and the differences from the paper.

<!-- numbers: settings -->
"""

from __future__ import annotations

from collections.abc import Mapping

from tagfill.experiments import recipes
from tagfill.training.resolved import setting_text

Line = tuple[str, str]  # value and source


def settings(arguments: str, top: str) -> str:
    """A section per recipe: settings of all rows, of each row, and differences from the paper."""
    names = [name for name in recipes.names() if not name.startswith("cpu/")]
    return "\n\n".join(_section(recipes.open_recipe(name)) for name in names)


def _section(file: recipes.RecipeFile) -> str:
    published = file.published
    assert published is not None
    rows = {row: _lines(file, row) for row in published.rows}
    common = recipes.shared(rows)
    metric = published.metric
    parts = [
        f"## `{file.name}`",
        f"{published.about}. {published.paper}, {published.table}.",
        f"Scored on the split {metric.split} with average precision `{metric.average_precision}`, a class without a "
        f"positive {'counts as 0' if metric.empty == 'zero' else 'is skipped'}; {_runs(published.seeds)}.",
        _texts(["setting of all rows", "value", "source"], [[f"`{path}`", *line] for path, line in common.items()]),
        _texts(["row", "reported", "setting, value (source)"], [_row(name, published, rows, common) for name in rows]),
        "Differences from the paper, and our choices:",
        "\n".join(f"- {text}" for text in file.departures()),
    ]
    return "\n\n".join(part for part in parts if part)


def _lines(file: recipes.RecipeFile, row: str) -> dict[str, Line]:
    sources = file.sources(row)
    return {path: (setting_text(value), sources.get(path, "–")) for path, value in file.used_settings(row).items()}


def _row(
    name: str, published: recipes.Published, rows: Mapping[str, dict[str, Line]], common: Mapping[str, Line]
) -> list[str]:
    row = published.rows[name]
    reported = row.reported
    if isinstance(reported, dict):
        numbers = ", ".join(f"{number:g} ({of})" for of, number in reported.items())
    else:
        numbers = "–" if reported is None else f"{reported:g}"
    own = {path: line for path, line in rows[name].items() if path not in common}
    texts = [f"dataset {row.set['dataset']}"] if "dataset" in row.set else []
    texts += [f"`{path}` {value} ({source})" for path, (value, source) in own.items()]
    return [f"`{name}`", numbers, "; ".join([*texts, *([row.note] if row.note else [])]) or "–"]


def _texts(head: list[str], rows: list[list[str]]) -> str:
    """A table whose columns are all aligned to the left."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"|{'|'.join(cells)}|" if cells[0] == "---" else f"| {' | '.join(cells)} |" for cells in lines)


def _runs(seeds: int) -> str:
    return "one run" if seeds == 1 else f"the mean of {seeds} runs"
